"""What queen may refuse, all exit 1.

    QueueyardError
    ├── NoBeads          no .beads folder was found
    ├── NoIdentity       nobody said who is calling
    ├── UnknownAgent     no such droid in .factory/droids/
    ├── UnknownIssue     Beads has no such issue, or it is closed
    ├── UnknownRecord    no message, assignment or reservation like that
    ├── InvalidValue     a value that the schema does not allow
    ├── LineTooLong      the record would be longer than other tools can read
    ├── IllegalMove      the lifecycle has no such step
    ├── AlreadyHeld      another agent works on the issue
    ├── ReservationConflict  another agent holds overlapping files
    ├── CannotTell       a line that nobody can read may say no
    ├── TimedOut         nothing came within the time that was given
    └── NotYours         the record belongs to another agent

BadPattern, for a malformed glob, stands in globs.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queueyard.kernel.errors import QueueyardError
from queueyard.queen.records import to_raw

if TYPE_CHECKING:
    from queueyard.queen.records import Assignment
    from queueyard.queen.rules import Conflict


class NoBeads(QueueyardError):
    pass


class NoIdentity(QueueyardError):
    pass


class UnknownAgent(QueueyardError):
    pass


class UnknownIssue(QueueyardError):
    pass


class UnknownRecord(QueueyardError):
    pass


class InvalidValue(QueueyardError):
    pass


class LineTooLong(QueueyardError):
    pass


class IllegalMove(QueueyardError):
    pass


class TimedOut(QueueyardError):
    pass


class NotYours(QueueyardError):
    pass


class CannotTell(QueueyardError):
    pass


class AlreadyHeld(QueueyardError):
    """Another agent works on the issue; `held` is its assignment."""

    def __init__(self, message: str, *, held: Assignment, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.held = held

    def facts(self) -> dict[str, Any]:
        return {"held": to_raw(self.held)}


class ReservationConflict(QueueyardError):
    """Nothing was reserved; `conflicts` says why, one entry per reservation in the way."""

    def __init__(self, message: str, *, conflicts: list[Conflict], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.conflicts = conflicts

    def facts(self) -> dict[str, Any]:
        return {
            "conflicts": [
                {"pattern": one.pattern, "clash": one.clash.value, "held": to_raw(one.held)} for one in self.conflicts
            ]
        }
