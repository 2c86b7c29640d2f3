"""`init`, `config`, `clean` and `check`: setting up, tidying up, and trying out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.jjq.checks import Check, output_of
from queueyard.jjq.jj import pinned
from queueyard.jjq.queueing import resolve_one
from queueyard.jjq.records import LockName, Merge, Workspace
from queueyard.jjq.recovery import recover
from queueyard.jjq.rules import trunk_of, workspace_item
from queueyard.jjq.settings import CHECK_COMMAND, TRUNK_BOOKMARK, check_key, check_value, effective

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.jjq.records import CheckResult
    from queueyard.jjq.store import Store

_OLD_LOG_S = 30 * 86_400.0
_HIDING = "::present(jjq/_/_)"


def init(store: Store, *, trunk: str | None = None, check: str | None = None, hide: bool = False) -> bool:
    """Set up explicitly what would come by itself; whether the metadata branch was made just now.

    With `hide`, jj's own log leaves out the metadata branch from now on.
    """
    store.check_jj()
    recover(store)
    values = {TRUNK_BOOKMARK: trunk, CHECK_COMMAND: check}
    wanted = {key: check_value(key, value) for key, value in values.items() if value is not None}
    if trunk is not None:
        trunk_of(store.queue(trunk), trunk)
    made = store.initialize()
    for key, value in wanted.items():
        with store.holding(LockName.CONFIG):
            store.write_config(key, value)
    if hide:
        hide_from_log(store)
    return made


def hide_from_log(store: Store) -> None:
    """Change jj's default log revset of this repository, once."""
    shown = store.jj.setting("revsets.log") or "all()"
    if _HIDING not in shown:
        store.jj.set_setting("revsets.log", f"({shown}) ~ {_HIDING}")


def config(store: Store) -> dict[str, str]:
    """Every key with its effective value. spec: config without arguments."""
    store.check_jj()
    recover(store)
    if store.queue().metadata is None:
        store.initialize()
    return effective(_stored(store))


def get_config(store: Store, key: str) -> str:
    check_key(key)
    store.check_jj()
    recover(store)
    return effective(_stored(store))[key]


def set_config(store: Store, key: str, value: str) -> str:
    """Store one value. UnknownKey, InvalidValue, or LockHeld if it cannot be."""
    value = check_value(check_key(key), value)
    store.check_jj()
    recover(store)
    with store.holding(LockName.CONFIG):
        store.write_config(key, value)
    return value


def _stored(store: Store) -> dict[str, str]:
    lock = store.lock(LockName.CONFIG)
    if not store.home.private.is_dir():
        return store.stored_config()
    with lock.held(signed=False):
        if lock.respect(store.queue()):
            raise lock.refusal()
        return store.stored_config()


def clean(store: Store, ids: Sequence[int] = (), *, dry_run: bool = False) -> list[Workspace]:
    """Remove workspaces that failed items left, of these items or of all; what was, or would be, removed.

    Those of a run that is under way are left alone. Merge revisions that nothing refers to any more are abandoned.
    """
    store.check_jj()
    recover(store)
    known = store.jj.workspaces()
    noted = {one.name: one for one in store.workspaces.all()}
    under_way = {name for name, one in noted.items() if not one.preserved}
    foreign_run = LockName.RUN in store.queue().locks
    found = [one for one in noted.values() if one.preserved]
    if not foreign_run:
        # Workspaces of other tools, or whose note was lost: jj can forget them, their folder is not ours to guess.
        strangers = [name for name in known if workspace_item(name) is not None and name not in noted]
        found += [Workspace(name=name, path="", pid=0, started="") for name in strangers]
    if ids:
        found = [one for one in found if workspace_item(one.name) in ids]
    found = [one for one in found if one.name not in under_way]
    if found and not dry_run:
        changes = [known[one.name].change_id for one in found if one.name in known]
        store.workspaces.forget(*(one.name for one in found))
        for one in found:
            if one.path:
                store.workspaces.remove_folder(one.path)
        store.workspaces.unnote(one.name for one in found)
        store.sweep(changes)
    if not dry_run:
        _remove_old_logs(store)
    return found


def _remove_old_logs(store: Store) -> None:
    queue = store.queue()
    kept = {store.log_path(item.id) for item in (*queue.queued, *queue.failed)}
    oldest = store.clock.now().timestamp() - _OLD_LOG_S
    for path in store.home.logs.glob("*.log"):
        if path not in kept and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)


def check(
    store: Store, revset: str = "@", *, merged: bool = False, wait: Callable[[Check], CheckResult]
) -> tuple[Merge, CheckResult, str]:
    """Run the check command on a revision, or on its merge with trunk, without queueing it; and what it printed."""
    store.check_jj()
    candidate = resolve_one(store, revset)
    recover(store)
    settings, queue = store.look()
    parents = [trunk_of(queue, settings.trunk_bookmark)] if merged else []
    name = store.own_workspace()
    workspace, made = store.workspaces.make(name, *(pinned(one) for one in (*parents, candidate)))
    log = store.home.logs / f"{name}.log"
    base = parents[0] if parents else candidate
    merge = Merge(id=0, base=base, candidate=candidate, commit=made.commit, conflict=made.conflict)
    try:
        trial = Check(
            merge,
            settings.check_command,
            folder=Path(workspace.path),
            log=log,
            clock=store.clock,
            timeout_s=settings.check_timeout_s,
            retries=settings.flaky_retries,
            keep=settings.keep_environment,
        )
        result = wait(trial)
        return merge, result, output_of(log, trial.output_from)
    finally:
        store.workspaces.drop(workspace)
        store.sweep([made.commit.change_id])
        log.unlink(missing_ok=True)
