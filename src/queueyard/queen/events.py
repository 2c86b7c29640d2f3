"""A change of one of queen's records, told as the shared Event. Pure.

queen's files are their own journal: every line is a change. The id of an event follows from the record, from what
happened and from the times in it, never from where the line stands; so a line that is read twice, archived or carried
by git to another machine is still the same event.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.kernel.events import Event, Kind, System, make_event
from queueyard.kernel.ids import ulid_time
from queueyard.queen.records import Assignment, Message, Raw, Reservation, fits, is_migration, view
from queueyard.queen.rules import fold, moment_of, owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ENDS = {"completed": Kind.SUCCEEDED, "released": Kind.RELEASED, "reassigned": Kind.CANCELED, "expired": Kind.EXPIRED}


def message_events(lines: Iterable[Raw], *, source: str) -> Iterator[Event]:
    """Queued when it is sent, then read and deleted; each once."""
    return _events(lines, message_fold(source))


def assignment_events(lines: Iterable[Raw], *, source: str) -> Iterator[Event]:
    """Started when it becomes active, then succeeded, released or canceled (reassigned)."""
    return _events(lines, assignment_fold(source))


def reservation_events(lines: Iterable[Raw], *, source: str) -> Iterator[Event]:
    """Started when it is made, renewed when its end moves, then released or expired.

    An expiry that nobody wrote down is not an event: it follows from `data.expires_at`.
    """
    return _events(lines, reservation_fold(source))


def message_fold(source: str) -> EventFold:
    return EventFold(Message, _of_message, queue="messages", source=source)


def assignment_fold(source: str) -> EventFold:
    return EventFold(Assignment, _of_assignment, queue="assignments", source=source)


def reservation_fold(source: str) -> EventFold:
    return EventFold(Reservation, _of_reservation, queue="reservations", source=source)


#: (kind, when it happened, what tells it from the same kind of change of the same item, further fields)
_Change = tuple[Kind, str, str, dict[str, Any]]


class EventFold:
    """The events of one file, line by line, for whoever follows it while it grows."""

    def __init__(
        self,
        shape: type[Message | Assignment | Reservation],
        changes: Callable[[Raw, Raw], Iterator[_Change]],
        *,
        queue: str,
        source: str,
    ) -> None:
        self._shape = shape
        self._changes = changes
        self._queue = queue
        self._source = source
        self._folded: dict[str, Raw] = {}
        self._told: set[tuple[str, Kind, str]] = set()

    def take(self, line: Raw) -> Iterator[Event]:
        """What the next line changes; nothing for one that was taken before."""
        if is_migration(line) or not fits(line, self._shape):
            return
        item: str = line["id"]
        before = self._folded.get(item, {})
        self._folded[item] = fold(before or None, line)
        for kind, when, change, fields in self._changes(before, self._folded[item]):
            if (item, kind, change) in self._told:
                continue
            self._told.add((item, kind, change))
            known = {name: value for name, value in fields.items() if value}
            yield make_event(
                _moment(when, item),
                system=System.QUEEN,
                queue=self._queue,
                item=item,
                kind=kind,
                change=change,
                source=self._source,
                **known,
            )


def _events(lines: Iterable[Raw], folded: EventFold) -> Iterator[Event]:
    for line in lines:
        yield from folded.take(line)


def _of_message(before: Raw, after: Raw) -> Iterator[_Change]:
    message = view(after, Message)
    fields = {"group": message.issue_id or message.thread_id}
    if not before:
        data = {"to": message.to, "importance": message.importance}
        yield Kind.QUEUED, message.created_at, "sent", {**fields, "actor": message.sender, "data": data}
    if message.read and not before.get("read"):
        yield Kind.READ, message.read_at or message.created_at, "read", {**fields, "actor": message.to}
    if message.deleted and not before.get("deleted"):
        yield Kind.DELETED, message.deleted_at or message.created_at, "deleted", {**fields, "actor": message.sender}


def _of_assignment(before: Raw, after: Raw) -> Iterator[_Change]:
    assignment = view(after, Assignment)
    fields = {"group": assignment.issue_id, "actor": owner_of(assignment), "reason": assignment.reason}
    if not before:
        data = {"assigned_by": assignment.assigned_by, "previous": assignment.previous_agent}
        yield Kind.STARTED, assignment.created_at, "assigned", {**fields, "data": {k: v for k, v in data.items() if v}}
    if assignment.status in _ENDS and before.get("status") != assignment.status:
        yield _ENDS[assignment.status], assignment.updated_at, str(assignment.status), fields


def _of_reservation(before: Raw, after: Raw) -> Iterator[_Change]:
    reservation = view(after, Reservation)
    fields = {
        "group": reservation.issue_id,
        "actor": owner_of(reservation),
        "reason": reservation.reason,
        "data": {
            "pattern": reservation.pattern,
            "exclusive": reservation.exclusive,
            "expires_at": reservation.expires_at,
        },
    }
    if not before:
        yield Kind.STARTED, reservation.created_at, "reserved", fields
    elif (
        moment_of(reservation.expires_at) > moment_of(str(before.get("expires_at"))) and reservation.status not in _ENDS
    ):
        # Only ever later: an old line that git has brought in again renews nothing.
        # Other tools do not write down when; then it is told at the start.
        yield Kind.RENEWED, reservation.renewed_at or reservation.created_at, reservation.expires_at, fields
    if reservation.status in _ENDS and before.get("status") != reservation.status:
        when = reservation.released_at or reservation.expires_at
        yield _ENDS[reservation.status], when, str(reservation.status), fields


def _moment(text: str, item: str) -> datetime:
    """When it happened; for a time that cannot be read, when the id was made."""
    try:
        return from_rfc3339(text)
    except BadTime:
        return ulid_time(item) or datetime.fromtimestamp(0, UTC)
