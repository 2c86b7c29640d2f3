"""The console script `runforge-cli`: parse, call `RunForge`, print. The commands are in the cli_* files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples, fail, version_option
from queueyard.kernel.errors import QueueyardError

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUEUE = "queueyard.runforge.cli_queue"
_GROUPS = "queueyard.runforge.cli_groups"
_RUNS = "queueyard.runforge.cli_runs"
_HOUSE = "queueyard.runforge.cli_house"

_LATER = {
    "daemon": (f"{_RUNS}:daemon", "Run queued jobs until it is told to stop."),
    "run": (f"{_RUNS}:run", "Execute one run in the foreground."),
    "sweep": (f"{_RUNS}:sweep", "Run a sweep plan at once, or queue it with --enqueue."),
    "enqueue-run": (f"{_QUEUE}:enqueue_run", "Queue one run."),
    "enqueue-sweep": (f"{_QUEUE}:enqueue_sweep", "Queue every run of a sweep plan."),
    "queue-status": (f"{_QUEUE}:queue_status", "See how the queue stands."),
    "wait": (f"{_QUEUE}:wait", "Wait for a group, a run or a job; the exit code tells how it ended."),
    "logs": (f"{_QUEUE}:logs", "Show the log of a run."),
    "pause-group": (f"{_GROUPS}:pause_group", "Start no further job of a group."),
    "resume-group": (f"{_GROUPS}:resume_group", "Start jobs of a group again."),
    "retry-failed": (f"{_GROUPS}:retry_failed", "Queue the failed runs of a group again."),
    "cancel-group": (f"{_GROUPS}:cancel_group", "Cancel what is queued in a group."),
    "prune": (f"{_HOUSE}:prune", "Take jobs that ended long ago out of the queue."),
    "config": (f"{_HOUSE}:config", "Show the settings, and where each comes from."),
    "doctor": (f"{_HOUSE}:doctor", "Check the files, and mend them with --fix."),
}


class _Script(Script):
    """As all our scripts, but an error is a line with `ERROR:`, because RunForge Desktop looks for that."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        try:
            return click.Group.main(self, words, *rest, **kwargs)
        except QueueyardError as fault:
            if "--json" in words:
                fail(fault, as_json=True)
            click.echo(f"ERROR: {fault}", err=True)
            if fault.hint:
                click.echo(f"Hint: {fault.hint}", err=True)
            sys.exit(fault.exit_code)


@click.group(
    cls=_Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "runforge-cli daemon --max-parallel 4 &",
        "runforge-cli enqueue-sweep --plan plan.json",
        "runforge-cli queue-status --watch",
        "runforge-cli wait grp_20260201_150000_mine && echo done",
        "runforge-cli retry-failed --group-id grp_20260201_150000_mine",
    ),
)
@version_option("runforge-cli")
def main() -> None:
    """An execution queue for experiment runs and sweeps, fair by group.

    The queue is in .runforge/queue of the workspace, the runs are in .ml/runs, in the files that RunForge Desktop
    reads.
    """


if __name__ == "__main__":
    main(prog_name="runforge-cli")
