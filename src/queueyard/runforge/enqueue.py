"""`enqueue-run` and `enqueue-sweep`: how jobs come in."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from queueyard.kernel.errors import StorageFailed
from queueyard.runforge.errors import AlreadyQueued, InvalidValue, MissingFiles, UnknownJob, UnknownRun
from queueyard.runforge.records import Added, Extra, GroupSaved, Job
from queueyard.runforge.rules import check_id, job_ids, latest_by_run, local_iso
from queueyard.runforge.run_files import read_request, requires_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.store import Store
    from queueyard.runforge.sweeps import Sweep


def enqueue_run(
    store: Store,
    groups: GroupFiles,
    *,
    run_id: str,
    group_id: str | None = None,
    priority: int = 0,
    after: Sequence[str] = (),
    retries: int = 0,
    backoff_s: float = 0.0,
    timeout_s: float | None = None,
) -> Job:
    """Queue one run that has a folder and a request.

    UnknownRun if it has not, AlreadyQueued if it is queued or running, UnknownJob for a job to wait for that is not
    there, InvalidRequest if the request makes no sense.
    """
    check_id(run_id, "run")
    if group_id is not None:
        check_id(group_id, "group")
    if retries < 0 or backoff_s < 0 or (timeout_s is not None and timeout_s <= 0):
        raise InvalidValue("retries, back-off and time-out cannot be negative", hint="For example: --retries 2")
    try:
        request = read_request(store.workspace.run_folder_followed(run_id))
    except MissingFiles as fault:
        # The public tool says 1 here, and 3 only where a run is executed.
        raise UnknownRun(str(fault), hint=fault.hint) from fault
    with store.writing():
        _refuse_if_live(store, run_id)
        now = store.clock.now()
        job = Job(
            job_id=next(job_ids(now, store.state.jobs)),
            run_id=run_id,
            group_id=group_id,
            priority=priority,
            requires_gpu=requires_gpu(request),
            created_at=local_iso(now),
        )
        extra = Extra(
            after=tuple(_job_meant(store, name) for name in after),
            retries=retries,
            backoff_ms=round(backoff_s * 1000),
            timeout_s=timeout_s,
        )
        if not store.commit(Added(jobs=[job], extras={} if extra == Extra() else {job.job_id: extra})):
            _refuse_if_live(store, run_id)  # a tool that does not lock was faster
        if group_id is not None:
            save_group(store, groups, group_id)
    return job


def _refuse_if_live(store: Store, run_id: str) -> None:
    live = store.state.live_runs.get(run_id)
    if live is not None:
        state = store.state.jobs[live].state
        raise AlreadyQueued(f"run {run_id} is {state} already, as {live}", hint="See: runforge-cli queue-status")


def enqueue_sweep(store: Store, groups: GroupFiles, sweep: Sweep, *, priority: int = 0) -> list[Job]:
    """Queue the runs of a sweep whose folders are there: all of them, or none."""
    with store.writing():
        now = store.clock.now()
        at = local_iso(now)
        names = islice(job_ids(now, store.state.jobs), len(sweep.run_ids))
        jobs = [
            Job(
                job_id=name,
                run_id=run_id,
                group_id=sweep.group_id,
                priority=priority,
                requires_gpu=requires_gpu(run.request),
                created_at=at,
            )
            for name, run_id, run in zip(names, sweep.run_ids, sweep.plan.runs, strict=True)
        ]
        # One line: a kill leaves the whole sweep or nothing. The group follows from it and from plan.json.
        store.commit(Added(jobs=jobs))
        save_group(store, groups, sweep.group_id)
    return jobs


def save_group(store: Store, groups: GroupFiles, group_id: str, *, cancelled: bool | None = None) -> None:
    """Bring group.json up to date: with what was just committed, and with what a killed daemon did not come to tell."""
    upto = 0

    def all_as_they_are() -> list[Job]:
        nonlocal upto
        store.refresh()
        upto = store.state.unsaved.get(group_id, 0)
        return store.state.of_group(group_id)

    try:
        groups.save_jobs(group_id, all_as_they_are, cancelled=cancelled)
        store.commit(GroupSaved(group_id=group_id, upto=upto), durable=False)
    except StorageFailed as fault:
        # It is in the journal: the next daemon, or the next command on the group, brings the file up to date.
        store.warnings.append(f"group.json of {group_id} is behind: {fault}")


def _job_meant(store: Store, name: str) -> str:
    """A job by its id, or the latest job of a run."""
    if name in store.state.jobs:
        return name
    found = latest_by_run(store.state.jobs_of_run(name)).get(name)
    if found is None:
        raise UnknownJob(f"there is no job or run {name} to wait for", hint="See: runforge-cli queue-status --jobs")
    return found.job_id
