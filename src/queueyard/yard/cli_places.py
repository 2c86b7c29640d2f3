"""`queueyard add`, `remove` and `list`: which places are in my yard."""

from __future__ import annotations

from pathlib import Path

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output

_SYSTEM = click.argument("system", type=click.Choice(["queen", "runforge", "panqueue", "jjq", "ops"]))


@click.command(
    epilog=examples(
        "queueyard add queen .",
        "queueyard add runforge ../lab",
        "queueyard add jjq ~/src/repo",
        "queueyard add panqueue redis://127.0.0.1:6379/0",
        "queueyard add ops http://127.0.0.1:3001#docs,notes",
        "queueyard add ops ~/.jolli",
    )
)
@_SYSTEM
@click.argument("at")
@json_option
def add(system: str, at: str, as_json: bool) -> None:
    """Add a place of SYSTEM to the yard: the folder or the URL AT.

    The list is queueyard.toml, in this folder or the first one above that has it. What stands in the folder of that
    file itself is found without being listed. Adding a place twice changes nothing.
    """
    _change(system, at, adding=True, as_json=as_json)


@click.command(epilog=examples("queueyard remove panqueue redis://127.0.0.1:6379/0", "queueyard remove queen ."))
@_SYSTEM
@click.argument("at")
@json_option
def remove(system: str, at: str, as_json: bool) -> None:
    """Take the place AT of SYSTEM off the list of the yard. What is in that place stays as it is."""
    _change(system, at, adding=False, as_json=as_json)


@click.command("list", epilog=examples("queueyard list", "queueyard list --json"))
@json_option
def list_places(as_json: bool) -> None:
    """List the places of the yard: those in queueyard.toml, and what stands in its folder."""
    from queueyard.yard.places import YARD_FILE, listed_places, open_yard, shown  # noqa: PLC0415

    out = Output(as_json=as_json)
    yard = open_yard(Path.cwd())
    listed = listed_places(Path(yard.root))
    told = [{"system": one.system, "at": shown(one), "listed": one in listed} for one in yard.places]
    if as_json:
        out.data({"root": yard.root, "places": told})
        return
    if told:
        rows = [(one["system"], one["at"], YARD_FILE if one["listed"] else "found here") for one in told]
        out.table(("SYSTEM", "PLACE", "WHERE FROM"), rows)
    else:
        out.note(f"The yard {yard.root} has no places. Add one: queueyard add queen .")


def _change(system: str, at: str, *, adding: bool, as_json: bool) -> None:
    from queueyard.kernel.events import System  # noqa: PLC0415
    from queueyard.yard import places  # noqa: PLC0415

    out = Output(as_json=as_json)
    cwd = Path.cwd()
    root = Path(places.open_yard(cwd).root)
    place = places.place_at(System(system), at, cwd=cwd)
    changed = places.add(root, place) if adding else places.remove(root, place)
    at_shown = places.shown(place)
    if as_json:
        out.data({"root": str(root), "system": system, "at": at_shown, "changed": changed})
        return
    done = ("added" if changed else "is listed already") if adding else ("removed" if changed else "is not listed")
    out.text(f"{system} {at_shown}: {done}")
    if not adding and not changed:
        out.note("See what is: queueyard list")
