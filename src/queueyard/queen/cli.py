"""The console script `queen`: parse, call `Queen`, print; nothing else. The commands are in the cli_* files."""

from __future__ import annotations

from typing import Any

import click

from queueyard.console import Script, examples, version_option
from queueyard.queen.calls import common_before

_MESSAGES = "queueyard.queen.cli_messages"
_ASSIGNMENTS = "queueyard.queen.cli_assignments"
_RESERVATIONS = "queueyard.queen.cli_reservations"
_HOUSE = "queueyard.queen.cli_house"

_LATER = {
    "msg": (f"{_MESSAGES}:msg", "Send, list, read, answer and search messages."),
    "assign": (f"{_ASSIGNMENTS}:assign", "Give an issue to an agent."),
    "claim": (f"{_ASSIGNMENTS}:claim", "Take an issue for yourself."),
    "next": (f"{_ASSIGNMENTS}:next_", "Claim the best ready issue."),
    "release": (f"{_ASSIGNMENTS}:release", "Give an issue back, unfinished."),
    "complete": (f"{_ASSIGNMENTS}:complete", "Say that the work on an issue is done."),
    "assignments": (f"{_ASSIGNMENTS}:assignments", "See who works on what."),
    "reserve": (f"{_RESERVATIONS}:reserve", "Ask others to keep out of files."),
    "renew": (f"{_RESERVATIONS}:renew", "Let reservations hold longer."),
    "unreserve": (f"{_RESERVATIONS}:unreserve", "Give reservations back."),
    "reserved": (f"{_RESERVATIONS}:reserved", "See what is reserved."),
    "conflicts": (f"{_RESERVATIONS}:conflicts", "See who is on the same files, and what to do."),
    "check": (f"{_RESERVATIONS}:check", "May I edit these files now?"),
    "guard": (f"{_RESERVATIONS}:guard", "A git hook that checks what is committed."),
    "whoami": (f"{_HOUSE}:whoami", "Who am I, and how does queen know?"),
    "droids": (f"{_HOUSE}:droids", "List the droids of the repository."),
    "config": (f"{_HOUSE}:config", "Show and change settings."),
    "watch": (f"{_HOUSE}:watch", "A live view of messages, assignments and reservations."),
    "doctor": (f"{_HOUSE}:doctor", "Check the files, and mend them with --fix."),
    "archive": (f"{_HOUSE}:archive", "Move settled old records to a dated file."),
    "index": (f"{_HOUSE}:index", "Rebuild or export the message index."),
    "mcp": (f"{_HOUSE}:mcp", "Serve the same verbs to agents over MCP (stdio)."),
}


@click.group(
    cls=Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "export QUEEN_AGENT=ui-engineer",
        "queen next",
        "queen reserve 'src/ui/**' --ttl 45m",
        "queen msg send queen 'Button is done' --issue qb-42",
        "queen msg wait",
    ),
)
@version_option("queen")
@common_before
@click.pass_context
def main(ctx: click.Context, /, **above: Any) -> None:
    """Messages, assignments and file reservations between agents.

    Everything is kept in the .beads folder of the repository, in files that git can carry and that other tools of the
    same format can read.
    """
    ctx.obj = above


if __name__ == "__main__":
    main(prog_name="queen")
