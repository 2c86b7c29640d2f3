"""`status`, `log`, `wait` and what they show: everything that only looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.checks import has_ended
from queueyard.jjq.errors import ItemFailed, ItemGone, NoSuchItem, TimedOut
from queueyard.jjq.events import ENDS, read_journal
from queueyard.jjq.jj import named
from queueyard.jjq.records import Commit, Failure, Item, LockName, Outcome, Reason, Scope, State
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import CANDIDATE, CANDIDATE_COMMIT, TRUNK, run_workspace, trailer
from queueyard.jjq.waiting import OperationWatch
from queueyard.kernel.errors import explaining
from queueyard.kernel.events import Event, Kind
from queueyard.kernel.ids import sequence_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from queueyard.jjq.records import Queue
    from queueyard.jjq.store import Store
    from queueyard.kernel.atomic import BadLine

_SHOWN_LANDED = 5
_RECENT_BYTES = 256 * 1024
_NOBODY_RUNS_AFTER_S = 2.0
_LONGEST_END = 4096
_LOOK_AGAIN_S = 0.1


class QueuedView(msgspec.Struct, frozen=True, kw_only=True):
    """A queued item as `status --json` shows it; the names of the fields are those of the public tool."""

    id: int
    change_id: str
    commit_id: str
    description: str
    conflicted: bool | None = None


class FailedView(msgspec.Struct, frozen=True, kw_only=True):
    """A failed item as `status --json` shows it."""

    id: int
    #: of the merge revision
    change_id: str
    commit_id: str
    description: str
    candidate_change_id: str | None = None
    candidate_commit_id: str | None = None
    trunk_commit_id: str | None = None
    workspace_path: str | None = None
    failure_reason: Reason | None = None
    conflict_paths: tuple[str, ...] | None = None


class LandedView(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    commit_id: str
    #: RFC 3339
    at: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The queue at one moment."""

    initialized: bool
    running: bool = False
    #: who runs it, as far as that can be told
    runner: str | None = None
    trunk_bookmark: str | None = None
    queue: tuple[QueuedView, ...] = ()
    failed: tuple[FailedView, ...] = ()
    landed: tuple[LandedView, ...] = ()


class ItemView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one item."""

    id: int
    state: State
    #: 1 is next
    position: int | None = None
    queued: QueuedView | None = None
    failed: FailedView | None = None
    #: the revision that it landed as
    merge_commit_id: str | None = None
    #: the item that it went on as
    requeued_as: int | None = None
    log_path: str | None = None
    events: tuple[Event, ...] = ()


def status(store: Store) -> Status:
    """spec: status. Two calls."""
    store.check_jj()
    recover(store)
    config, queue = store.look()
    if queue.metadata is None and not queue.queued and not queue.failed:
        return Status(initialized=False)
    lock = store.lock(LockName.RUN)
    holder = lock.holder()
    return Status(
        initialized=True,
        running=LockName.RUN in queue.locks or holder is not None,
        runner=holder,
        trunk_bookmark=config.trunk_bookmark,
        queue=tuple(map(_queued_view, queue.queued)),
        failed=tuple(_failed_view(store, item) for item in queue.failed[: config.max_failures]),
        landed=_landed(store),
    )


def item(store: Store, number: int) -> ItemView:
    """Everything about one item, wherever it is. NoSuchItem if nothing is known of it."""
    store.check_jj()
    recover(store)
    queue = store.queue()
    events = tuple(event for event in events_of(store) if event.item == sequence_id(number))
    queued, failed = queue.item(number), queue.failure(number)
    state = _state(queued, failed, events)
    if state is None:
        raise NoSuchItem(f"nothing is known of item {number}", hint="See what there is: jjq status    or: jjq log")
    log = store.log_path(number)
    last = next((event for event in reversed(events) if event.kind in {*ENDS, Kind.RETRIED}), None)
    return ItemView(
        id=number,
        state=state,
        position=queue.queued.index(queued) + 1 if queued else None,
        queued=_queued_view(queued) if queued else None,
        failed=_failed_view(store, failed) if failed else None,
        merge_commit_id=last.data.get("merge") if last and state is State.LANDED else None,
        requeued_as=int(last.data["as"]) if last and state is State.REQUEUED else None,
        log_path=str(log) if log.exists() else None,
        events=events,
    )


def events_of(store: Store, *, on_bad: Callable[[BadLine], None] | None = None) -> list[Event]:
    """The whole journal, oldest first."""
    return [event for event, _ in read_journal(store.home.journal, on_bad=on_bad or _ignore)]


def wait(
    store: Store, number: int, *, timeout_s: float | None = None, note: Callable[[str], None] | None = None
) -> Outcome:
    """Block until an item has left the queue, and say how.

    ItemFailed if it failed, ItemGone if it was deleted, TimedOut if it is still queued after `timeout_s`.
    """
    store.check_jj()
    deadline = None if timeout_s is None else store.clock.monotonic() + timeout_s
    watch = OperationWatch(store.home.operations, store.clock)
    seen: Item | None = None
    has_told = False
    while True:
        recover(store)
        queue = store.queue()
        now = queue.item(number)
        if now is None:
            return _how_it_left(store, queue, number, seen)
        seen = now
        left = None if deadline is None else deadline - store.clock.monotonic()
        if left is not None and left <= 0:
            raise TimedOut(f"item {number} is still queued after {timeout_s:g} s", hint=f"Look: jjq status {number}")
        if note and not has_told and not _somebody_runs(store, queue):
            # A runner may be about to start: only who waits for a while is told.
            if not watch.wait(_NOBODY_RUNS_AFTER_S if left is None else min(left, _NOBODY_RUNS_AFTER_S)):
                note("nobody runs the queue at the moment; start it: jjq run --watch")
                has_told = True
            continue
        watch.wait(left)


def latest_log(store: Store) -> Path | None:
    """The log that was written to last: of the running check, if one runs."""
    logs = [path for path in store.home.logs.glob("*.log") if path.stem.isdigit()]
    return max(logs, key=lambda path: path.stat().st_mtime_ns, default=None)


def follow_log(store: Store, path: Path, *, follow: bool) -> Iterator[str]:
    """What is in a log; with `follow`, also what is added, until its check has ended or nobody runs any more."""
    with explaining("read", path), path.open("rb") as stream:
        last = b""
        while True:
            piece = stream.read()
            if piece:
                last = (last + piece)[-_LONGEST_END:]
                yield piece.decode(errors="replace")
            if not follow or has_ended(last) or store.lock(LockName.RUN).holder() is None:
                return
            store.clock.sleep(_LOOK_AGAIN_S)


def _somebody_runs(store: Store, queue: Queue) -> bool:
    return LockName.RUN in queue.locks or store.lock(LockName.RUN).holder() is not None


def _how_it_left(store: Store, queue: Queue, number: int, seen: Item | None) -> Outcome:
    failed = queue.failure(number)
    if failed is not None:
        known = store.failure(number)
        outcome = Outcome(
            id=number,
            state=State.FAILED,
            candidate=known.candidate if known else failed.commit,
            merge_commit_id=failed.commit.commit_id,
            failure=known,
        )
        reason = known.reason if known else "unknown reason"
        raise ItemFailed(f"item {number} failed ({reason})", outcomes=[outcome], hint=f"See why: jjq status {number}")
    events = [event for event in events_of(store) if event.item == sequence_id(number)]
    landed = next((event for event in reversed(events) if event.kind is Kind.SUCCEEDED), None)
    if landed is not None or (seen is not None and _is_on_trunk(store, seen.commit)):
        merge = landed.data.get("merge") if landed else None
        candidate = seen.commit if seen else Commit(commit_id="", change_id="")
        return Outcome(id=number, state=State.LANDED, candidate=candidate, merge_commit_id=merge)
    if not events and seen is None:
        raise NoSuchItem(f"nothing is known of item {number}", hint="See what there is: jjq status")
    requeued = next((event for event in reversed(events) if event.kind is Kind.RETRIED), None)
    if requeued is not None:
        raise ItemGone(f"item {number} was queued again", hint=f"Wait for that: jjq wait {int(requeued.data['as'])}")
    raise ItemGone(f"item {number} left the queue without landing: it was deleted", hint="See: jjq log")


def _is_on_trunk(store: Store, commit: Commit) -> bool:
    """For items that another tool landed."""
    trunk = store.look()[0].trunk_bookmark
    return bool(store.jj.commits(f"present({commit.commit_id}) & ::{named(trunk)}"))


def _state(queued: Item | None, failed: Item | None, events: tuple[Event, ...]) -> State | None:
    if queued:
        return State.QUEUED
    if failed:
        return State.FAILED
    ends = {
        Kind.SUCCEEDED: State.LANDED,
        Kind.RETRIED: State.REQUEUED,
        Kind.CANCELED: State.DELETED,
        Kind.DELETED: State.DELETED,
    }
    return next((ends[event.kind] for event in reversed(events) if event.kind in ends), None)


def _queued_view(one: Item) -> QueuedView:
    return QueuedView(
        id=one.id,
        change_id=one.commit.change_id,
        commit_id=one.commit.commit_id,
        description=one.commit.description.rstrip("\n"),
        conflicted=one.conflicted or None,
    )


def _failed_view(store: Store, one: Item) -> FailedView:
    known: Failure | None = store.failure(one.id)
    workspace = store.workspaces.of(run_workspace(one.id))
    return FailedView(
        id=one.id,
        change_id=one.commit.change_id,
        commit_id=one.commit.commit_id,
        description=one.commit.description.rstrip("\n"),
        candidate_change_id=known.candidate.change_id if known else trailer(one.commit, CANDIDATE),
        candidate_commit_id=known.candidate.commit_id if known else trailer(one.commit, CANDIDATE_COMMIT),
        trunk_commit_id=known.trunk_commit_id if known else trailer(one.commit, TRUNK),
        workspace_path=workspace.path if workspace else None,
        failure_reason=known.reason if known else None,
        conflict_paths=(known.conflict_paths or None) if known else None,
    )


def _landed(store: Store) -> tuple[LandedView, ...]:
    """The latest ones, from the end of the journal: `status` must stay quick when the history is long."""
    path = store.home.journal
    start = max(0, path.stat().st_size - _RECENT_BYTES) if path.exists() else 0
    events = [event for event, _ in read_journal(path, on_bad=_ignore, start=start) if event.kind is Kind.SUCCEEDED]
    return tuple(
        LandedView(id=int(event.item), commit_id=event.data.get("merge", ""), at=event.at)
        for event in reversed(events[-_SHOWN_LANDED:])
    )


def _ignore(_: BadLine) -> None:
    """A torn line of the journal is no reason to fail or to complain on every look; `jjq log` tells."""


#: what `delete` says it took something out of
SCOPE_WORDS = {Scope.QUEUE: "the queue", Scope.FAILED: "the failed items"}
