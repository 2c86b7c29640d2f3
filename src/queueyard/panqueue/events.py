"""One entry of a queue's event stream, told as the shared Event. Pure.

The scripts write an entry for every transition of a queue whose events are switched on (`{q:<id>}:events`, bounded).
The id of an event follows from the entry's own id, so that an entry that is read twice is still the same event.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from queueyard.kernel.events import Event, Kind, System, make_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def events_from(entries: Iterable[Sequence[Any]], *, source: str, queue: str) -> Iterator[tuple[str, Event]]:
    """(entry id, event) of each entry as XRANGE gives them; an entry of a kind that we do not know is left out."""
    for raw_id, flat in entries:
        entry_id = raw_id.decode()
        event = event_from(entry_id, _fields(flat or ()), source=source, queue=queue)
        if event is not None:
            yield entry_id, event


def event_from(entry_id: str, fields: dict[str, str], *, source: str, queue: str) -> Event | None:
    """The event that one entry tells; None if it is none of ours."""
    try:
        kind = Kind(fields.get("kind", ""))
        at = _EPOCH + timedelta(milliseconds=int(entry_id.partition("-")[0]))
    except (ValueError, OverflowError):
        return None
    more = {name: fields[name] for name in ("group", "actor", "reason") if fields.get(name)}
    return make_event(
        at,
        system=System.PANQUEUE,
        queue=queue,
        item=fields.get("item", ""),
        kind=kind,
        change=entry_id,
        source=source,
        attempt=_attempt(fields.get("attempt", "")),
        **more,
    )


def _attempt(text: str) -> int:
    return max(1, int(text)) if text.isdecimal() else 1


def _fields(flat: Sequence[bytes]) -> dict[str, str]:
    items = iter(flat)
    return {name.decode("utf-8", "replace"): next(items).decode("utf-8", "replace") for name in items}
