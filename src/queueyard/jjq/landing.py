"""The steps of one item on its way to trunk: merge, land, fail. What was checked is what lands.

Landing: the item, its candidate and trunk are compared with what was checked; then trunk moves, only if it is still
where it was and only to the very revision that was checked; then the queue bookmark goes. A note written before lets
the next command finish what dies in between. Failing: first the failed bookmark is made, then the queue bookmark goes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import JjFailed
from queueyard.jjq.jj import pinned
from queueyard.jjq.records import Failure, Landing, Merge, Queue, Reason, Scope, Workspace
from queueyard.jjq.rules import item_bookmark, merge_message, run_workspace, what_changed
from queueyard.kernel.clock import to_rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.jjq.records import CheckResult, Commit, Item, Made
    from queueyard.jjq.settings import Config
    from queueyard.jjq.store import Store


def merge_in_workspace(store: Store, item: Item, base: Commit) -> tuple[Merge, Workspace]:
    """The merge revision, as the working copy of a workspace of its own. spec: run, steps 5 and 6.

    JjFailed if candidate or base were rewritten meanwhile.
    """
    message = merge_message(item.id, item.commit, base)
    workspace, made = store.workspaces.make(run_workspace(item.id), pinned(base), pinned(item.commit), message=message)
    return _merge(store, item, base, made), workspace


def merge_apart(store: Store, item: Item, base: Commit) -> Merge:
    """The merge revision alone: who checks it stands above it. JjFailed if one of the parents was rewritten."""
    made = store.jj.new(base, item.commit, message=merge_message(item.id, item.commit, base))
    return _merge(store, item, base, made)


def _merge(store: Store, item: Item, base: Commit, made: Made) -> Merge:
    return Merge(
        id=item.id,
        base=base,
        candidate=item.commit,
        commit=made.commit,
        conflict=made.conflict,
        tree=store.tree_of(made.commit),
    )


class Landed(msgspec.Struct, frozen=True, kw_only=True):
    """How an attempt to land ended."""

    #: as it is now
    queue: Queue
    #: why nothing landed; None if it did
    refused: str | None = None
    #: a version of the merge that holds leavings of its check is left over
    rewritten: bool = False


def land(
    store: Store,
    config: Config,
    merges: Sequence[Merge],
    checks: Sequence[CheckResult | None],
    *,
    trunk: Commit,
    attempt: int = 1,
) -> Landed:
    """Move trunk to the last of these merges; the items of all of them have landed then.

    The last merge is the one that was checked; the others are below it. `attempt` is the one that was checked.
    """
    queue = store.queue(config.trunk_bookmark)
    changes = (what_changed(merge, queue, trunk=trunk.commit_id) for merge in merges)
    refused = next((why for why in changes if why), None)
    if refused:
        return Landed(queue=queue, refused=refused)
    top = merges[-1].commit
    ids = tuple(merge.id for merge in merges)
    store.begin_landing(Landing(ids=ids, merge=top, trunk_bookmark=config.trunk_bookmark))
    rewritten = _move_trunk(store, config, since=trunk, to=top)
    queue = store.queue(config.trunk_bookmark)
    refused = _is_trunk(store, config, queue, top, since=trunk)
    if refused is None:
        store.jj.delete_bookmarks(*(item_bookmark(Scope.QUEUE, number) for number in ids))
        teller = store.tell(config.trunk_bookmark)
        told = zip(merges, checks, strict=True)
        store.journal.append(*(teller.landed(one.id, one.commit, check, attempt=attempt) for one, check in told))
        queue = _without(queue, ids)
    store.end_landing()
    return Landed(queue=queue, refused=refused, rewritten=rewritten)


def _move_trunk(store: Store, config: Config, *, since: Commit, to: Commit) -> bool:
    """Whether it worked is to be seen afterwards. True if another version of the revision is left over."""
    try:
        store.jj.move_bookmark(config.trunk_bookmark, since=since, to=pinned(to))
    except JjFailed:
        # A check that runs jj in its workspace gets its leavings snapshotted into the merge. Parents that are the same
        # say that this is all that happened; then the revision as it was checked is the one to land.
        if any(now.parents == to.parents for now in store.jj.commits(f"change_id({to.change_id})")):
            store.jj.move_bookmark(config.trunk_bookmark, since=since, to=to.commit_id)
        return True
    return False


def _is_trunk(store: Store, config: Config, queue: Queue, top: Commit, *, since: Commit) -> str | None:
    """Why trunk is not there after all; None if it is. Where somebody moved it at the same moment, his move counts."""
    at = list(queue.trunk.targets) if queue.trunk else []
    if [commit.commit_id for commit in at] == [top.commit_id]:
        return None
    moved = [commit for commit in at if commit.change_id != top.change_id]
    if at and not moved:
        # The item was amended at the same moment, and jj took trunk along to a version that nobody has checked.
        store.jj.set_bookmark(config.trunk_bookmark, since.commit_id)
    elif len(at) > len(moved) == 1:
        store.jj.set_bookmark(config.trunk_bookmark, moved[0].commit_id)
    return "trunk was moved, or the item was changed, at the last moment"


def _without(queue: Queue, ids: Sequence[int]) -> Queue:
    return msgspec.structs.replace(queue, queued=tuple(item for item in queue.queued if item.id not in ids))


def fail(
    store: Store,
    config: Config,
    merge: Merge,
    check: CheckResult | None,
    *,
    workspace: Workspace | None,
    attempt: int = 1,
) -> Failure:
    """The item has failed: its failed bookmark is made, its workspace kept. spec: run, steps 7 and 9."""
    paths = tuple(store.jj.conflicted_paths(merge.commit)) if merge.conflict else ()
    kept = store.workspaces.preserve(workspace) if workspace else None
    failure = Failure(
        id=merge.id,
        reason=Reason.CONFLICTS if check is None else check.reason,
        at=to_rfc3339(store.clock.now()),
        candidate=merge.candidate,
        trunk_commit_id=merge.base.commit_id,
        merge_commit_id=merge.commit.commit_id,
        workspace_path=kept.path if kept else None,
        conflict_paths=paths,
        exit_code=check.exit_code if check else None,
    )
    store.write_failure(failure)
    bookmark = item_bookmark(Scope.FAILED, merge.id)
    try:
        store.jj.create_bookmark(bookmark, pinned(merge.commit))
    except JjFailed:
        # Rewritten in its workspace, by a check that runs jj there.
        store.jj.set_bookmark(bookmark, f"change_id({merge.commit.change_id})")
    store.jj.delete_bookmarks(item_bookmark(Scope.QUEUE, merge.id))
    store.journal.append(store.tell(config.trunk_bookmark).failed(failure, check, attempt=attempt))
    return failure


def conflict_workspace(store: Store, merge: Merge) -> Workspace:
    """A workspace that stands at a conflicted merge itself, so that what is resolved there is resolved in it."""
    workspace, _ = store.workspaces.make(run_workspace(merge.id), pinned(merge.commit))
    store.jj.edit(Path(workspace.path), merge.commit)
    return workspace
