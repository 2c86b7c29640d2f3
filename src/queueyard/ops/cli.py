"""The console script `jolli-ops`: parse, call `Ops`, print; nothing else. The commands are in the cli_* files."""

from __future__ import annotations

from typing import Any

import click

from queueyard.console import Script, examples, version_option
from queueyard.ops.calls import common_before

_PUSH = "queueyard.ops.cli_push"
_QUEUE = "queueyard.ops.cli_queue"
_SERVER = "queueyard.ops.cli_server"

_LATER = {
    "plan": (f"{_PUSH}:plan", "Queue what changed in a folder, without sending it."),
    "push": (f"{_PUSH}:push", "Queue what changed, then send everything that is queued."),
    "resume": (f"{_PUSH}:resume", "Send what is queued, from the first unanswered batch on."),
    "status": (f"{_QUEUE}:status", "How much is queued, dead or in conflict."),
    "pending": (f"{_QUEUE}:pending", "Look at queued requests, or give one up."),
    "dead": (f"{_QUEUE}:dead", "Ops that could not be sent: list, retry, drop."),
    "pull": (f"{_PUSH}:pull", "Bring the changes of others into the folder."),
    "conflicts": (f"{_PUSH}:conflicts", "What was changed here and there, and whose text counts."),
    "serve": (f"{_SERVER}:serve", "Serve spaces to clients."),
    "space": (f"{_SERVER}:space", "See and make the spaces of a server."),
    "token": (f"{_SERVER}:token", "Make, list and revoke the tokens of a server."),
    "export": (f"{_SERVER}:export", "Write the change feed as JSONL segments."),
    "config": (f"{_QUEUE}:config", "Show the settings in force."),
    "doctor": (f"{_QUEUE}:doctor", "Check the queue, or a server's books."),
}


@click.group(
    cls=Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "jolli-ops serve --data jolli-data &",
        "jolli-ops push notes -m 'first version'",
        "jolli-ops resume",
        "jolli-ops status",
        "jolli-ops pull notes",
    ),
)
@version_option("jolli-ops")
@common_before
@click.pass_context
def main(ctx: click.Context, /, **above: Any) -> None:
    """Resumable pushes of file operations in durable batches, and the server that takes each of them once.

    What is queued is kept below ~/.jolli/ops (JOLLI_HOME), one folder per server, space and workspace.
    """
    ctx.obj = above


if __name__ == "__main__":
    main(prog_name="jolli-ops")
