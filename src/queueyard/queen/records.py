"""The shapes of queen's three files, and the Beads issues that they speak of.

A record on disk is a JSON object, one per line. It travels through the system as a plain dict (`Raw`), because keys
that we do not know belong to somebody and must survive a rewrite; the structs below are the typed view of it. Writing
puts the known keys first, in the order of the schema.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: one JSON object as it stands in a file, or several folded into one
Raw = dict[str, Any]

#: the public tool of this format cannot read past a longer line, in any file
LONGEST_LINE_BYTES = 65_535

#: names that are always valid beside the droids of the repository
ALWAYS_KNOWN = ("human", "queen")


class Importance(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


class AssignmentStatus(StrEnum):
    ACTIVE = "active"
    COMPLETED = "completed"
    RELEASED = "released"
    REASSIGNED = "reassigned"


class ReservationStatus(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    RELEASED = "released"


#: which status may follow which; everything not named here is an end
ASSIGNMENT_TRANSITIONS: Mapping[AssignmentStatus, frozenset[AssignmentStatus]] = {
    AssignmentStatus.ACTIVE: frozenset(
        {AssignmentStatus.COMPLETED, AssignmentStatus.RELEASED, AssignmentStatus.REASSIGNED}
    ),
}
RESERVATION_TRANSITIONS: Mapping[ReservationStatus, frozenset[ReservationStatus]] = {
    ReservationStatus.ACTIVE: frozenset(
        {ReservationStatus.ACTIVE, ReservationStatus.EXPIRED, ReservationStatus.RELEASED}
    ),
}


class Message(msgspec.Struct, frozen=True, kw_only=True, rename={"sender": "from"}):
    """One message from one agent to one other."""

    #: qm-<ulid>
    id: str
    #: RFC 3339, when it was sent
    created_at: str = ""
    #: droid name, "queen" or "human"; `from` on disk
    sender: str = ""
    #: droid name, "queen" or "human"
    to: str = ""
    #: one line
    subject: str = ""
    #: Markdown
    body: str = ""
    #: the Beads issue that it is about
    issue_id: str | None = None
    #: the message that it answers
    reply_to: str | None = None
    #: the first message of its thread, or issue:<id> as the public tool writes it
    thread_id: str | None = None
    #: one of Importance; kept as text, since other tools store anything
    importance: str = Importance.NORMAL
    #: whether the recipient has read it
    read: bool = False
    #: RFC 3339, when it was read
    read_at: str | None = None
    #: soft delete
    deleted: bool = False
    #: RFC 3339, when it was deleted; ours, optional
    deleted_at: str | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on which issue."""

    #: qa-<ulid>
    id: str
    #: RFC 3339, when it was assigned
    created_at: str = ""
    #: RFC 3339, last change of status
    updated_at: str = ""
    #: the Beads issue
    issue_id: str = ""
    #: who works on it; written as `agent` and as `droid`
    agent: str = ""
    droid: str = ""
    #: who assigned it; the agent itself on a claim
    assigned_by: str = ""
    status: AssignmentStatus = AssignmentStatus.ACTIVE
    #: the worktree that the work happens in
    worktree: str | None = None
    #: why it was assigned or released
    reason: str | None = None
    #: who had it before a reassignment; written under both names
    previous_agent: str | None = None
    previous_droid: str | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Files that an agent asks others to keep out of."""

    #: qr-<ulid>
    id: str
    #: RFC 3339, when it was reserved
    created_at: str = ""
    #: RFC 3339, when it ends by itself
    expires_at: str = ""
    #: RFC 3339, when it was given back
    released_at: str | None = None
    #: glob, relative to the root of the repository
    pattern: str = ""
    #: who holds it; written as `agent` and as `droid`
    agent: str = ""
    droid: str = ""
    #: the Beads issue that it is for
    issue_id: str | None = None
    #: as written; whether it still holds also depends on the time (rules.holds)
    status: ReservationStatus = ReservationStatus.ACTIVE
    #: false: for reading, others may read too; spec: a missing field takes its default
    exclusive: bool = True
    #: what for
    reason: str | None = None
    #: RFC 3339, when its end was last moved; ours, optional
    renewed_at: str | None = None


class Dependency(msgspec.Struct, frozen=True, kw_only=True):
    """One edge between Beads issues."""

    depends_on_id: str = ""
    type: str = "blocks"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """What queen needs to know of a Beads issue; all other fields are left alone."""

    id: str
    title: str = ""
    description: str = ""
    status: str = "open"
    #: 0 (most urgent) to 4
    priority: int = 2
    issue_type: str = "task"
    assignee: str | None = None
    created_at: str = ""
    #: RFC 3339; not ready before
    defer_until: str | None = None
    pinned: bool = False
    ephemeral: bool = False
    labels: tuple[str, ...] | None = None
    dependencies: tuple[Dependency, ...] | None = None


_KEY_ORDER = (
    "id",
    "created_at",
    "updated_at",
    "expires_at",
    "released_at",
    "renewed_at",
    "from",
    "to",
    "subject",
    "body",
    "pattern",
    "issue_id",
    "agent",
    "droid",
    "reply_to",
    "thread_id",
    "importance",
    "read",
    "read_at",
    "deleted",
    "deleted_at",
    "assigned_by",
    "status",
    "exclusive",
    "worktree",
    "reason",
    "previous_agent",
    "previous_droid",
)

_Record = TypeVar("_Record", Message, Assignment, Reservation)


def view(raw: Raw, kind: type[_Record]) -> _Record:
    """The typed view of a folded record. msgspec.ValidationError if a field has the wrong type."""
    return msgspec.convert(raw, kind)


def view_or_none(raw: Raw, kind: type[_Record]) -> _Record | None:
    """The typed view, or None if another tool wrote something into it that does not fit."""
    try:
        return view(raw, kind)
    except msgspec.ValidationError:
        return None


def encode(raw: Raw) -> bytes:
    """One line, without its newline: known keys in the order of the schema, then the others as they came."""
    known = {key: raw[key] for key in _KEY_ORDER if key in raw}
    return msgspec.json.encode(known | raw)


def decode(line: bytes) -> Raw:
    """One line as a dict. ValueError if it is no object, or an object that is no record of anything."""
    raw = msgspec.json.decode(line)
    if not isinstance(raw, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  the reader of lines expects ValueError
    if not is_migration(raw) and not (isinstance(raw.get("id"), str) and raw["id"]):
        raise ValueError("a record without an id")
    return raw


def decode_record(line: bytes, kind: type[Message | Assignment | Reservation]) -> Raw:
    """Like `decode`. ValidationError too if a field has a type that it has in no such record; null always fits."""
    raw = decode(line)
    if not is_migration(raw):
        _refuse_misfit(raw, kind)
    return raw


def fits(raw: Raw, kind: type[Message | Assignment | Reservation]) -> bool:
    """Whether every field of this line has the type that it has in such a record; null always fits."""
    try:
        _refuse_misfit(raw, kind)
    except msgspec.ValidationError:
        return False
    return True


def _refuse_misfit(raw: Raw, kind: type[Message | Assignment | Reservation]) -> None:
    msgspec.convert({key: value for key, value in raw.items() if value is not None}, kind)


def is_migration(raw: Raw) -> bool:
    """Whether the line only says that the schema changed (spec: Migration)."""
    return "_migration" in raw


def to_raw(record: msgspec.Struct) -> Raw:
    """A record, or an answer that holds records, as plain JSON values; what is not there is left out."""
    raw: Raw = _without_nothing(msgspec.to_builtins(record))
    return raw


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value
