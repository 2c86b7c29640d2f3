"""What jjq may refuse, all exit 1.

QueueyardError
├── NotARepository    no .jj folder here or above
├── MissingJj         there is no jj on the PATH
├── UnfitJj           this jj is older than what jjq can work with
├── JjFailed          jj refused; its own words are kept
│   └── StaleWorkspace    the caller's workspace must be updated first
├── BadRevset         a revset resolves to no revision, or to several
├── BadId             a text is no sequence id
├── PushRefused       the command that is asked before a push said no
├── NoSuchItem        nothing is queued or failed under that id
├── IdsExhausted      all 999999 ids are used
├── LockHeld          somebody else holds a jjq lock
├── NotInitialized    the metadata branch does not exist yet
├── UnknownKey        no such configuration key
├── InvalidValue      a value that the key does not allow
├── TrunkTrouble      the trunk bookmark is missing or conflicted
├── ConflictedBookmark    a jjq bookmark points to several revisions
├── CorruptMetadata   last_id is not a number
├── ItemFailed        an item did not land: conflicts, or its check failed
├── KeepsChanging     an item or trunk changed during every check
├── ItemGone          an item that was waited for left the queue without landing
├── TimedOut          nothing happened within the time that was given
└── BadTemporary      no workspace can be made in the temporary folder
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queueyard.jjq.records import to_raw
from queueyard.kernel.errors import QueueyardError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.jjq.records import Outcome


class NotARepository(QueueyardError):
    pass


class MissingJj(QueueyardError):
    pass


class UnfitJj(QueueyardError):
    pass


class JjFailed(QueueyardError):
    """jj said no; `said` is its stderr."""

    def __init__(self, message: str, *, said: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.said = said


class PushRefused(QueueyardError):
    pass


class StaleWorkspace(JjFailed):
    pass


class BadRevset(QueueyardError):
    pass


class BadId(QueueyardError):
    pass


class NoSuchItem(QueueyardError):
    pass


class IdsExhausted(QueueyardError):
    pass


class LockHeld(QueueyardError):
    pass


class NotInitialized(QueueyardError):
    pass


class UnknownKey(QueueyardError):
    pass


class InvalidValue(QueueyardError):
    pass


class TrunkTrouble(QueueyardError):
    pass


class ConflictedBookmark(QueueyardError):
    pass


class CorruptMetadata(QueueyardError):
    pass


class KeepsChanging(QueueyardError):
    pass


class ItemGone(QueueyardError):
    pass


class TimedOut(QueueyardError):
    pass


class BadTemporary(QueueyardError):
    pass


class ItemFailed(QueueyardError):
    """One or more items did not land; `outcomes` says which and why."""

    def __init__(self, message: str, *, outcomes: Sequence[Outcome], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.outcomes = list(outcomes)

    def facts(self) -> dict[str, Any]:
        return {"outcomes": [to_raw(outcome) for outcome in self.outcomes]}
