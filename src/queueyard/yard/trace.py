"""One piece of work across all systems: from the issue to the assignment, the run, the change, trunk and the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import Event, Kind, System
from queueyard.yard.events import Listening
from queueyard.yard.labels import labels_of
from queueyard.yard.links import Link, link_of, together
from queueyard.yard.places import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from queueyard.yard.places import Place, Yard


#: systems whose groups are one thing: a sweep, a request
_TOLD_BY_GROUP = frozenset({System.RUNFORGE, System.OPS})
_MOST_DETAILS = 3


class UnknownWork(QueueyardError):
    """Nothing in the yard is called like that."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Events of one kind about one thing, told at once: ten batches of a request, six runs of a group."""

    #: of the first of them
    at: str
    system: System
    queue: str
    kind: Kind
    #: the group, request or issue where it has one, else the item
    what: str
    count: int
    actors: list[str]
    #: texts of the events, each once
    details: list[str]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that belongs to one piece of work."""

    item: str
    #: in the order of their first event
    steps: list[Step]
    #: system -> the ids that belong to it there, in the order in which they occur
    ids: dict[System, list[str]]
    #: oldest first
    events: list[Event]


def trace(yard: Yard, item: str, *, note: Callable[[str], None]) -> Trace:
    """What belongs to an issue, assignment, message, run, group, job, change or request. UnknownWork."""
    events = Listening(yard.places, note=note).history()
    labels = [link for place in yard.places for link in _labels(place, note)]
    found = together(item, [*map(link_of, events), *labels])
    mine = [event for number, event in enumerate(events) if number in found]
    if not mine:
        raise UnknownWork(f"nothing in the yard carries the id {item!r}", hint="See what there is: queueyard events")
    return Trace(item=item, steps=steps(mine), ids=_ids(mine), events=mine)


def steps(events: Sequence[Event]) -> list[Step]:
    """The events, those of one kind about one thing together."""
    together: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        what = event.group if event.system in _TOLD_BY_GROUP and event.group else event.item
        together.setdefault((event.system, event.source, event.queue, event.kind, what), []).append(event)
    return [_step(what, several) for (*_, what), several in together.items()]


def _step(what: object, events: Sequence[Event]) -> Step:
    first = events[0]
    texts = [text for event in events for text in _texts(event)]
    return Step(
        at=first.at,
        system=first.system,
        queue=first.queue,
        kind=first.kind,
        what=str(what),
        count=len(events),
        actors=list(dict.fromkeys(event.actor for event in events if event.actor)),
        details=list(dict.fromkeys(texts))[:_MOST_DETAILS],
    )


def _texts(event: Event) -> Iterator[str]:
    """What a person wants to read of an event, beside its names."""
    own_group = event.group if event.system not in _TOLD_BY_GROUP else None
    for text in (own_group, *(event.data.get(name) for name in ("pattern", "subject", "message")), event.reason):
        if isinstance(text, str) and text:
            yield text


def _labels(place: Place, note: Callable[[str], None]) -> Iterator[Link]:
    try:
        yield from labels_of(place)
    except QueueyardError as fault:
        note(f"{place.system} {shown(place)}: {fault}")


def _ids(events: Sequence[Event]) -> dict[System, list[str]]:
    found: dict[System, dict[str, None]] = {}
    for event in events:
        names = found.setdefault(event.system, {})
        names |= dict.fromkeys(name for name in (event.group, event.item, event.data.get("change")) if name)
    return {system: list(names) for system, names in found.items()}
