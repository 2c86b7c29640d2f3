"""Runs by their state, and groups with what each got of the daemon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import explaining
from queueyard.runforge.records import ENDED, Job, JobState, group_key
from queueyard.runforge.rules import from_local_iso, latest_by_run
from queueyard.runforge.service import RunForge
from queueyard.yard.details.parts import Log, Part, Wanted, end_of_log, jain, part, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queueyard.runforge.status import GroupStatus


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    job_id: str
    group: str
    #: one of JobState
    state: str
    priority: int
    attempt: int
    #: RFC 3339, as all times here
    queued_at: str | None
    started_at: str | None
    finished_at: str | None
    #: why it failed, or why it is queued again
    reason: str | None


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    #: paused or open
    state: str
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    #: of all starts in this queue, how many were of this group: 0 to 1
    share: float | None
    #: seconds to go, estimated
    eta_s: float | None


class RunforgeDetails(msgspec.Struct, frozen=True, kw_only=True):
    #: Jain's index over the starts of the groups
    fairness: float | None
    groups: Part[GroupRow]
    running: Part[RunRow]
    failed: Part[RunRow]
    queued: Part[RunRow]
    ended: Part[RunRow]


def look(at: str, wanted: Wanted) -> RunforgeDetails:
    forge = RunForge.open(Path(at), environment={})
    told = forge.status()
    jobs = forge.jobs()
    latest = list(latest_by_run(jobs).values())
    starts = _starts(jobs)
    return RunforgeDetails(
        fairness=jain(starts.values()) if len(starts) > 1 else None,
        groups=part((_group_row(group, starts) for group in told.groups), wanted),
        running=part(_rows(jobs, JobState.RUNNING), wanted),
        failed=part(reversed(_rows(latest, JobState.FAILED)), wanted),
        queued=part(_rows(jobs, JobState.QUEUED), wanted),
        ended=part(reversed(_rows(latest, *ENDED - {JobState.FAILED})), wanted),
    )


def log(at: str, run: str) -> Log:
    """The end of what a run printed. UnknownRun, StorageFailed."""
    path = RunForge.open(Path(at), environment={}).log_path(run)
    with explaining("read", path):
        return end_of_log(path)


def _starts(jobs: Iterable[Job]) -> dict[str, int]:
    """Group -> attempts that were started; a group that only waits has 0."""
    found: dict[str, int] = {}
    for job in jobs:
        tries = job.attempt if job.started_at else job.attempt - 1
        found[group_key(job)] = found.get(group_key(job), 0) + tries
    return found


def _rows(jobs: Iterable[Job], *states: JobState) -> list[RunRow]:
    return [_run_row(job) for job in jobs if job.state in states]


def _run_row(job: Job) -> RunRow:
    return RunRow(
        run_id=job.run_id,
        job_id=job.job_id,
        group=group_key(job),
        state=job.state,
        priority=job.priority,
        attempt=job.attempt,
        queued_at=_utc(job.created_at),
        started_at=_utc(job.started_at),
        finished_at=_utc(job.finished_at),
        reason=shortened(job.error) if job.error else None,
    )


def _group_row(group: GroupStatus, starts: dict[str, int]) -> GroupRow:
    total = sum(starts.values())
    return GroupRow(
        group=group.group_id,
        state="paused" if group.paused else "open",
        queued=group.queued,
        running=group.running,
        succeeded=group.succeeded,
        failed=group.failed,
        canceled=group.canceled,
        share=starts.get(group.group_id, 0) / total if total else None,
        eta_s=group.eta_s,
    )


def _utc(local: str | None) -> str | None:
    moment = from_local_iso(local) if local else None
    return to_rfc3339(moment) if moment else None
