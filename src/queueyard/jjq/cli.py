"""The console script `jjq`: parse, call `Jjq`, print; nothing else. The commands are in the cli_* files."""

from __future__ import annotations

from typing import Any

import click

from queueyard.console import Script, examples, version_option
from queueyard.jjq.calls import common_before

_ITEMS = "queueyard.jjq.cli_items"
_RUN = "queueyard.jjq.cli_run"
_LOOK = "queueyard.jjq.cli_look"
_HOUSE = "queueyard.jjq.cli_house"

_LATER = {
    "push": (f"{_ITEMS}:push", "Queue a revision for merging to trunk."),
    "run": (f"{_RUN}:run", "Merge, check and land the next item, or all of them."),
    "status": (f"{_LOOK}:status", "Show the queue, or one item."),
    "wait": (f"{_ITEMS}:wait", "Wait until an item has landed or failed."),
    "retry": (f"{_ITEMS}:retry", "Queue a failed item again."),
    "requeue": (f"{_ITEMS}:retry", "The same as retry."),
    "delete": (f"{_ITEMS}:delete", "Take an item out of the queue or the failed items."),
    "check": (f"{_RUN}:check", "Run the check on a revision without queueing it."),
    "config": (f"{_HOUSE}:config", "Show and change the configuration."),
    "log": (f"{_LOOK}:log", "Show what happened, newest first."),
    "tail": (f"{_LOOK}:tail", "Follow the output of the running check."),
    "stats": (f"{_LOOK}:stats", "How many landed, how fast, how many failed."),
    "clean": (f"{_HOUSE}:clean", "Remove the workspaces of failed items."),
    "init": (f"{_HOUSE}:init", "Set up trunk and check explicitly."),
    "doctor": (f"{_HOUSE}:doctor", "Look for what is wrong, and mend it with --fix."),
}


@click.group(
    cls=Script,
    later=_LATER,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "jjq config check_command 'make test'",
        "jjq push @-",
        "jjq run --all --jobs 4",
        "jjq push @- --wait",
        "jjq status",
    ),
)
@version_option("jjq")
@common_before
@click.pass_context
def main(ctx: click.Context, /, **above: Any) -> None:
    """A local merge queue for the jj version control system.

    Finished revisions are queued; each is merged with trunk and checked, and trunk moves only if the check passes.
    All state is in jj bookmarks, so that other tools of the same format can work on the same queue.
    """
    ctx.obj = above


if __name__ == "__main__":
    main(prog_name="jjq")
