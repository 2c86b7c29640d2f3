"""Changes that wait, are checked, failed or landed, and the logs of their checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.events import read_journal
from queueyard.jjq.records import LockName, State
from queueyard.jjq.rules import parse_id
from queueyard.jjq.service import Jjq
from queueyard.kernel.errors import explaining
from queueyard.kernel.events import Event, Kind
from queueyard.kernel.ids import sequence_id
from queueyard.yard.details.parts import Log, Part, Wanted, end_of_log, part, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queueyard.jjq.records import Commit, Item
    from queueyard.jjq.store import Store

#: what is older is told by `jjq log`
_RECENT_BYTES = 512 * 1024


class ItemRow(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    #: queued, checking, failed or landed
    state: str
    #: the first line of its description
    subject: str
    #: as people type it
    change: str
    #: RFC 3339: when it was queued, failed or landed; None where the journal no longer tells
    at: str | None
    reason: str | None
    #: whether there is a log of its checks
    has_log: bool


class JjqDetails(msgspec.Struct, frozen=True, kw_only=True):
    trunk: str
    queue: Part[ItemRow]
    failed: Part[ItemRow]
    landed: Part[ItemRow]


def look(at: str, wanted: Wanted) -> JjqDetails:
    store = Jjq.open(Path(at), note=_ignore).store
    config, queue = store.look()
    is_run = LockName.RUN in queue.locks or store.lock(LockName.RUN).holder() is not None
    events = _recent(store)
    last = {event.item: event for event in events}
    subjects = {event.item: str(event.data.get("subject", "")) for event in events if event.kind is Kind.QUEUED}
    return JjqDetails(
        trunk=config.trunk_bookmark,
        queue=part((_queued_row(store, item, last, is_run=is_run) for item in queue.queued), wanted),
        failed=part((_failed_row(store, item) for item in queue.failed), wanted),
        landed=part(_landed_rows(store, events, subjects), wanted),
    )


def log(at: str, identifier: str) -> Log:
    """The end of what the checks of an item printed. NoSuchItem, StorageFailed."""
    path = Jjq.open(Path(at), note=_ignore).log_path(parse_id(identifier))
    with explaining("read", path):
        return end_of_log(path)


def _recent(store: Store) -> list[Event]:
    path = store.home.journal
    start = max(0, path.stat().st_size - _RECENT_BYTES) if path.exists() else 0
    return [event for event, _ in read_journal(path, on_bad=_ignore, start=start)]


def _queued_row(store: Store, item: Item, last: dict[str, Event], *, is_run: bool) -> ItemRow:
    event = last.get(sequence_id(item.id))
    is_checked = is_run and event is not None and event.kind is Kind.STARTED
    return _row(
        store,
        item,
        candidate=item.commit,
        state="checking" if is_checked else State.QUEUED,
        at=event.at if event else None,
        reason="its bookmark is conflicted" if item.conflicted else None,
    )


def _failed_row(store: Store, item: Item) -> ItemRow:
    known = store.failure(item.id)
    reason = None if known is None else ": ".join([known.reason, ", ".join(known.conflict_paths)]).removesuffix(": ")
    candidate = known.candidate if known else item.commit
    return _row(store, item, candidate=candidate, state=State.FAILED, at=known.at if known else None, reason=reason)


def _row(store: Store, item: Item, *, candidate: Commit, state: str, at: str | None, reason: str | None) -> ItemRow:
    return ItemRow(
        id=item.id,
        state=state,
        subject=shortened(candidate.subject),
        change=candidate.short,
        at=at,
        reason=reason,
        has_log=store.log_path(item.id).exists(),
    )


def _landed_rows(store: Store, events: Iterable[Event], subjects: dict[str, str]) -> list[ItemRow]:
    landed = [event for event in events if event.kind is Kind.SUCCEEDED]
    return [
        ItemRow(
            id=int(event.item),
            state=State.LANDED,
            subject=shortened(subjects.get(event.item, "")),
            change=str(event.data.get("merge", ""))[:12],
            at=event.at,
            reason=None,
            has_log=store.log_path(int(event.item)).exists(),
        )
        for event in reversed(landed)
    ]


def _ignore(_: object) -> None:
    """What there is to say is for whoever works there: `jjq status` and `jjq log` tell it."""
