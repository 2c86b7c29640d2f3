"""A landed or failed change becomes a message to the agent whose issue it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.events import read_journal
from queueyard.jjq.home import find_home
from queueyard.kernel.events import Event, Kind, System
from queueyard.queen.rules import owner_of
from queueyard.queen.service import Queen
from queueyard.yard.links import words_of
from queueyard.yard.places import open_yard

if TYPE_CHECKING:
    from queueyard.queen.records import Message

#: an item is queued not long before it ends
_RECENT_BYTES = 1 << 20


def tell(news: bytes) -> list[Message]:
    """Send what an event of jjq says; nothing if its change names no issue that somebody has or had."""
    event = msgspec.json.decode(news, type=Event)
    subject = _subject_of(event)
    with Queen.open(_queen_for(Path(event.source)), agent="queen") as queen:
        named = words_of(subject)
        mine = [one for one in queen.assignments() if one.issue_id in named]
        if not mine:
            return []
        last = max(mine, key=lambda one: one.updated_at)
        landed = event.kind is Kind.SUCCEEDED
        number = int(event.item)
        body = (
            f"Item {number} landed on {event.queue} as {event.data.get('merge', '')[:12]}."
            if landed
            else f"Item {number} failed ({event.reason}). See why: jjq status {number}"
        )
        return queen.send(
            owner_of(last),
            body,
            subject=f"{'landed' if landed else 'failed'}: {subject}",
            issue=last.issue_id,
            importance="normal" if landed else "high",
        )


def _subject_of(event: Event) -> str:
    """Of the change that was queued; what ends an item only names the merge."""
    path = find_home(Path(event.source)).journal
    start = max(0, path.stat().st_size - _RECENT_BYTES)
    queued = [
        one.data.get("subject", "")
        for one, _ in read_journal(path, on_bad=lambda _: None, start=start)
        if one.item == event.item and one.kind is Kind.QUEUED
    ]
    return str(queued[-1]) if queued else ""


def _queen_for(repository: Path) -> Path:
    """Where the agents of a repository talk: in its yard, else around it."""
    places = open_yard(repository).places
    return next((Path(place.at) for place in places if place.system is System.QUEEN), repository)
