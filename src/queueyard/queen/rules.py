"""queen's decisions: how lines become records, which reservations hold, who wins. Pure: no I/O, no clock.

Spec sections: Append-Only Semantics (`fold`), Threading (`thread_of`), Assignment Lifecycle (`move_assignment`),
Reservation Rules and Pattern Matching (`clashes`), Validation Rules (the `check_*` functions).
"""

from __future__ import annotations

from datetime import UTC, datetime
import difflib
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import BadTime, from_rfc3339, to_rfc3339
from queueyard.queen.errors import IllegalMove, InvalidValue, LineTooLong, UnknownAgent
from queueyard.queen.records import (
    ALWAYS_KNOWN,
    ASSIGNMENT_TRANSITIONS,
    LONGEST_LINE_BYTES,
    Assignment,
    AssignmentStatus,
    Importance,
    Message,
    Raw,
    Reservation,
    ReservationStatus,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def fold(old: Raw | None, new: Raw) -> Raw:
    """One record out of the lines of one id, field by field.

    A key that a later line does not name keeps its value; null clears it. The first created_at stays, because an
    update may carry a new one (the spec's own example does) and would move the message in every list.
    """
    if old is None:
        return {key: value for key, value in new.items() if value is not None}
    merged = old | new
    if "created_at" in old:
        merged["created_at"] = old["created_at"]
    return {key: value for key, value in merged.items() if value is not None}


def owner_of(record: Assignment | Reservation) -> str:
    """Who holds it: `agent`, or `droid` where another tool wrote only that (or left `agent` empty)."""
    return record.agent or record.droid


def with_owner(agent: str) -> Raw:
    """The owner under both names, since one tool reads `agent` and the schema says `droid`."""
    return {"agent": agent, "droid": agent}


def moment_of(text: str) -> datetime:
    """A time to sort by; one that cannot be read comes first. As text, 10:30:00Z would stand behind 10:30:00.5Z."""
    try:
        return from_rfc3339(text)
    except BadTime:
        return _LONG_AGO


# --- threads ---------------------------------------------------------------------------------------------------------

ISSUE_THREAD = "issue:"


def thread_of(message: Message) -> str:
    """The thread that a message belongs to: the one it names, else it starts its own."""
    return message.thread_id or message.id


def subject_of_reply(subject: str) -> str:
    return subject if subject.casefold().startswith("re:") else f"Re: {subject}"


# --- assignments -----------------------------------------------------------------------------------------------------


def move_assignment(current: Assignment, to: AssignmentStatus) -> AssignmentStatus:
    """The new status. IllegalMove if the lifecycle has no such step."""
    if to not in ASSIGNMENT_TRANSITIONS.get(current.status, frozenset()):
        raise IllegalMove(
            f"{current.issue_id} is {current.status}, so it cannot become {to}", hint="See: queen assignments"
        )
    return to


def holder_of(issue_id: str, assignments: Iterable[Assignment]) -> Assignment | None:
    """The active assignment of an issue. Should another tool have left several, the first one in the file holds it."""
    active = (one for one in assignments if one.issue_id == issue_id and one.status is AssignmentStatus.ACTIVE)
    return next(active, None)


def surplus_holders(assignments: Iterable[Assignment]) -> list[Assignment]:
    """Active assignments of issues that somebody else held first: left by tools that do not lock."""
    first: set[str] = set()
    surplus = []
    for one in assignments:
        if one.status is AssignmentStatus.ACTIVE:
            if one.issue_id in first:
                surplus.append(one)
            first.add(one.issue_id)
    return surplus


# --- reservations ----------------------------------------------------------------------------------------------------


def holds(reservation: Reservation, now: datetime) -> bool:
    """Whether it is in force: active, not given back, not past its end. An unreadable end never ends by itself."""
    if reservation.status is not ReservationStatus.ACTIVE or reservation.released_at:
        return False
    try:
        return now <= from_rfc3339(reservation.expires_at)
    except BadTime:
        return True


class Clash(StrEnum):
    """How two reservations of different agents on overlapping files stand to each other."""

    #: both exclusive: the spec's rule 1, the later one is refused
    BLOCKS = "blocks"
    #: one exclusive, one shared: told, and refused only when asked to be strict
    WARNS = "warns"
    #: both shared: the spec's rule 2
    NONE = "none"


def clash_of(*, exclusive: bool, other_exclusive: bool) -> Clash:
    if exclusive and other_exclusive:
        return Clash.BLOCKS
    return Clash.WARNS if exclusive or other_exclusive else Clash.NONE


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """A wanted pattern, and the reservation of somebody else that stands against it."""

    pattern: str
    held: Reservation
    clash: Clash


def clashes(pattern: str, overlapping: Iterable[Reservation], *, agent: str, exclusive: bool) -> list[Conflict]:
    """What stands against `agent` reserving `pattern`, among the reservations that overlap it."""
    return [
        Conflict(pattern=pattern, held=held, clash=clash)
        for held in overlapping
        if owner_of(held) != agent
        and (clash := clash_of(exclusive=exclusive, other_exclusive=held.exclusive)) is not Clash.NONE
    ]


def first_come(a: Reservation, b: Reservation) -> tuple[Reservation, Reservation]:
    """The two in the order in which they have a right to the files: who came first, then by name."""
    key_a = (moment_of(a.created_at), owner_of(a), a.id)
    key_b = (moment_of(b.created_at), owner_of(b), b.id)
    return (a, b) if key_a <= key_b else (b, a)


# --- validation ------------------------------------------------------------------------------------------------------


def check_agent(name: str, droids: Collection[str] | None) -> str:
    """A name that may send, receive, work and reserve. UnknownAgent, with a suggestion, for any other.

    `droids` is None where the repository has no `.factory/droids/`; then every plain name is accepted.
    """
    if not name.isprintable() or name.split() != [name]:
        raise InvalidValue(f"not a droid name: {name!r}", hint="Use a name without spaces, such as ui-engineer.")
    if droids is None or name in droids or name in ALWAYS_KNOWN:
        return name
    near = _nearest(name, [*droids, *ALWAYS_KNOWN])
    raise UnknownAgent(
        f"unknown droid: {name!r}" + (f"; did you mean {near!r}?" if near else ""), hint="List them: queen droids"
    )


def check_importance(text: str) -> Importance:
    try:
        return Importance(text)
    except ValueError:
        raise InvalidValue(f"unknown importance: {text!r}", hint=f"Use one of: {', '.join(Importance)}.") from None


def check_status(text: str) -> AssignmentStatus:
    try:
        return AssignmentStatus(text)
    except ValueError:
        raise InvalidValue(f"unknown status: {text!r}", hint=f"Use one of: {', '.join(AssignmentStatus)}.") from None


def check_line(line: bytes, *, what: str) -> bytes:
    """The line, if every tool of the format can read it back. LineTooLong tells by how much it is over."""
    if len(line) > LONGEST_LINE_BYTES:
        raise LineTooLong(
            f"the {what} is {len(line) - LONGEST_LINE_BYTES} bytes too long: a record may take {LONGEST_LINE_BYTES}",
            hint="Put the text in a file of the repository and send its path.",
        )
    return line


def check_period(created: datetime, expires: datetime) -> tuple[str, str]:
    """created_at and expires_at as text. InvalidValue unless the end lies behind the start."""
    if expires <= created:
        raise InvalidValue("the time to live must be longer than zero", hint="For example: --ttl 2h")
    return to_rfc3339(created), to_rfc3339(expires)


def _nearest(name: str, known: Collection[str]) -> str | None:
    folded = name.casefold()
    alike = [one for one in known if one.casefold().startswith(folded) or folded in one.casefold()]
    return next(iter([*difflib.get_close_matches(name, known, n=1), *alike]), None)
