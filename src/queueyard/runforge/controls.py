"""`pause-group`, `resume-group`, `retry-failed`, `cancel-group`, `prune`: what is done to jobs that are there."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.kernel.events import Kind
from queueyard.kernel.ids import find_id
from queueyard.runforge.enqueue import save_group
from queueyard.runforge.errors import UnknownGroup
from queueyard.runforge.events import group_event
from queueyard.runforge.groups import is_paused
from queueyard.runforge.records import ENDED, Added, Extra, Job, JobState, Pruned, StopWished
from queueyard.runforge.recovery import look_for
from queueyard.runforge.rules import (
    again,
    check_id,
    ended,
    extra_again,
    from_local_iso,
    job_ids,
    local_iso,
    retries_of,
)
from queueyard.runforge.store import WAKE

if TYPE_CHECKING:
    from collections.abc import Collection

    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.records import Raw
    from queueyard.runforge.store import Store


def pause_group(store: Store, groups: GroupFiles, group_id: str) -> bool:
    """No further job of the group is started; False if it was paused already. UnknownGroup."""
    return _set_paused(store, groups, group_id, paused=True)


def resume_group(store: Store, groups: GroupFiles, group_id: str) -> bool:
    """Jobs of the group are started again; False if it was not paused. UnknownGroup."""
    return _set_paused(store, groups, group_id, paused=False)


def _set_paused(store: Store, groups: GroupFiles, group_id: str, *, paused: bool) -> bool:
    check_known(store, groups, group_id)
    with store.locked():
        # A group that is known by its jobs alone gets a file for the field to stand in.
        if groups.read(group_id) is None or group_id in store.state.unsaved:
            save_group(store, groups, group_id)
        changed = False

        def act(raw: Raw) -> None:
            nonlocal changed
            changed = is_paused(raw) != paused
            raw["paused"] = paused

        groups.change(group_id, act)
    store.wake(WAKE)
    if changed:
        kind = Kind.PAUSED if paused else Kind.RESUMED
        root = str(store.workspace.root)
        store.tell(group_event(group_id, kind, store.clock.now(), source=root, actor="client"))
    return changed


def retry_failed(store: Store, groups: GroupFiles, group_id: str) -> list[Job]:
    """Queue again what failed last in the group; a run that is queued again already is left alone. UnknownGroup."""
    check_known(store, groups, group_id)
    with store.writing():
        failed = retries_of(store.state.of_group(group_id))
        failed = [job for job in failed if job.run_id not in store.state.live_runs]
        if not failed:
            _mend_group(store, groups, group_id)
            return []
        now = store.clock.now()
        names = list(islice(job_ids(now, store.state.jobs), len(failed)))
        renamed = {old.job_id: name for old, name in zip(failed, names, strict=True)}
        jobs = [again(old, renamed[old.job_id], at=local_iso(now)) for old in failed]
        extras = {
            renamed[old.job_id]: extra
            for old in failed
            if (extra := extra_again(store.state.extra_of(old.job_id), renamed)) != Extra()
        }
        store.commit(Added(jobs=jobs, extras=extras))
        save_group(store, groups, group_id, cancelled=False)
    return jobs


def cancel_group(
    store: Store, groups: GroupFiles, group_id: str, *, running: bool = False, kill_grace_s: float = 5.0
) -> list[Job]:
    """Cancel what is queued in the group, and with `running` end what runs; the jobs that it is about. UnknownGroup."""
    check_known(store, groups, group_id)
    with store.writing():
        at = local_iso(store.clock.now())
        ends = [
            ended(job, JobState.CANCELED, at=at, error="canceled by user")
            for job in store.state.of_group(group_id)
            if job.state is JobState.QUEUED
        ]
        # The daemon may have been faster with some of them: those run, and are no longer queued.
        about = [change.after for change in store.commit(*ends) if change.after] if ends else []
        if running:
            to_stop = [job for job in store.state.of_group(group_id) if job.state is JobState.RUNNING]
            about += _stop(store, to_stop, kill_grace_s)
        if about:
            save_group(store, groups, group_id, cancelled=True)
        else:
            _mend_group(store, groups, group_id)
    return about


def _mend_group(store: Store, groups: GroupFiles, group_id: str) -> None:
    """Tell what a command or a daemon that was killed did not come to tell."""
    if group_id in store.state.unsaved:
        save_group(store, groups, group_id)


def _stop(store: Store, jobs: list[Job], kill_grace_s: float) -> list[Job]:
    if jobs:
        store.commit(StopWished(jobs={job.job_id: job.attempt for job in jobs}, reason="canceled by user"))
        if not store.wake(WAKE):
            _end_without_daemon(store, jobs, kill_grace_s)
    return jobs


def _end_without_daemon(store: Store, jobs: list[Job], kill_grace_s: float) -> None:
    """Runs that outlived their daemon: nobody else is there to end them."""
    for job in jobs:
        found = look_for(job, store.state.extra_of(job.job_id), store.workspace)
        if found.is_alive and found.identity is None:
            continue  # the next daemon will find it, and the wish
        if found.identity is not None:
            proc.stop_stranger(found.identity, grace_s=kill_grace_s)
        at = local_iso(store.clock.now())
        store.commit(ended(job, JobState.CANCELED, at=at, error="canceled by user"))


def prune(
    store: Store, *, older_than_s: float, states: Collection[JobState] = ENDED, dry_run: bool = False
) -> list[Job]:
    """Take jobs out of the queue that ended long ago; run folders and groups stay. The jobs that it is about.

    A job that another one still waits for stays.
    """
    with store.writing():
        limit = store.clock.now() - timedelta(seconds=older_than_s)
        waited_for = {
            name
            for job in store.state.in_state(JobState.QUEUED, JobState.RUNNING)
            for name in store.state.extra_of(job.job_id).after
        }
        gone = [
            job
            for job in store.state.in_state(*states)
            if job.job_id not in waited_for and _ended_before(job, limit.timestamp())
        ]
        if gone and not dry_run:
            store.commit(Pruned(job_ids=[job.job_id for job in gone]))
    return gone


def _ended_before(job: Job, limit_s: float) -> bool:
    moment = from_local_iso(job.finished_at or job.created_at)
    return moment is None or moment.timestamp() <= limit_s


def check_known(store: Store, groups: GroupFiles, group_id: str) -> None:
    """UnknownGroup, with the one that may be meant, if neither a file nor a job knows the group."""
    check_id(group_id, "group")
    if groups.read(group_id) is not None:
        return
    known = store.look().group_jobs
    if group_id not in known:
        near = find_id(group_id, [*known, *groups.all_ids()])
        hint = f"Did you mean {near[0]}?" if near else "See: runforge-cli queue-status"
        raise UnknownGroup(f"Group not found: {group_id}", hint=hint)
