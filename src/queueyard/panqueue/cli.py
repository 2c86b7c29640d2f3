"""The console script `panqueue`: parse, call service, print; nothing else. The commands are in the cli_* files."""

from __future__ import annotations

from typing import Any

import click

from queueyard.console import Script, examples, version_option
from queueyard.panqueue.calls import common_before

_JOBS = "queueyard.panqueue.cli_jobs"
_QUEUES = "queueyard.panqueue.cli_queues"
_WATCH = "queueyard.panqueue.cli_watch"
_SCHEDULES = "queueyard.panqueue.cli_schedules"
_HOUSE = "queueyard.panqueue.cli_house"
_SANDBOX = "queueyard.panqueue.cli_sandbox"

_LATER = {
    "worker": (f"{_HOUSE}:worker", "Run jobs: MODULE:OBJECT is a Worker, a WorkerPool or Tasks."),
    "enqueue": (f"{_JOBS}:enqueue", "Add jobs."),
    "status": (f"{_QUEUES}:status", "See all queues, or some."),
    "jobs": (f"{_JOBS}:jobs", "List the jobs of a queue."),
    "job": (f"{_JOBS}:job", "See one job."),
    "retry": (f"{_JOBS}:retry", "Run failed jobs again."),
    "cancel": (f"{_JOBS}:cancel", "Cancel jobs, whatever they are doing."),
    "logs": (f"{_JOBS}:logs", "See what the handlers of a job have logged."),
    "redrive": (f"{_JOBS}:redrive", "Send dead letters back to where they failed."),
    "remove": (f"{_JOBS}:remove", "Remove jobs that are not running."),
    "schedule": (f"{_SCHEDULES}:schedule", "Repeat a job by a cron line or an interval."),
    "schedules": (f"{_SCHEDULES}:schedules", "See, pause, resume and remove repeated jobs."),
    "pause": (f"{_QUEUES}:pause", "Let nothing more be claimed from a queue."),
    "resume": (f"{_QUEUES}:resume", "Let a paused queue go on."),
    "drain": (f"{_QUEUES}:drain", "Remove every waiting job."),
    "clean": (f"{_QUEUES}:clean", "Remove old completed or failed jobs."),
    "obliterate": (f"{_QUEUES}:obliterate", "Remove a queue with everything in it."),
    "rate": (f"{_QUEUES}:rate", "Limit how many jobs may start in which time."),
    "key-limit": (f"{_QUEUES}:key_limit", "Give one key of a dynamic queue its own limit."),
    "events": (f"{_QUEUES}:events", "Record every transition, and see what was recorded."),
    "top": (f"{_WATCH}:top", "Watch queues and running jobs, live."),
    "metrics": (f"{_WATCH}:metrics", "Print or serve the state of queues for Prometheus."),
    "sandbox": (f"{_SANDBOX}:sandbox", "See what a sandboxed handler could do on this machine."),
    "serve": (f"{_HOUSE}:serve", "Run the embedded Valkey."),
    "doctor": (f"{_HOUSE}:doctor", "Check the server and the queues, and mend them with --fix."),
}


@click.group(
    cls=Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        'panqueue enqueue emails \'{"to": "a@example.org"}\'',
        "panqueue worker my_app:tasks",
        "panqueue status --watch",
        "panqueue jobs emails --state failed",
        "panqueue retry emails --all",
    ),
)
@version_option("panqueue")
@common_before
@click.pass_context
def main(ctx: click.Context, /, **above: Any) -> None:
    """Background jobs on Redis or Valkey.

    The server is the one in REDIS_URL. Where none is given, an embedded Valkey is used; it is started when it is needed
    and keeps its data in one folder.
    """
    ctx.obj = above


if __name__ == "__main__":
    main(prog_name="panqueue")
