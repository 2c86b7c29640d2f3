"""Queued and failed changes, from one look at the bookmarks; what is checked now, from the journal and the run lock."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.jjq.events import read_journal
from queueyard.jjq.records import LockName
from queueyard.jjq.service import Jjq
from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import Event, Kind, System
from queueyard.kernel.ids import sequence_id
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from datetime import datetime

    from queueyard.jjq.store import Store

#: a glance must stay quick when the history is long
_RECENT_BYTES = 256 * 1024


def glance(at: str, now: datetime) -> Glance:
    store = Jjq.open(Path(at), note=_ignore).store
    queue = store.queue()
    is_run = LockName.RUN in queue.locks or store.lock(LockName.RUN).holder() is not None
    events = _recent(store, {sequence_id(item.id) for item in queue.queued})
    last = {event.item: event.kind for event in events}
    checked = sum(kind is Kind.STARTED for kind in last.values()) if is_run else 0
    queued_at = [from_rfc3339(event.at) for event in events if event.kind is Kind.QUEUED]
    return Glance(
        system=System.JJQ,
        at=at,
        waiting=len(queue.queued) - checked,
        running=checked,
        failed=len(queue.failed),
        oldest_wait_s=max(((now - moment).total_seconds() for moment in queued_at), default=None),
        health="runner running" if is_run else "no runner",
        is_well=is_run or not queue.queued,
    )


def _recent(store: Store, items: set[str]) -> list[Event]:
    path = store.home.journal
    start = max(0, path.stat().st_size - _RECENT_BYTES) if items and path.exists() else 0
    return [event for event, _ in read_journal(path, on_bad=_ignore, start=start) if event.item in items]


def _ignore(_: object) -> None:
    """What there is to say is for whoever works there: `jjq status` and `jjq log` tell it."""
