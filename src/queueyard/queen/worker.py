"""The loop of the live view: what `queen watch` shows, and when it shows it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.queen import messages
from queueyard.queen.records import Assignment, Message, Reservation
from queueyard.queen.rules import moment_of
from queueyard.queen.store import ASSIGNMENTS, MESSAGES, RESERVATIONS
from queueyard.queen.waiting import FileWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.queen.service import Queen

_SHOWN_MESSAGES = 8
_COUNTED_UNREAD = 1000


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is in force at one moment."""

    #: RFC 3339
    at: str
    #: agent -> unread messages, counted up to a thousand
    unread: dict[str, int]
    #: the latest, newest first
    messages: list[Message]
    #: active ones, newest first
    assignments: list[Assignment]
    #: in force, soonest to end first
    reservations: list[Reservation]
    #: pairs of agents on the same files
    conflicts: int


def snapshots(queen: Queen, *, interval_s: float) -> Iterator[Snapshot]:
    """One at once, then one whenever a file changes or `interval_s` has passed, for ever."""
    watch = FileWatch([queen.home.beads / name for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS)], queen.clock)
    while True:
        yield snapshot(queen)
        watch.wait(interval_s)


def snapshot(queen: Queen) -> Snapshot:
    agents = sorted(queen.store.messages(lambda index: index.agents()))
    latest = {
        message.id: message
        for agent in agents
        for message in messages.inbox(queen.store, agent=agent, limit=_SHOWN_MESSAGES)
    }
    newest_first = sorted(latest.values(), key=lambda one: (moment_of(one.created_at), one.id), reverse=True)
    unread = {
        agent: len(messages.inbox(queen.store, agent=agent, unread=True, limit=_COUNTED_UNREAD)) for agent in agents
    }
    return Snapshot(
        at=to_rfc3339(queen.clock.now()),
        unread={agent: count for agent, count in unread.items() if count},
        messages=newest_first[:_SHOWN_MESSAGES],
        assignments=queen.assignments(status="active"),
        reservations=queen.reserved(),
        conflicts=len(queen.conflicts()),
    )
