"""`enqueue-run`, `enqueue-sweep`, `queue-status`, `wait`, `logs`: what goes in, and how it stands."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.runforge.calls import Call, common, seconds

if TYPE_CHECKING:
    from queueyard.runforge.service import RunForge
    from queueyard.runforge.sweeps import Sweep


@click.command(
    "enqueue-run",
    epilog=examples(
        "runforge-cli enqueue-run --run-id 20260201-150000-mine-a1b2",
        "runforge-cli enqueue-run --run-id evaluate --after train --retries 2 --backoff 30s",
    ),
)
@click.option("--run-id", required=True, metavar="ID", help="The folder below .ml/runs.")
@click.option("--group-id", metavar="ID", help="The group that it belongs to.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher runs first within its group.")
@click.option("--after", multiple=True, metavar="JOB", help="Start only after this job or run succeeded; repeatable.")
@click.option("--retries", type=click.IntRange(min=0), default=0, help="Try again so often when it fails.")
@click.option("--backoff", metavar="TIME", help="Pause before the first retry, doubled each time: 10s, 2m.")
@click.option("--timeout", metavar="TIME", help="End an attempt that takes longer: 90s, 2h.")
@common
def enqueue_run(
    call: Call,
    run_id: str,
    group_id: str | None,
    priority: int,
    after: tuple[str, ...],
    retries: int,
    backoff: str | None,
    timeout: str | None,
) -> None:
    """Queue one run. Its folder must hold a request.json."""
    job = call.forge.enqueue_run(
        run_id,
        group_id=group_id,
        priority=priority,
        after=after,
        retries=retries,
        backoff_s=seconds(backoff) or 0.0,
        timeout_s=seconds(timeout),
    )
    call.show(job, f"Enqueued run {run_id} as job {job.job_id}")


@click.command("enqueue-sweep", epilog=examples("runforge-cli enqueue-sweep --plan plan.json"))
@click.option("--plan", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The sweep plan.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher runs first within the group.")
@common
def enqueue_sweep(call: Call, plan: Path, priority: int) -> None:
    """Queue every run of a sweep plan: all of them, or none. --workspace wins over the plan's."""
    from queueyard.runforge.service import open_sweep  # noqa: PLC0415

    forge, sweep = open_sweep(plan, call.named_workspace)
    put_in_queue(call, forge, sweep, priority)


def put_in_queue(call: Call, forge: RunForge, sweep: Sweep, priority: int) -> None:
    """The end of `enqueue-sweep` and of `sweep --enqueue`."""
    from queueyard.runforge.tokens import group_enqueued  # noqa: PLC0415

    jobs = forge.enqueue_sweep(sweep, priority=priority)
    for warning in forge.store.warnings:
        call.out.warn(warning)
    call.show(
        {"group_id": sweep.group_id, "workspace": str(forge.workspace.root), "runs": sweep.run_ids},
        f"Workspace: {forge.workspace.root}",
        f"Group: {sweep.plan.name}",
        f"Group ID: {sweep.group_id}",
        f"Enqueued {len(jobs)}/{len(sweep.run_ids)} runs",
        group_enqueued(sweep.group_id, len(jobs)),
    )


@click.command(
    "queue-status", epilog=examples("runforge-cli queue-status", "runforge-cli queue-status --watch", "... --json")
)
@click.option("--jobs", is_flag=True, help="List every job too.")
@click.option("--watch", is_flag=True, help="Show it again whenever it changes; Ctrl-C leaves.")
@common
def queue_status(call: Call, jobs: bool, watch: bool) -> None:
    """See the daemon, the groups with their progress and time to go, and what failed."""
    from queueyard.runforge.cli_status import show_status, watch_status  # noqa: PLC0415

    if watch:
        watch_status(call, with_jobs=jobs)
    else:
        show_status(call, with_jobs=jobs)


@click.command(
    epilog=examples(
        "runforge-cli wait grp_20260201_150000_mine", "runforge-cli wait my-run --timeout 2h || echo failed"
    )
)
@click.argument("target", metavar="GROUP|RUN|JOB")
@click.option("--timeout", metavar="TIME", help="Give up after this long, with exit code 124.")
@common
def wait(call: Call, target: str, timeout: str | None) -> None:
    """Wait until it is over. Exit code 0: all succeeded; 1: some failed; 5: some were canceled; 124: time is up."""
    from queueyard.runforge.errors import Canceled, RunFailed  # noqa: PLC0415

    if call.forge.status().daemon.state not in {"running", "stopping"}:
        call.out.warn("no daemon is running; start one: runforge-cli daemon")
    ends = call.forge.wait(target, timeout_s=seconds(timeout))
    told = ", ".join(f"{count} {state}" for state, count in ends.items() if count)
    call.show({"target": target, **ends}, f"{target}: {told}")
    if ends["failed"]:
        raise RunFailed(f"{ends['failed']} of {sum(ends.values())} failed", hint="See: runforge-cli queue-status")
    if ends["canceled"]:
        raise Canceled(f"{ends['canceled']} of {sum(ends.values())} were canceled")


@click.command(epilog=examples("runforge-cli logs my-run", "runforge-cli logs my-run --follow"))
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is over.")
@common
def logs(call: Call, run: str, follow: bool) -> None:
    """Show the log of a run, or of the run of a job."""
    path = call.forge.log_path(run)
    out = sys.stdout.buffer
    if follow:
        for data in call.forge.follow_log(run):
            out.write(data)
            out.flush()
    elif path.is_file():
        with path.open("rb") as stream:
            while data := stream.read(65_536):
                out.write(data)
    else:
        call.out.note("Nothing was logged yet.")
