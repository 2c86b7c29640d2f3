"""`queueyard trace`: one piece of work across all systems."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from queueyard.yard.trace import Step


@click.command(
    epilog=examples("queueyard trace qy-1", "queueyard trace grp_20260201_slow", "queueyard trace jjq:7 --json")
)
@click.argument("item")
@json_option
def trace(item: str, as_json: bool) -> None:
    """Show what became of ITEM in all systems, oldest first.

    ITEM is an issue, or the id of a message, an assignment, a run, a group, a job, a change or a request; of changes
    and commits the first eight letters do. An item of the merge queue may be written as jjq:7. What belongs to it is
    told by the ids that the records carry, and by ids in subjects, names of groups and payloads. Events of one kind
    about one thing stand in one line; with --json all of them are there.
    """
    from queueyard.yard import trace as tracing  # noqa: PLC0415
    from queueyard.yard.places import open_yard  # noqa: PLC0415

    out = Output(as_json=as_json)
    found = tracing.trace(open_yard(Path.cwd()), item, note=out.warn)
    if as_json:
        out.data(found)
        return
    out.table(("SINCE", "SYSTEM", "WHAT", "TIMES", "ITEM", "WHO", "DETAILS"), [_row(step) for step in found.steps])


def _row(step: Step) -> tuple[object, ...]:
    what = f"{step.queue.removesuffix('s')} {step.kind}" if step.system == "queen" else step.kind
    return step.at, step.system, what, step.count, step.what, ", ".join(step.actors), "; ".join(step.details)
