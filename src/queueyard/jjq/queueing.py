"""`push`, `retry` and `delete`: items come and go."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from queueyard.jjq.errors import BadRevset, JjFailed, NoSuchItem, StaleWorkspace
from queueyard.jjq.jj import named, pinned
from queueyard.jjq.records import Item, LockName, Requeue, Scope
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import candidate_of, item_bookmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.jjq.records import Commit
    from queueyard.jjq.store import Store

_MOST_TRIES = 3


def push(store: Store, revset: str, *, ask: Callable[[Commit], None] | None = None) -> Item:
    """Queue the one revision that the revset means. spec: push. BadRevset for none or several.

    `ask` may refuse it by raising.
    """
    store.check_jj()
    candidate = resolve_one(store, revset)
    if ask is not None:
        ask(candidate)
    recover(store)
    number, candidate = _enqueue(store, candidate, lambda: resolve_one(store, revset))
    store.journal.append(store.tell(_trunk_name(store)).queued(number, candidate))
    return Item(id=number, commit=candidate)


def retry(store: Store, number: int, revset: str | None = None, *, ask: Callable[[Commit], None] | None = None) -> Item:
    """Queue a failed item again under a new id. spec: retry. NoSuchItem if it is not among the failed.

    The failed entry goes only after the new one exists: a crash in between loses nothing, and is finished by the next
    command.
    """
    store.check_jj()
    recover(store)
    failed = store.queue().failure(number)
    if failed is None:
        raise _no_such(number, "failed")

    def resolve() -> Commit:
        return _original_candidate(store, failed) if revset is None else resolve_one(store, revset)

    candidate = resolve()
    if ask is not None:
        ask(candidate)
    new, candidate = _enqueue(store, candidate, resolve, instead_of=number)
    store.drop_failure(number)
    teller = store.tell(_trunk_name(store))
    store.journal.append(teller.requeued(number, new, candidate), teller.queued(new, candidate))
    return Item(id=new, commit=candidate)


def delete(store: Store, number: int) -> tuple[Scope, Item]:
    """Take an item out of the queue, or else out of the failed. spec: delete. NoSuchItem if it is in neither."""
    store.check_jj()
    recover(store)
    queue = store.queue()
    if queue.metadata is None:
        store.initialize()
    found = queue.item(number) or queue.failure(number)
    if found is None:
        raise _no_such(number, "queued or failed")
    scope = Scope.QUEUE if queue.item(number) else Scope.FAILED
    store.jj.delete_bookmarks(item_bookmark(scope, number))
    store.drop_failure(number)
    event = store.tell(_trunk_name(store)).deleted(number, found.commit, queued=scope is Scope.QUEUE)
    store.journal.append(event)
    return scope, found


def resolve_one(store: Store, revset: str) -> Commit:
    """The one revision that a user's revset means where he stands. BadRevset for none, several, or the root."""
    try:
        found = store.jj.resolve(revset, cwd=store.home.cwd)
    except StaleWorkspace:
        raise
    except JjFailed as fault:
        raise BadRevset(f"{revset!r} does not resolve: {_reason(fault)}", hint=fault.hint) from fault
    if not found:
        raise BadRevset(f"{revset!r} resolves to no revision", hint=f"Look at it: jj log -r {revset!r}")
    if len(found) > 1:
        some = ", ".join(commit.short for commit in found)
        more = " and more" if len(found) > 2 else ""
        raise BadRevset(f"{revset!r} resolves to several revisions: {some}{more}", hint="Name one of them.")
    if not found[0].parents:
        raise BadRevset("the root revision cannot be merged", hint="Name a revision with changes.")
    return found[0]


def _enqueue(
    store: Store, candidate: Commit, resolve: Callable[[], Commit], *, instead_of: int | None = None
) -> tuple[int, Commit]:
    """A new id and a queue bookmark, both under the id lock, so that two agents never share one."""
    with ExitStack() as clean_up, store.holding(LockName.ID):
        number, candidate = _bookmark(store, candidate, resolve, clean_up, instead_of=instead_of)
        if instead_of is not None:
            store.jj.delete_bookmarks(item_bookmark(Scope.FAILED, instead_of))
            store.end_requeue()
    return number, candidate


def _bookmark(
    store: Store, candidate: Commit, resolve: Callable[[], Commit], clean_up: ExitStack, *, instead_of: int | None
) -> tuple[int, Commit]:
    floor = 0
    for tries_left in reversed(range(_MOST_TRIES)):
        number, drop = store.take_id(floor)
        clean_up.callback(drop)
        if instead_of is not None:
            store.begin_requeue(Requeue(failed_id=instead_of, queue_id=number))
        try:
            store.jj.create_bookmark(item_bookmark(Scope.QUEUE, number), pinned(candidate))
        except JjFailed:
            # The id is in use, since somebody undid the counting; or the revision was rewritten just now.
            queue = store.queue()
            floor = max((item.id for item in (*queue.queued, *queue.failed)), default=0)
            now = resolve()
            if not tries_left or (floor < number and now == candidate):
                raise
            candidate = now
        else:
            return number, candidate
    raise AssertionError("unreachable: the last try returns or raises")


def _original_candidate(store: Store, failed: Item) -> Commit:
    """spec: retry, step 3: a user's bookmark on the second parent if there is one, else its change id.

    With what was edited just now where the caller stands: who mended the revision there means that.
    """
    candidate = candidate_of(failed)
    at = store.jj.commits(f"present({candidate})") if candidate else []
    if not at:
        raise BadRevset(
            f"nobody can say which revision item {failed.id} was", hint=f"Name it: jjq retry {failed.id} REVSET"
        )
    users = [one for one in store.jj.bookmarks_at(at[0]) if not one.startswith("jjq/")]
    found = store.jj.resolve(named(users[0]) if users else f"change_id({at[0].change_id})", cwd=store.home.cwd)
    if len(found) != 1:
        how = "several revisions" if found else "no revision any more"
        raise BadRevset(
            f"the candidate of item {failed.id}, {at[0].short}, is {how}",
            hint=f"Name the one that is meant: jjq retry {failed.id} REVSET",
        )
    return found[0]


def _trunk_name(store: Store) -> str:
    # For the journal only: a call to jj would cost more than the name is worth.
    return store.known_trunk()


def _no_such(number: int, where: str) -> NoSuchItem:
    return NoSuchItem(f"item {number} is not {where}", hint="See what there is: jjq status")


def _reason(fault: JjFailed) -> str:
    return str(fault).partition("failed: ")[2] or str(fault)
