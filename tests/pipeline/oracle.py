"""What the pipeline must find, computed from the files by plain Python: events, items and attempts.

No Spark here, and no thought about speed: everything is in memory, and each rule is written down as simply as it can
be. The systems' own decoders say what a line means. Rows are dicts with the columns of the pipeline's tables (without
`batch`); times are aware datetimes in UTC; what is not there is None.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD
from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import Event, Kind, System
from queueyard.ops.events import change_events, refusal_events
from queueyard.ops.records import Change, Refusal
from queueyard.panqueue.events import event_from
from queueyard.queen.events import assignment_events, message_events, reservation_events
from queueyard.queen.records import Assignment, Message, Raw, Reservation, decode_record, is_migration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_T = TypeVar("_T")
Row = dict[str, Any]
ItemKey = tuple[str, str, str, str]
AttemptKey = tuple[str, str, str, str, int]

ENDS = (Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED, Kind.EXPIRED, Kind.RELEASED)
ASKS = (Kind.QUEUED, Kind.RETRIED)
#: the records of queen's files
SHAPES: dict[str, type[Message | Assignment | Reservation]] = {
    "messages": Message,
    "assignments": Assignment,
    "reservations": Reservation,
}


@dataclass(frozen=True, kw_only=True)
class Names:
    """How the places are called whose lines do not say where they come from."""

    queen: str
    panqueue: str
    ops: str


def names_of(folder: Path) -> Names:
    return Names(queen=str(folder / "queen"), panqueue=str(folder / "panqueue"), ops=str(folder / "ops"))


# --- lines -----------------------------------------------------------------------------------------------------------


def whole_lines(path: Path) -> Iterator[bytes]:
    """Every line that has its end; what stands behind the last newline is still being written."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def sound_lines(path: Path, decode: Callable[[bytes], _T]) -> Iterator[_T]:
    """What the system itself can read of a file, in its order."""
    for line in whole_lines(path):
        try:
            yield decode(line)
        except NOT_UNDERSTOOD:
            continue


def queen_lines(folder: Path, name: str) -> Iterator[Raw]:
    """The records of one of queen's files, line by line."""
    shape = SHAPES[name]
    path = folder / "queen" / ".beads" / f"queen_{name}.jsonl"
    return (raw for raw in sound_lines(path, lambda line: decode_record(line, shape)) if not is_migration(raw))


def changes(folder: Path) -> Iterator[Change]:
    for path in sorted((folder / "ops").glob("*/changes-*.jsonl")):
        yield from sound_lines(path, msgspec.json.Decoder(Change).decode)


def refusals(folder: Path) -> Iterator[Refusal]:
    for path in sorted((folder / "ops").glob("*/audit-*.jsonl")):
        yield from sound_lines(path, msgspec.json.Decoder(Refusal).decode)


# --- events ----------------------------------------------------------------------------------------------------------


def events(folder: Path, names: Names | None = None) -> list[Event]:
    """Every event of the five systems once, by id."""
    return distinct(all_events(folder, names or names_of(folder)))


def distinct(told: Iterable[Event]) -> list[Event]:
    return list({event.id: event for event in told}.values())


def all_events(folder: Path, names: Names) -> Iterator[Event]:
    """Every event, as often as it is told."""
    yield from message_events(queen_lines(folder, "messages"), source=names.queen)
    yield from assignment_events(queen_lines(folder, "assignments"), source=names.queen)
    yield from reservation_events(queen_lines(folder, "reservations"), source=names.queen)
    journals = [
        folder / "runforge" / ".runforge" / "queue" / "events.jsonl",
        folder / "jjq" / ".jj" / "repo" / "jjq" / "journal.jsonl",
        *sorted((folder / "ops-client").glob("*/events.jsonl")),
    ]
    for path in journals:
        yield from sound_lines(path, msgspec.json.Decoder(Event).decode)
    for path in sorted((folder / "panqueue").glob("*.entries.jsonl")):
        yield from panqueue_events(path, source=names.panqueue)
    yield from change_events(changes(folder), source=names.ops)
    yield from refusal_events(refusals(folder), source=names.ops)


def panqueue_events(path: Path, *, source: str) -> Iterator[Event]:
    """The entries of one stream; its queue is named by the file."""
    queue = path.name.removesuffix(".entries.jsonl")
    for entry in sound_lines(path, msgspec.json.Decoder(dict[str, str]).decode):
        event = event_from(entry.pop("id"), entry, source=source, queue=queue)
        if event is not None:
            yield event


def event_row(event: Event) -> Row:
    """A row of silver/events; `data` is the object itself."""
    row = {name: getattr(event, name) for name in event.__struct_fields__}
    return row | {"at": at(event), "system": str(event.system), "kind": str(event.kind), "data": event.data or None}


def at(event: Event) -> datetime:
    return from_rfc3339(event.at).astimezone(UTC)


def order(event: Event) -> tuple[datetime, str]:
    """By time, and of one time by id."""
    return at(event), event.id


# --- items -----------------------------------------------------------------------------------------------------------


def item_key(event: Event) -> ItemKey:
    return str(event.system), event.source, event.queue, event.item


def items(told: Iterable[Event]) -> dict[ItemKey, Row]:
    """One row per item: its first and its last event."""
    return {key: _item(key, one) for key, one in _by(told, item_key).items()}


def _item(key: ItemKey, told: list[Event]) -> Row:
    told = sorted(told, key=order)
    last = told[-1]
    groups = [event.group for event in told if event.group is not None]
    return {
        **_named(key),
        "group": groups[-1] if groups else None,
        "first_at": at(told[0]),
        "last_at": at(last),
        "last_id": last.id,
        "last_kind": str(last.kind),
        "last_reason": last.reason,
        "last_actor": last.actor,
        "attempts": max(event.attempt for event in told),
        "events": len(told),
    }


# --- attempts --------------------------------------------------------------------------------------------------------


def attempts(told: Iterable[Event]) -> dict[AttemptKey, Row]:
    """One row per attempt that was asked for, begun or ended.

    One that was handed back and started again has not ended. An attempt that has begun and has no end of its own has
    failed when the next one was asked for by `retried`.
    """
    by_attempt = _by((event for event in told if _is_tried(event)), lambda event: (*item_key(event), event.attempt))
    rows = {}
    for key, own in by_attempt.items():
        following = by_attempt.get((*key[:4], key[4] + 1), [])
        row = _attempt(key, sorted(own, key=order), [event for event in following if event.kind is Kind.RETRIED])
        if row["queued_at"] or row["started_at"] or row["finished_at"]:
            rows[key] = row
    return rows


def _is_tried(event: Event) -> bool:
    return event.system is not System.QUEEN or event.queue == "assignments"


def _attempt(key: AttemptKey, own: list[Event], retried_next: list[Event]) -> Row:
    asked = [event for event in own if event.kind in ASKS]
    started = [event for event in own if event.kind is Kind.STARTED]
    ended = [event for event in own if event.kind in ENDS]
    groups = [event.group for event in (*own, *retried_next) if event.group is not None]
    end = ended[-1] if ended and not _is_started_again(ended[-1], started) else None
    row = {
        **_named(key[:4]),
        "attempt": key[4],
        "group": max(groups, default=None),
        "actor": (ended or started or asked or own)[-1].actor,
        "queued_at": at(asked[0]) if asked else None,
        "started_at": at(started[-1]) if started else None,
        "finished_at": at(end) if end else None,
        "outcome": str(end.kind) if end else None,
        "reason": end.reason if end else None,
        "stalls": sum(event.kind is Kind.STALLED for event in own),
        "duration_ms": end.data.get("duration_ms") if end else None,
        "wasted_ms": sum(_wasted_ms(event) for event in own),
    }
    if end is None and started and retried_next:
        successor = min(retried_next, key=lambda event: (at(event), event.reason is not None, event.reason or ""))
        row |= {"finished_at": at(successor), "outcome": str(Kind.FAILED), "reason": successor.reason}
    return row


def _is_started_again(end: Event, started: list[Event]) -> bool:
    """An assignment of queen is never: there, such times come from two clocks."""
    is_before = end.kind is Kind.RELEASED and any(at(event) > at(end) for event in started)
    return is_before and end.system is not System.QUEEN


def _wasted_ms(event: Event) -> int:
    """A check of jjq that was thrown away."""
    is_wasted = event.system is System.JJQ and event.kind is Kind.RELEASED
    return int(event.data.get("duration_ms", 0)) if is_wasted else 0


# --- the rest --------------------------------------------------------------------------------------------------------

_K = TypeVar("_K")


def _by(told: Iterable[Event], key: Callable[[Event], _K]) -> dict[_K, list[Event]]:
    found: dict[_K, list[Event]] = defaultdict(list)
    for event in told:
        found[key(event)].append(event)
    return dict(found)


def _named(key: ItemKey) -> Row:
    return dict(zip(("system", "source", "queue", "item"), key, strict=True))
