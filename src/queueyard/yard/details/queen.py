"""Agents with what they have to read and to do, messages, assignments, reservations and where these overlap."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.queen import reservations
from queueyard.queen.assignments import listed
from queueyard.queen.home import find_home
from queueyard.queen.records import AssignmentStatus, Message, view_or_none
from queueyard.queen.rules import moment_of, owner_of
from queueyard.queen.store import Store
from queueyard.yard.details.parts import Part, Wanted, part, shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.queen.records import Assignment, Reservation


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, and what waits for it."""

    agent: str
    unread: int
    received: int
    sent: int
    #: issues that it works on
    assigned: int
    #: patterns that it holds
    reserved: int


class MessageRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    at: str
    sender: str
    to: str
    subject: str
    body: str
    issue: str | None
    importance: str
    #: unread or read
    state: str


class AssignmentRow(msgspec.Struct, frozen=True, kw_only=True):
    issue: str
    agent: str
    #: one of AssignmentStatus
    state: str
    at: str
    assigned_by: str
    reason: str | None


class ReservationRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    pattern: str
    agent: str
    #: exclusive or shared
    kind: str
    at: str
    expires_at: str
    issue: str | None
    reason: str | None


class OverlapRow(msgspec.Struct, frozen=True, kw_only=True):
    """Two agents on the same files."""

    #: who came first
    holder: str
    holder_pattern: str
    other: str
    other_pattern: str
    #: blocks or warns
    clash: str
    #: a path that both cover
    example: str


class QueenDetails(msgspec.Struct, frozen=True, kw_only=True):
    agents: Part[AgentRow]
    messages: Part[MessageRow]
    assignments: Part[AssignmentRow]
    reservations: Part[ReservationRow]
    overlaps: Part[OverlapRow]


def look(at: str, wanted: Wanted) -> QueenDetails:
    root = Path(at)
    store = Store(find_home(root, {}, beads=root if root.name == ".beads" else root / ".beads"))
    try:
        messages = _messages(store)
        assigned = listed(store)
        book = reservations.Book(store)
        held = reservations.reserved(book, SYSTEM_CLOCK)
        overlaps = reservations.conflicts(book, SYSTEM_CLOCK)
    finally:
        store.close()
    return QueenDetails(
        agents=part(_agents(messages, assigned, held), wanted),
        messages=part(map(_message_row, messages), wanted),
        assignments=part(sorted(map(_assignment_row, assigned), key=lambda row: row.state), wanted),
        reservations=part(map(_reservation_row, held), wanted),
        overlaps=part(map(_overlap_row, overlaps), wanted),
    )


def _messages(store: Store) -> list[Message]:
    """All that are not deleted, the unread first, the newest first among these."""
    views = (view_or_none(raw, Message) for raw in store.every_message(lambda _: None).values())
    alive = [message for message in views if message is not None and not message.deleted]
    alive.sort(key=lambda message: moment_of(message.created_at), reverse=True)
    return sorted(alive, key=lambda message: message.read)


def _agents(messages: Sequence[Message], assigned: Sequence[Assignment], held: Sequence[Reservation]) -> list[AgentRow]:
    unread = Counter(one.to for one in messages if not one.read)
    received = Counter(one.to for one in messages)
    sent = Counter(one.sender for one in messages)
    works = Counter(owner_of(one) for one in assigned if one.status is AssignmentStatus.ACTIVE)
    holds = Counter(map(owner_of, held))
    names = {*received, *sent, *map(owner_of, assigned), *holds}
    rows = [
        AgentRow(
            agent=name,
            unread=unread[name],
            received=received[name],
            sent=sent[name],
            assigned=works[name],
            reserved=holds[name],
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: (-row.unread, -row.assigned, row.agent))


def _message_row(one: Message) -> MessageRow:
    return MessageRow(
        id=one.id,
        at=one.created_at,
        sender=one.sender,
        to=one.to,
        subject=shortened(one.subject),
        body=shortened(one.body),
        issue=one.issue_id,
        importance=one.importance,
        state="read" if one.read else "unread",
    )


def _assignment_row(one: Assignment) -> AssignmentRow:
    return AssignmentRow(
        issue=one.issue_id,
        agent=owner_of(one),
        state=one.status,
        at=one.updated_at or one.created_at,
        assigned_by=one.assigned_by,
        reason=one.reason,
    )


def _reservation_row(one: Reservation) -> ReservationRow:
    return ReservationRow(
        id=one.id,
        pattern=one.pattern,
        agent=owner_of(one),
        kind="exclusive" if one.exclusive else "shared",
        at=one.created_at,
        expires_at=one.expires_at,
        issue=one.issue_id,
        reason=one.reason,
    )


def _overlap_row(one: reservations.Overlap) -> OverlapRow:
    return OverlapRow(
        holder=owner_of(one.reservation_a),
        holder_pattern=one.reservation_a.pattern,
        other=owner_of(one.reservation_b),
        other_pattern=one.reservation_b.pattern,
        clash=one.clash,
        example=one.example,
    )
