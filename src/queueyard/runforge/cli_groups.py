"""`pause-group`, `resume-group`, `retry-failed`, `cancel-group`: what is done to a group (spec: Group Controls)."""

from __future__ import annotations

import click

from queueyard.console import examples
from queueyard.runforge.calls import Call, common

_group_option = click.option("--group-id", required=True, metavar="ID", help="The group, as queue-status shows it.")


@click.command("pause-group", epilog=examples("runforge-cli pause-group --group-id grp_20260201_150000_mine"))
@_group_option
@common
def pause_group(call: Call, group_id: str) -> None:
    """Start no further job of the group; what runs goes on."""
    from queueyard.runforge.tokens import group_paused  # noqa: PLC0415

    changed = call.forge.pause_group(group_id)
    told = f"Paused group {group_id}" if changed else f"Group {group_id} is already paused"
    call.show({"group_id": group_id, "paused": True, "changed": changed}, told, group_paused(group_id))


@click.command("resume-group", epilog=examples("runforge-cli resume-group --group-id grp_20260201_150000_mine"))
@_group_option
@common
def resume_group(call: Call, group_id: str) -> None:
    """Start jobs of the group again."""
    from queueyard.runforge.tokens import group_resumed  # noqa: PLC0415

    changed = call.forge.resume_group(group_id)
    told = f"Resumed group {group_id}" if changed else f"Group {group_id} is not paused"
    call.show({"group_id": group_id, "paused": False, "changed": changed}, told, group_resumed(group_id))


@click.command("retry-failed", epilog=examples("runforge-cli retry-failed --group-id grp_20260201_150000_mine"))
@_group_option
@common
def retry_failed(call: Call, group_id: str) -> None:
    """Queue the failed runs of the group again. Doing it twice queues nothing twice."""
    jobs = call.forge.retry_failed(group_id)
    if jobs:
        lines = [f"Re-enqueued {len(jobs)} failed runs in group {group_id}"]
        lines += [f"  {job.run_id} -> {job.job_id} (attempt {job.attempt})" for job in jobs]
    else:
        lines = [f"No failed runs to retry in group {group_id}"]
    call.show(jobs, *lines)


@click.command(
    "cancel-group",
    epilog=examples(
        "runforge-cli cancel-group --group-id grp_20260201_150000_mine",
        "runforge-cli cancel-group --group-id grp_20260201_150000_mine --running",
    ),
)
@_group_option
@click.option("--running", is_flag=True, help="Also end what runs: TERM, five seconds, KILL.")
@common
def cancel_group(call: Call, group_id: str, running: bool) -> None:
    """Cancel what is queued in the group; what runs goes on unless --running is given."""
    jobs = call.forge.cancel_group(group_id, running=running)
    what = "queued and running" if running else "queued"
    told = f"Canceled {len(jobs)} {what} runs" if jobs else f"No {what} runs to cancel"
    call.show([job.job_id for job in jobs], f"{told} in group {group_id}")
