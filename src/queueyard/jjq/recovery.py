"""What dead processes left behind, looked for by every command before it does its own work.

Looking costs no call to jj as long as there is nothing. What is found is put in order under the locks that it belongs
to: whoever holds one of them is alive, and what is his is left alone.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from queueyard.jjq.errors import JjFailed, LockHeld
from queueyard.jjq.jj import named
from queueyard.jjq.records import Landing, LockName
from queueyard.jjq.rules import Leftovers, repair, workspace_item

if TYPE_CHECKING:
    from queueyard.jjq.records import Queue, Workspace
    from queueyard.jjq.rules import Repair
    from queueyard.jjq.store import Store


def recover(store: Store) -> Repair | None:
    """Finish or undo what died; what was done, or None if there was nothing to do or a live process is at it."""
    if not store.home.private.is_dir() or not _suspicious(store):
        return None
    with ExitStack() as stack:
        free = frozenset(name for name in LockName if _take(store, name, stack))
        left = _leftovers(store, free)
        if left == Leftovers(queue=left.queue):
            return None
        done = repair(left)
        _apply(store, left, done)
    _tell(store, left, done)
    for note in done.notes:
        store.note(note)
    return done


def _suspicious(store: Store) -> bool:
    return (
        store.run_died()
        or any(store.lock(name).signer_died for name in LockName)
        or bool(store.workspaces.abandoned())
        or store.requeue() is not None
    )


def _take(store: Store, name: LockName, stack: ExitStack) -> bool:
    try:
        stack.enter_context(store.lock(name, wait=False).held(signed=False))
    except LockHeld:
        return False
    return True


def _leftovers(store: Store, free: frozenset[LockName]) -> Leftovers:
    run, ids = LockName.RUN in free, {LockName.ID, LockName.CONFIG} <= free
    landing = store.landing() if run else None
    queue = store.queue()
    return Leftovers(
        workspaces=tuple(one for one in _unclaimed(store, queue) if (run if _is_of_a_run(one) else ids)),
        locks=tuple(name for name in LockName if name in free and store.lock(name).signed_by_us),
        landing=landing,
        landed=landing is not None and _has_landed(store, landing),
        requeue=store.requeue() if LockName.ID in free else None,
        run=run and store.run_died(),
        queue=queue,
    )


def _is_of_a_run(workspace: Workspace) -> bool:
    return workspace_item(workspace.name) is not None


def _unclaimed(store: Store, queue: Queue) -> list[Workspace]:
    """Those whose maker died, and those that were kept for a failure that was never written down."""
    dead = store.workspaces.abandoned()
    queued = {item.id for item in queue.queued} - {item.id for item in queue.failed}
    return [*dead, *(one for one in store.workspaces.all() if one.preserved and workspace_item(one.name) in queued)]


def _has_landed(store: Store, landing: Landing) -> bool:
    revset = f"present(commit_id({landing.merge.commit_id})) & ::{named(landing.trunk_bookmark)}"
    try:
        return bool(store.jj.commits(revset))
    except JjFailed:
        return False  # a commit that is not even stored was never trunk


def _apply(store: Store, left: Leftovers, done: Repair) -> None:
    if done.bookmarks:
        store.jj.delete_bookmarks(*done.bookmarks)
    for one in done.kept:
        store.workspaces.preserve(one)
    changes = [one.change_id for one in done.workspaces if one.change_id]
    if done.workspaces:
        store.workspaces.forget(*(one.name for one in done.workspaces))
        for one in done.workspaces:
            store.workspaces.remove_folder(one.path)
    if done.sweep or changes:
        store.sweep(changes)
    store.workspaces.unnote(one.name for one in done.workspaces)
    for name in left.locks:
        store.lock(name).forget_sign()
    if left.landing is not None:
        store.end_landing()
    if left.requeue is not None:
        store.end_requeue()
    if left.run:
        store.end_run()


def _tell(store: Store, left: Leftovers, done: Repair) -> None:
    """Write it into the journal; without any lock, since the name of trunk may have to be asked for."""
    if left.landing is not None:
        teller = store.tell(left.landing.trunk_bookmark)
        merge = left.landing.merge
        store.journal.append(*(teller.landed(number, merge, None) for number in done.landed))
    if done.stalled:
        teller = store.tell(store.known_trunk())
        store.journal.append(*(teller.stalled(number) for number in done.stalled))
