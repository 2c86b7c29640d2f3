"""`queueyard events`: what happens in all places of the yard, in the order of time."""

from __future__ import annotations

from pathlib import Path
import sys
from typing import TYPE_CHECKING

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queueyard.kernel.events import Event

_DEFAULT_LIMIT = 20


@click.command(
    epilog=examples(
        "queueyard events", "queueyard events --follow", "queueyard events --since 2h --system jjq --json | jq .kind"
    )
)
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now, until Ctrl-C.")
@click.option(
    "-s",
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(["queen", "runforge", "panqueue", "jjq", "ops"]),
    help="Only this system; may be given several times.",
)
@click.option("--since", metavar="TIME", help="What happened after: 2h, 7d, 2026-01-31.")
@click.option("-n", "--limit", type=click.IntRange(0), help="Only the latest so many.  [default: 20, all with --since]")
@json_option
def events(follow: bool, systems: tuple[str, ...], since: str | None, limit: int | None, as_json: bool) -> None:
    """Show the events of all places of the yard, oldest first. With --json one object per line.

    Places are read as they are: a journal beside the state, the streams of a Redis (`panqueue events QUEUE --on`), the
    feed of an ops server. With --follow a place that goes away is told, and read on when it is back.
    """
    from queueyard.kernel.clock import SYSTEM_CLOCK, parse_since  # noqa: PLC0415
    from queueyard.yard import events as merged  # noqa: PLC0415
    from queueyard.yard.places import open_yard  # noqa: PLC0415

    out = Output(as_json=as_json)
    moment = parse_since(since, SYSTEM_CLOCK.now()) if since else None
    yard = open_yard(Path.cwd())
    places = [place for place in yard.places if not systems or place.system in systems]
    if not places:
        out.note(f"The yard {yard.root} has no such places. See: queueyard list")
        return
    most = _DEFAULT_LIMIT if limit is None and moment is None else limit
    try:
        listening = merged.Listening(places, note=out.warn, follow=follow)
        _print(out, merged.since(listening.history(), moment, most))
        for batch in listening.live() if follow else ():
            _print(out, batch)
    except KeyboardInterrupt:
        return


def _print(out: Output, events: Iterable[Event]) -> None:
    import msgspec  # noqa: PLC0415

    for event in events:
        out.text(msgspec.json.encode(event).decode() if out.as_json else line_of(event))
    sys.stdout.flush()


def line_of(event: Event) -> str:
    """One event for people, in one line."""
    from queueyard.kernel.output import printable  # noqa: PLC0415

    attempt = f"attempt {event.attempt}" if event.attempt > 1 else ""
    more = [attempt, event.group or "", event.actor or "", event.reason or ""]
    told = "  ".join(one for one in more if one).replace("\n", " ").replace("\t", " ")
    line = f"{event.at:<27}  {event.system:<8}  {event.kind:<10}  {event.queue}  {event.item}  {told}"
    return printable(line.rstrip())
