"""jjq's decisions: names, ids, what bookmarks say, whether a checked merge may still land, how a crash is repaired.

Pure: no I/O, no clock, no randomness.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import BadId, ConflictedBookmark, CorruptMetadata, IdsExhausted, TrunkTrouble
from queueyard.jjq.records import (
    HIGHEST_ID,
    LOWEST_ID,
    METADATA,
    Bookmark,
    Commit,
    Item,
    Landing,
    LockName,
    Merge,
    Queue,
    Requeue,
    Scope,
    Workspace,
)
from queueyard.kernel.ids import sequence_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: what every bookmark of ours matches, and no bookmark of a user should
OUR_BOOKMARKS = "glob:jjq/*/*"

_ITEM = re.compile(r"jjq/(queue|failed)/(\d{6})", re.ASCII)
_LOCK = re.compile(r"jjq/lock/([a-z]+)")
_RUN = re.compile(r"jjq/run/(\d{6})", re.ASCII)

#: in the description of every merge revision of ours
SEQUENCE, CANDIDATE, CANDIDATE_COMMIT, TRUNK = "jjq-sequence", "jjq-candidate", "jjq-candidate-commit", "jjq-trunk"

# --- names ------------------------------------------------------------------------------------------------------------


def parse_id(text: str) -> int:
    """A sequence id as typed, with or without zeros before it. BadId for everything else."""
    if not (text.isascii() and text.isdigit() and LOWEST_ID <= int(text) <= HIGHEST_ID):
        raise BadId(
            f"not an id: {text!r}", hint=f"An id is a number from {LOWEST_ID} to {HIGHEST_ID}; see them: jjq status"
        )
    return int(text)


def item_bookmark(scope: Scope, number: int) -> str:
    return f"jjq/{scope}/{sequence_id(number)}"


def lock_bookmark(name: LockName) -> str:
    return f"jjq/lock/{name}"


def run_workspace(number: int) -> str:
    """spec: Workspace Naming."""
    return f"jjq/run/{sequence_id(number)}"


def workspace_item(name: str) -> int | None:
    """The item of a run workspace; None for any other workspace."""
    found = _RUN.fullmatch(name)
    return int(found[1]) if found else None


# --- what the bookmarks say -------------------------------------------------------------------------------------------


def read_queue(bookmarks: Iterable[Bookmark], *, trunk: str | None = None) -> Queue:
    """The state that is written in bookmarks. `trunk` is the name of the trunk bookmark, if it is among them."""
    items: dict[str, list[Item]] = {Scope.QUEUE: [], Scope.FAILED: []}
    locks: set[str] = set()
    strangers: list[str] = []
    metadata: Bookmark | None = None
    at_trunk: Bookmark | None = None
    for one in bookmarks:
        item, lock = _ITEM.fullmatch(one.name), _LOCK.fullmatch(one.name)
        if item and int(item[2]) >= LOWEST_ID:
            items[item[1]].append(Item(id=int(item[2]), commit=one.targets[0], conflicted=one.conflicted))
        elif lock and lock[1] in set(LockName):
            locks.add(lock[1])
        elif one.name == METADATA:
            metadata = one
        elif one.name == trunk:
            at_trunk = one
        elif not _RUN.fullmatch(one.name):
            strangers.append(one.name)
    return Queue(
        queued=tuple(sorted(items[Scope.QUEUE], key=_number)),
        failed=tuple(sorted(items[Scope.FAILED], key=_number, reverse=True)),
        locks=frozenset(locks),
        metadata=metadata,
        trunk=at_trunk,
        strangers=tuple(strangers),
    )


def _number(item: Item) -> int:
    return item.id


def trunk_of(queue: Queue, name: str) -> Commit:
    """Where trunk is. TrunkTrouble if the bookmark is missing or conflicted."""
    if queue.trunk is None:
        raise TrunkTrouble(
            f"there is no bookmark {name!r} to land on",
            hint=f"Make it: jj bookmark create {name} -r REVISION    or name another: jjq config trunk_bookmark NAME",
        )
    if queue.trunk.conflicted:
        at = ", ".join(f"{commit.short} ({commit.subject or 'no description'})" for commit in queue.trunk.targets)
        raise TrunkTrouble(
            f"the bookmark {name!r} is conflicted: {at}",
            hint=f"Say where it belongs: jj bookmark set {name} -r REVISION",
        )
    at_root = not queue.trunk.targets[0].parents
    if at_root:
        raise TrunkTrouble(
            f"the bookmark {name!r} is at the root revision, which nothing can be merged with",
            hint=f"Point it to a first revision: jj bookmark set {name} -r REVISION",
        )
    return queue.trunk.targets[0]


def landable(item: Item) -> Item:
    """The item itself. ConflictedBookmark if nobody can say which revision it means."""
    if item.conflicted:
        raise ConflictedBookmark(
            f"item {item.id} points to several revisions",
            hint=f"Let the latest one count: jjq doctor --fix    or take it out: jjq delete {item.id}",
        )
    return item


def parse_last_id(raw: bytes | None) -> int:
    """The counter. CorruptMetadata if it is not there or no number: reading it as 0 would give ids out twice."""
    text = (raw or b"").strip()
    if not text.isdigit() or int(text) > HIGHEST_ID:
        raise CorruptMetadata(
            f"last_id on {METADATA} is not a number: {text[:40]!r}",
            hint="Count anew from the bookmarks: jjq doctor --fix",
        )
    return int(text)


def next_id(last: int, queue: Queue | None = None) -> int:
    """The next sequence id: above the counter and above every id in use. IdsExhausted after the last one."""
    used = [item.id for item in (*queue.queued, *queue.failed)] if queue else []
    number = max([last, *used]) + 1
    if number > HIGHEST_ID:
        raise IdsExhausted(
            f"all sequence ids up to {HIGHEST_ID} are used",
            hint="The spec has no larger ones: start with a new repository.",
        )
    return number


# --- merges -----------------------------------------------------------------------------------------------------------


def merge_message(number: int, candidate: Commit, base: Commit) -> str:
    """The description of a merge revision, with the trailers by which tools of this format know it."""
    subject = candidate.subject or f"revision {candidate.short}"
    return (
        f"merge {number}: {subject}\n\n"
        f"{SEQUENCE}: {number}\n"
        f"{CANDIDATE}: {candidate.change_id}\n"
        f"{CANDIDATE_COMMIT}: {candidate.commit_id}\n"
        f"{TRUNK}: {base.commit_id}\n"
    )


def trailer(commit: Commit, key: str) -> str | None:
    """The value of a trailer of ours; None if there is none."""
    found = re.search(rf"^{key}: (\S+)$", commit.description, re.MULTILINE)
    return found[1] if found else None


def candidate_of(failed: Item) -> str | None:
    """The candidate behind a failed merge revision, as a commit or change id: its second parent.

    The public tool may have rebased instead of merged; then the trailer tells. None if neither does.
    """
    if len(failed.commit.parents) > 1:
        return failed.commit.parents[1]
    return trailer(failed.commit, CANDIDATE)


def what_changed(merge: Merge, queue: Queue, *, trunk: str) -> str | None:
    """Why a checked merge may not land: something is no longer what was checked. None if it may.

    For a merge in the middle of a batch or of a window, `trunk` is not compared: its base is another merge.
    """
    item = queue.item(merge.id)
    if item is None:
        return f"item {merge.id} was taken out of the queue"
    if item.conflicted or item.commit.commit_id != merge.candidate.commit_id:
        return f"item {merge.id} was changed"
    at = queue.trunk.targets if queue.trunk else ()
    if [commit.commit_id for commit in at] != [trunk]:
        return "trunk was moved"
    return None


# --- after a crash ----------------------------------------------------------------------------------------------------


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What processes that died left behind; nobody who lives holds the locks that belong to it."""

    #: temporary workspaces whose maker is dead, and those that were kept for an item that is queued all the same
    workspaces: tuple[Workspace, ...] = ()
    #: locks whose bookmark we made and nobody holds
    locks: tuple[LockName, ...] = ()
    #: trunk was about to move
    landing: Landing | None = None
    #: and it did
    landed: bool = False
    #: a failed item was about to be queued again
    requeue: Requeue | None = None
    #: a run died
    run: bool = False
    queue: Queue = Queue()


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What brings the queue in order again. Doing it twice does no harm."""

    #: bookmarks to delete
    bookmarks: tuple[str, ...] = ()
    #: workspaces to forget, with their folders
    workspaces: tuple[Workspace, ...] = ()
    #: workspaces of items that had failed: to be kept for somebody to look at
    kept: tuple[Workspace, ...] = ()
    #: whether merge revisions that nothing refers to are to be abandoned
    sweep: bool = False
    #: items that had landed
    landed: tuple[int, ...] = ()
    #: items that were in the middle of a run and are queued still
    stalled: tuple[int, ...] = ()
    #: what to tell the user
    notes: tuple[str, ...] = ()


def repair(left: Leftovers) -> Repair:
    """Finish what had been decided, undo what had not.

    Decided is: a landing whose trunk has moved (its items leave the queue), a failure whose bookmark exists (the item
    leaves the queue), a requeue whose new bookmark exists (the failed one goes).
    """
    queued = {item.id for item in left.queue.queued}
    failed = {item.id for item in left.queue.failed}
    landed = tuple(number for number in left.landing.ids if number in queued) if left.landing and left.landed else ()
    twice = tuple(sorted(queued & failed)) if left.run else ()
    gone = [item_bookmark(Scope.QUEUE, number) for number in dict.fromkeys((*landed, *twice))]
    if left.requeue and left.requeue.queue_id in queued and left.requeue.failed_id in failed:
        gone.append(item_bookmark(Scope.FAILED, left.requeue.failed_id))
    locks = [name for name in left.locks if name in left.queue.locks]
    kept = tuple(one for one in left.workspaces if workspace_item(one.name) in failed)
    dropped = tuple(one for one in left.workspaces if one not in kept)
    running = {number for one in dropped if (number := workspace_item(one.name)) is not None}
    return Repair(
        bookmarks=(*gone, *map(lock_bookmark, locks)),
        workspaces=dropped,
        kept=kept,
        sweep=left.run,
        landed=landed,
        stalled=tuple(sorted((running & queued) - {*landed, *twice})),
        notes=tuple(_notes(left, locks, landed)),
    )


def _notes(left: Leftovers, locks: Sequence[LockName], landed: Sequence[int]) -> Iterable[str]:
    if left.run:
        told = f"; it had landed {_numbers(landed)}" if landed else ""
        yield f"a run had died; what it left behind is put in order{told}"
    yield from (f"recovered the {name} lock of a process that died" for name in locks)


def _numbers(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
