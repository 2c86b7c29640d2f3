"""What jjq speaks of: revisions, bookmarks, items, merges and check results. Shapes only.

The truth is in jj: a bookmark per item, one branch for counters and configuration. What stands in files beside the
shared repository (`Failure`, `Workspace`, `Landing`, `Requeue`, `Passed`) only helps to tell, to clean up and to
resume; without those files the queue still works.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: spec: Sequence ID Encoding
LOWEST_ID, HIGHEST_ID = 1, 999_999

#: the head of the metadata branch
METADATA = "jjq/_/_"


class Scope(StrEnum):
    """The middle part of a bookmark that holds items. spec: Defined Scopes."""

    QUEUE = "queue"
    FAILED = "failed"


class LockName(StrEnum):
    """spec: Defined Locks."""

    ID = "id"
    RUN = "run"
    CONFIG = "config"


class State(StrEnum):
    """Where an item is."""

    QUEUED = "queued"
    FAILED = "failed"
    LANDED = "landed"
    REQUEUED = "requeued"
    DELETED = "deleted"


#: which state may follow which; everything not named here is an end
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.QUEUED: frozenset({State.LANDED, State.FAILED, State.DELETED}),
    State.FAILED: frozenset({State.REQUEUED, State.DELETED}),
}


class Reason(StrEnum):
    """Why an item failed."""

    CONFLICTS = "conflicts"
    CHECK = "check"
    TIMEOUT = "timeout"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One revision, as jj tells it in JSON."""

    commit_id: str
    change_id: str
    #: commit ids, first parent first; empty for the root
    parents: tuple[str, ...] = ()
    #: the whole text, usually with a newline at its end
    description: str = ""

    @property
    def subject(self) -> str:
        return self.description.partition("\n")[0]

    @property
    def short(self) -> str:
        """The change id as people type it."""
        return self.change_id[:12]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A revision that jj made just now."""

    commit: Commit
    #: whether its tree holds conflicts
    conflict: bool
    #: whether it changes nothing against its parents
    empty: bool


class Bookmark(msgspec.Struct, frozen=True, kw_only=True):
    """One local bookmark."""

    name: str
    #: one revision; several if the bookmark is conflicted
    targets: tuple[Commit, ...]

    @property
    def conflicted(self) -> bool:
        return len(self.targets) != 1


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One queued or failed item."""

    #: without padding
    id: int
    #: queued: the candidate; failed: the merge revision
    commit: Commit
    #: whether the bookmark has several targets, of which `commit` is the first
    conflicted: bool = False


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that jjq's bookmarks say at one moment."""

    #: ascending, so the first one is next
    queued: tuple[Item, ...] = ()
    #: descending, so the first one is the latest
    failed: tuple[Item, ...] = ()
    #: lock bookmarks that exist
    locks: frozenset[str] = frozenset()
    #: head of the metadata branch; None before the first use
    metadata: Bookmark | None = None
    #: the trunk bookmark, if it was asked for and exists
    trunk: Bookmark | None = None
    #: names below jjq/ that the spec does not know
    strangers: tuple[str, ...] = ()

    def item(self, number: int) -> Item | None:
        """The queued item of that number, if there is one."""
        return next((item for item in self.queued if item.id == number), None)

    def failure(self, number: int) -> Item | None:
        """The failed item of that number, if there is one."""
        return next((item for item in self.failed if item.id == number), None)


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate merged onto a base: what is checked, and what lands if it passes."""

    #: the item
    id: int
    base: Commit
    candidate: Commit
    commit: Commit
    conflict: bool = False
    #: git tree of the merge; None where it cannot be told
    tree: str | None = None


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one check ended."""

    passed: bool
    #: of the last try, negative for a signal
    exit_code: int
    duration_ms: int
    #: killed because queueyard.check_timeout_s was over
    timed_out: bool = False
    #: tries that were needed, 1 without flaky retries
    tries: int = 1
    #: not run: the same tree passed the same command before
    reused: bool = False

    @property
    def reason(self) -> Reason:
        return Reason.TIMEOUT if self.timed_out else Reason.CHECK


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """A temporary workspace that we made, noted before jj hears of it."""

    #: as jj knows it: jjq/run/000007
    name: str
    #: the folder that its working copy is in
    path: str
    #: who made it: pid and start time
    pid: int
    started: str
    #: change id of its working-copy revision, once there is one
    change_id: str | None = None
    #: kept on purpose, for somebody to look at: never swept, only cleaned
    preserved: bool = False


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a failed item beyond its bookmark."""

    id: int
    reason: Reason
    #: RFC 3339
    at: str
    candidate: Commit
    trunk_commit_id: str
    merge_commit_id: str
    #: the workspace that was kept; None if it could not be
    workspace_path: str | None = None
    conflict_paths: tuple[str, ...] = ()
    exit_code: int | None = None


class Landing(msgspec.Struct, frozen=True, kw_only=True):
    """Trunk is about to move: written before, removed after, so that a crash in between can be finished."""

    #: the items that land together, in order
    ids: tuple[int, ...]
    #: where trunk goes
    merge: Commit
    trunk_bookmark: str


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """A failed item is about to be queued again under a new number."""

    failed_id: int
    queue_id: int


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """This tree passed this command."""

    tree: str
    #: sha256 of the command
    command: str
    #: RFC 3339
    at: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one item in a run."""

    id: int
    state: State
    candidate: Commit
    #: the merge revision; on success the new trunk
    merge_commit_id: str | None = None
    check: CheckResult | None = None
    failure: Failure | None = None


def to_raw(value: Any) -> Any:
    """A record, or an answer that holds records, as plain JSON values; what is not there is left out."""
    return _without_nothing(msgspec.to_builtins(value))


def _without_nothing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nothing(inner) for key, inner in value.items() if inner is not None}
    return [_without_nothing(inner) for inner in value] if isinstance(value, list) else value
