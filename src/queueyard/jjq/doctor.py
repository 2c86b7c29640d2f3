"""What may be wrong with a queue, and the repair of each.

Looking changes nothing, except that what a dead process left behind is put in order, as by every command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import ConflictedBookmark, CorruptMetadata, InvalidValue, JjFailed, LockHeld, TrunkTrouble
from queueyard.jjq.jj import NEWEST_KNOWN
from queueyard.jjq.records import METADATA, Commit, LockName, Scope
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import item_bookmark, lock_bookmark, parse_last_id, trunk_of, workspace_item
from queueyard.jjq.settings import CHECK_COMMAND, DEFAULTS, TRUNK_BOOKMARK, effective, read_config
from queueyard.jjq.store import LAST_ID
from queueyard.kernel.findings import Finding

if TYPE_CHECKING:
    from queueyard.jjq.records import Queue
    from queueyard.jjq.store import Store

_Mend = Callable[[], object]
_Look = Iterator[tuple[Finding, _Mend | None]]


def examine(store: Store, *, fix: bool = False) -> list[Finding]:
    """Everything that is wrong; with `fix`, what can be mended is mended. Later looks see what earlier ones mended."""
    store.check_jj()
    recover(store)
    found: list[Finding] = []
    looks = (_version, _metadata, _counter, _items, _doubles, _locks, _strangers, _workspaces, _leftovers, _config)
    for look in looks:
        for finding, mend in look(store):
            if fix and mend is not None:
                mend()
                found.append(msgspec.structs.replace(finding, fixed=True))
            else:
                found.append(finding)
    return found


def _finding(check: str, problem: str, advice: str, mend: _Mend | None = None) -> tuple[Finding, _Mend | None]:
    return Finding(check=check, problem=problem, advice=advice, fixable=mend is not None), mend


def _version(store: Store) -> _Look:
    version = store.jj.version()
    if version > NEWEST_KNOWN:
        told = (
            f"jj {version[0]}.{version[1]} is newer than {NEWEST_KNOWN[0]}.{NEWEST_KNOWN[1]}, the newest that was tried"
        )
        yield _finding("jj", told, "It will probably work; look for a newer queueyard.")


def _metadata(store: Store) -> _Look:
    head = store.queue().metadata
    if head is not None and head.conflicted:
        yield _finding(
            "metadata",
            f"{METADATA} points to {len(head.targets)} revisions",
            "--fix keeps the one that counted furthest, with the configuration of all",
            lambda: _join_metadata(store, head.targets),
        )


def _join_metadata(store: Store, targets: tuple[Commit, ...]) -> None:
    contents = [store.jj.files(commit.commit_id) for commit in targets]
    order = sorted(range(len(targets)), key=lambda number: _count(contents[number]))
    with store.lock(LockName.ID).held(signed=False), store.lock(LockName.CONFIG).held(signed=False):
        store.jj.set_bookmark(METADATA, targets[order[-1]].commit_id)
        joined = {name: raw for number in order for name, raw in contents[number].items() if name != LAST_ID}
        joined[LAST_ID] = str(max(_count(contents[order[-1]]), _highest(store.queue()))).encode()
        store.write_metadata(joined)
    # The others are revisions of ours that nobody needs; what somebody built on one stays.
    others = " | ".join(f"change_id({commit.change_id})" for commit in targets)
    store.jj.abandon(f"({others}) & visible_heads() ~ bookmarks()")


def _count(files: dict[str, bytes]) -> int:
    try:
        return parse_last_id(files.get(LAST_ID))
    except CorruptMetadata:
        return 0


def _counter(store: Store) -> _Look:
    try:
        files = store.metadata()
    except ConflictedBookmark:
        return
    if files is None:
        return
    highest = _highest(store.queue())

    def mend() -> None:
        with store.lock(LockName.ID).held(signed=False):
            store.write_metadata({LAST_ID: str(max(highest, _count(files))).encode()})

    try:
        last = parse_last_id(files.get(LAST_ID))
    except CorruptMetadata as fault:
        yield _finding("counter", str(fault), f"--fix sets it to {highest}, the highest id in use", mend)
        return
    if last < highest:
        problem = f"last_id is {last}, but item {highest} exists"
        yield _finding("counter", problem, f"--fix sets it to {highest}", mend)


def _highest(queue: Queue) -> int:
    return max((item.id for item in (*queue.queued, *queue.failed)), default=0)


def _items(store: Store) -> _Look:
    queue = store.queue()
    for scope, items in ((Scope.QUEUE, queue.queued), (Scope.FAILED, queue.failed)):
        for item in items:
            if item.conflicted:
                name = item_bookmark(scope, item.id)
                yield _finding(
                    "conflicted items",
                    f"{name} points to several revisions",
                    "--fix keeps the latest of them",
                    lambda name=name: _keep_latest(store, name),  # type: ignore[misc]
                )


def _keep_latest(store: Store, name: str) -> None:
    targets = next(one.targets for one in store.jj.bookmarks(store.jj.exact(name)) if one.name == name)
    among = " | ".join(f"commit_id({commit.commit_id})" for commit in targets)
    latest = store.jj.commits(f"latest({among})")
    store.jj.set_bookmark(name, latest[0].commit_id)


def _doubles(store: Store) -> _Look:
    queue = store.queue()
    for item in queue.queued:
        if queue.failure(item.id):
            name = item_bookmark(Scope.QUEUE, item.id)
            yield _finding(
                "items",
                f"item {item.id} is queued and failed at once",
                "--fix lets the failure count",
                lambda name=name: store.jj.delete_bookmarks(name),  # type: ignore[misc]
            )


def _locks(store: Store) -> _Look:
    for text in sorted(store.queue().locks):
        name = LockName(text)
        try:
            with store.lock(name, wait=False).held(signed=False):
                free = True
        except LockHeld:
            free = False
        if free:
            since = store.jj.bookmark_made_at(lock_bookmark(name))
            yield _finding(
                "locks",
                f"the bookmark {lock_bookmark(name)} exists"
                + (f" since {since}" if since else "")
                + ", nobody of ours holds it",
                "--fix deletes it; wait if a tool that only makes the bookmark may be at work",
                lambda name=name: store.jj.delete_bookmarks(lock_bookmark(name)),  # type: ignore[misc]
            )


def _strangers(store: Store) -> _Look:
    for name in store.queue().strangers:
        yield _finding(
            "bookmarks", f"{name} is no bookmark of the format", f"If nobody needs it: jj bookmark delete {name}"
        )


def _workspaces(store: Store) -> _Look:
    known = store.jj.workspaces()
    noted = {one.name: one for one in store.workspaces.all()}
    for name, one in noted.items():
        if one.preserved and not Path(one.path).is_dir():

            def forget(name: str = name) -> None:
                store.workspaces.forget(name)
                store.workspaces.unnote([name])

            yield _finding("workspaces", f"the folder of {name} is gone: {one.path}", "--fix forgets it", forget)
    running = LockName.RUN in store.queue().locks or store.lock(LockName.RUN).holder() is not None
    for name in known:
        if workspace_item(name) is not None and name not in noted and not running:
            yield _finding(
                "workspaces",
                f"nobody knows where the workspace {name} is",
                "--fix forgets it",
                lambda name=name: store.workspaces.forget(name),  # type: ignore[misc]
            )


def _leftovers(store: Store) -> _Look:
    if store.lock(LockName.RUN).holder() is not None:
        return
    left = store.leftover_merges()
    if left:
        some = ", ".join(commit.short for commit in left[:3])
        yield _finding(
            "revisions",
            f"{len(left)} merge revisions of ours that nothing refers to: {some}",
            "--fix abandons them",
            store.sweep,
        )


def _config(store: Store) -> _Look:
    try:
        stored = store.stored_config()
    except (ConflictedBookmark, JjFailed):
        return
    try:
        read_config(stored)
    except InvalidValue as fault:
        yield _finding("configuration", str(fault), fault.hint or "Write it anew.")
    values = effective(stored)
    queue = store.queue(values[TRUNK_BOOKMARK])
    try:
        trunk_of(queue, values[TRUNK_BOOKMARK])
    except TrunkTrouble as fault:
        yield _finding("trunk", str(fault), fault.hint or "")
    if queue.metadata is not None and values[CHECK_COMMAND] == DEFAULTS[CHECK_COMMAND]:
        yield _finding(
            "configuration", "no check command is set, so nothing can land", "jjq config check_command 'make test'"
        )
