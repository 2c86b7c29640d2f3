"""`queueyard status`: how every place of the yard is doing."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
import sys
from typing import TYPE_CHECKING

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.yard.records import Glance

_COLUMNS = ("SYSTEM", "PLACE", "WAITING", "RUNNING", "FAILED", "OLDEST WAIT", "HEALTH")
_ENTER, _LEAVE, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"


@click.command(epilog=examples("queueyard status", "queueyard status --watch", "queueyard status --json"))
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("-i", "--interval", default="2s", show_default=True, metavar="TIME", help="With --watch: so often.")
@json_option
def status(watch: bool, interval: str, as_json: bool) -> None:
    """Show what waits, runs and failed in every place of the yard, and whether somebody serves it.

    A `!` before the health says that somebody should look: work waits that nobody serves, or the place cannot be
    looked at. Exit code 0 in any case.
    """
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.yard.places import open_yard  # noqa: PLC0415
    from queueyard.yard.status import glances  # noqa: PLC0415

    out = Output(as_json=as_json)
    every_s = parse_duration(interval).total_seconds()
    if watch:
        _watch(out, every_s)
        return
    yard = open_yard(Path.cwd())
    found = glances(yard)
    if as_json:
        out.data(found)
    elif found:
        _draw(out, found)
    else:
        out.note(f"The yard {yard.root} has no places. Add one: queueyard add queen .")


def _watch(out: Output, every_s: float) -> None:
    """In place on a terminal, else one view after the other; the yard itself is read anew each time."""
    import msgspec  # noqa: PLC0415

    from queueyard.kernel.clock import SYSTEM_CLOCK  # noqa: PLC0415
    from queueyard.yard.places import open_yard  # noqa: PLC0415
    from queueyard.yard.status import glances  # noqa: PLC0415

    in_place = sys.stdout.isatty() and not out.as_json
    sys.stdout.write(_ENTER if in_place else "")
    try:
        while True:
            found = glances(open_yard(Path.cwd()))
            if out.as_json:
                sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
            else:
                sys.stdout.write(_HOME if in_place else "")
                _draw(out, found)
            sys.stdout.flush()
            SYSTEM_CLOCK.sleep(every_s)
    except KeyboardInterrupt:
        return
    finally:
        sys.stdout.write(_LEAVE if in_place else "")


def _draw(out: Output, found: Sequence[Glance]) -> None:
    out.table(_COLUMNS, [_row(one) for one in found])
    for one in found:
        if one.problem:
            out.note(f"-> {one.system} {one.at}: {one.problem}")


def _row(one: Glance) -> tuple[object, ...]:
    from queueyard.kernel.clock import format_duration  # noqa: PLC0415

    oldest = None if one.oldest_wait_s is None else format_duration(timedelta(seconds=one.oldest_wait_s))
    numbers = (None, None, None) if one.problem else (one.waiting, one.running, one.failed)
    return (one.system, one.at, *numbers, oldest, one.health if one.is_well else f"! {one.health}")
