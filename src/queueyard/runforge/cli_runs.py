"""`daemon`, `run`, `sweep`: what executes."""

from __future__ import annotations

import os
from pathlib import Path
import sys

import click

from queueyard.console import examples
from queueyard.runforge.calls import Call, common, say


@click.command(
    epilog=examples(
        "runforge-cli daemon --workspace . --max-parallel 4",
        "runforge-cli daemon --on-group-end 'notify-send sweep-done'",
        "runforge-cli daemon --gpu-slots 2 --job-timeout 6h",
    )
)
@click.option("--max-parallel", type=int, help="How many runs at once.  [default: 2]")
@click.option("--gpu-slots", type=int, help="How many of them may hold a GPU.  [default: 1]")
@click.option("--policy", metavar="NAME", help="fair, or contract-v1 for the literal steps of the contract.")
@click.option("--job-timeout", metavar="TIME", help="End an attempt that takes longer.  [default: no limit]")
@click.option("--grace", metavar="TIME", help="How long to wait for running jobs when asked to stop.  [default: 60s]")
@click.option("--executor", metavar="NAME", help="panqueue: workers on other machines run them.  [default: local]")
@click.option("--on-group-end", metavar="COMMAND", help="Start this when a group has ended; it is not a shell.")
@click.option("--pass-env", metavar="NAMES", help="Give runs these variables although they look like secrets.")
@common
def daemon(
    call: Call,
    max_parallel: int | None,
    gpu_slots: int | None,
    policy: str | None,
    job_timeout: str | None,
    grace: str | None,
    executor: str | None,
    on_group_end: str | None,
    pass_env: str | None,
) -> None:
    """Run queued jobs until SIGINT or SIGTERM: then nothing new is started, and what runs may finish.

    A second signal, or the end of the grace, ends what runs and hands it back to the queue.
    """
    from queueyard.kernel.clock import SYSTEM_CLOCK, to_rfc3339  # noqa: PLC0415
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.runforge.calls import seconds  # noqa: PLC0415
    from queueyard.runforge.worker import Daemon  # noqa: PLC0415

    call.flags = {
        "max_parallel": max_parallel,
        "gpu_slots": gpu_slots,
        "policy": policy,
        "job_timeout_s": seconds(job_timeout),
        "shutdown_grace_s": seconds(grace),
        "executor": executor,
        "on_group_end": on_group_end,
        "pass_env": pass_env,
    }
    forge = call.forge
    forge.store.actor = "daemon"

    def complain(text: str) -> None:
        call.out.note(f"{to_rfc3339(SYSTEM_CLOCK.now())} {text}")

    lifecycle = Lifecycle()
    with lifecycle.on_signals():
        Daemon(
            forge.store,
            forge.groups,
            forge.settings,
            environment=os.environ,
            say=say,
            complain=complain,
            lifecycle=lifecycle,
        ).run()


@click.command(epilog=examples("runforge-cli run --run-dir .ml/runs/my-run", "runforge-cli run --run-dir R --dry-run"))
@click.option("--run-dir", required=True, type=click.Path(path_type=Path), metavar="PATH", help="Holds request.json.")
@click.option("--workspace", type=click.Path(path_type=Path), metavar="PATH", help="Else found from the run folder.")
@click.option("--dry-run", is_flag=True, help="Check everything, but do not train or start anything.")
@click.option("--max-rows", type=click.IntRange(min=1), help="Read only so many rows of the data set.")
def run(run_dir: Path, workspace: Path | None, dry_run: bool, max_rows: int | None) -> None:
    """Execute one run here. Exit code 0: succeeded; 1: failed; 2: invalid request; 3: missing files; 5: canceled."""
    from queueyard.runforge.foreground import run_here  # noqa: PLC0415

    run_here(run_dir, workspace, dry_run=dry_run, max_rows=max_rows, environment=os.environ)


@click.command(epilog=examples("runforge-cli sweep --plan plan.json", "runforge-cli sweep --plan plan.json --enqueue"))
@click.option("--plan", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The sweep plan.")
@click.option("--enqueue", is_flag=True, help="Leave the runs to the daemon.")
@common
def sweep(call: Call, plan: Path, enqueue: bool) -> None:
    """Run a sweep plan here, as many runs at once as it says; Ctrl-C cancels it.

    Exit code 0: all succeeded; 1: some failed; 5: canceled; 6: the plan is invalid.
    """
    from queueyard.runforge.service import open_sweep  # noqa: PLC0415

    forge, made = open_sweep(plan, call.named_workspace)
    if enqueue:
        from queueyard.runforge.cli_queue import put_in_queue  # noqa: PLC0415

        put_in_queue(call, forge, made, priority=0)
        return
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.runforge.direct import DirectSweep  # noqa: PLC0415
    from queueyard.runforge.errors import Canceled, RunFailed  # noqa: PLC0415

    lifecycle = Lifecycle()
    with lifecycle.on_signals():
        group = DirectSweep(
            made,
            forge.groups,
            forge.settings,
            clock=forge.clock,
            environment=os.environ,
            say=(lambda _: None) if call.as_json else say,
            lifecycle=lifecycle,
        ).run()
    if call.as_json:
        call.out.data(group)
        sys.stdout.flush()
    summary, hint = group["summary"], f"See: {forge.workspace.group_file(made.group_id)}"
    if not lifecycle.running:
        raise Canceled(f"the sweep was canceled after {summary['succeeded']} of {summary['total']} runs", hint=hint)
    if summary["failed"]:
        raise RunFailed(f"{summary['failed']} of {summary['total']} runs failed", hint=hint)
