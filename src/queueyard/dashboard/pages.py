"""What each page shows, gathered before anything is drawn: no HTML here, and no rule of any system.

Everything here blocks, and is called in a thread.
"""

from __future__ import annotations

from hashlib import sha256
from importlib import import_module
import logging
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.dashboard.errors import NotFound
from queueyard.dashboard.panels import PANELS
from queueyard.dashboard.panels.shapes import Action, Panel
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import System
from queueyard.yard.places import Place, Yard, shown

if TYPE_CHECKING:
    from queueyard.yard.details.parts import Log, Part, Wanted

_log = logging.getLogger("queueyard.dashboard")
#: rows per table, unless somebody asks for more
USUAL_LIMIT = 50
LARGEST_LIMIT = 1_000
#: details that are one value and no table: field -> how it is called
_FACTS = {"fairness": "Fairness (Jain)", "trunk": "Trunk"}


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """A button."""

    action: Action
    target: list[str]


class RowView(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table."""

    #: the same as long as it is the same row, so that the focus stays where it is
    key: str
    row: Any
    doings: list[Doing]
    #: what its log is called; None if it has none
    log: str | None


class PanelView(msgspec.Struct, frozen=True, kw_only=True):
    panel: Panel
    rows: list[RowView]
    total: int


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a system."""

    key: str
    system: System
    #: without a password
    at: str
    facts: list[tuple[str, Any]]
    panels: list[PanelView]
    #: why it cannot be shown
    problem: str | None = None


def key_of(place: Place) -> str:
    """A name for addresses; the place itself may hold a password."""
    return sha256(f"{place.system} {place.at}".encode()).hexdigest()[:12]


def place_of(yard: Yard, key: str) -> Place:
    """The place that a key means. NotFound."""
    for place in yard.places:
        if key_of(place) == key:
            return place
    raise NotFound("That place is not in the yard.", hint="See what is: queueyard list")


def system_of(name: str) -> System:
    """NotFound if there is no such system."""
    try:
        return System(name)
    except ValueError as fault:
        raise NotFound("There is no such system.", hint="See all: queueyard status") from fault


def sections(yard: Yard, system: System, wanted: Wanted, only: str = "") -> list[Section]:
    """Every place of a system, or the one that is named by its key."""
    places = [place for place in yard.places if place.system is system and only in {"", key_of(place)}]
    return [section(place, wanted) for place in places]


def section(place: Place, wanted: Wanted) -> Section:
    """One place; one that cannot be looked at says why."""
    try:
        details = _details_of(place.system).look(place.at, wanted)
    except (QueueyardError, OSError) as fault:
        hint = getattr(fault, "hint", None)
        return _unseen(place, f"{fault}. {hint}" if hint else str(fault))
    except Exception:  # noqa: BLE001  the other places are to be seen all the same
        _log.exception("%s cannot be shown", shown(place))
        return _unseen(place, "It cannot be shown; where the dashboard was started it is said why.")
    return Section(
        key=key_of(place),
        system=place.system,
        at=shown(place),
        facts=[(label, value) for name, label in _FACTS.items() if (value := getattr(details, name, None)) is not None],
        # A place of one system need not have all its parts: a client of ops knows nothing of what its server did.
        panels=[
            _panel_view(panel, getattr(details, panel.name))
            for panel in PANELS[place.system]
            if hasattr(details, panel.name)
        ],
    )


def _unseen(place: Place, problem: str) -> Section:
    return Section(key=key_of(place), system=place.system, at=shown(place), facts=[], panels=[], problem=problem)


def log_of(place: Place, item: str) -> Log:
    """The end of a log. NotFound if this system has none, errors of the system."""
    read = getattr(_details_of(place.system), "log", None)
    if read is None:
        raise NotFound(f"{place.system} keeps no logs.", hint=f"See: queueyard {place.system} -h")
    found: Log = read(place.at, item)
    return found


def _details_of(system: System) -> Any:
    return import_module(f"queueyard.yard.details.{system}")


def _panel_view(panel: Panel, part: Part[Any]) -> PanelView:
    return PanelView(panel=panel, rows=[_row_view(panel, row) for row in part.rows], total=part.total)


def _row_view(panel: Panel, row: Any) -> RowView:
    first = [str(getattr(row, column.name)) for column in panel.columns[:4]]
    has_log = panel.log is not None and getattr(row, "has_log", True)
    return RowView(
        key=sha256("\0".join([panel.name, *first]).encode("utf-8", "surrogatepass")).hexdigest()[:12],
        row=row,
        doings=[
            Doing(action=action, target=[str(getattr(row, name)) for name in action.target])
            for action in panel.actions
            if action.when(row)
        ],
        log=str(getattr(row, panel.log)) if panel.log and has_log else None,
    )
