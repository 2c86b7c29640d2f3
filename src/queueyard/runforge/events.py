"""A change of a job or a group, told as the shared Event. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from queueyard.kernel.events import Event, Kind, System, make_event
from queueyard.runforge.records import (
    Added,
    Ended,
    JobState,
    Pruned,
    Returned,
    Started,
)
from queueyard.runforge.rules import from_local_iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from queueyard.runforge.records import Entry, Job
    from queueyard.runforge.state import Change

QUEUE = "execution"

_ENDS = {
    JobState.SUCCEEDED: Kind.SUCCEEDED,
    JobState.FAILED: Kind.FAILED,
    JobState.CANCELED: Kind.CANCELED,
}


def job_events(entry: Entry, changes: Sequence[Change], *, source: str, actor: str) -> Iterator[Event]:
    """One event per job that the entry moved; an entry that took no effect is no event.

    A job that is added as the next attempt of a failed one is retried, as is one that is queued again with a new
    attempt. One that is queued again in the same attempt was released by its daemon, or stalled when that died.
    """
    for before, after in changes:
        match entry, before, after:
            case Added(), None, job if job is not None:
                kind = Kind.RETRIED if job.attempt > 1 else Kind.QUEUED
                yield _event(job, kind, job.created_at, source, actor, change=f"{job.attempt}")
            case Started(), _, job if job is not None:
                # The same attempt may be started again after it was handed back: the time tells the two apart.
                yield _event(job, Kind.STARTED, entry.at, source, actor, change=f"{job.attempt} {entry.at}")
            case Ended(), _, job if job is not None:
                kind = _ENDS[entry.state]
                yield _event(job, kind, entry.at, source, actor, change=f"{job.attempt}", reason=entry.error)
            case Returned(), _, job if job is not None:
                again = Kind.RETRIED if entry.next_attempt > entry.attempt else Kind.RELEASED
                kind = Kind.STALLED if entry.lost else again
                change = f"{entry.next_attempt} {entry.at}"
                yield _event(job, kind, entry.at, source, actor, change=change, reason=entry.reason)
            case Pruned(), job, None if job is not None:
                at = job.finished_at or job.created_at
                yield _event(job, Kind.DELETED, at, source, actor, change="pruned")


def group_event(group_id: str, kind: Kind, at: datetime, *, source: str, actor: str) -> Event:
    """A group was paused or resumed."""
    return make_event(
        at,
        system=System.RUNFORGE,
        queue=QUEUE,
        item=group_id,
        kind=kind,
        change=at.isoformat(),
        source=source,
        group=group_id,
        actor=actor,
    )


def _event(job: Job, kind: Kind, at: str, source: str, actor: str, *, change: str, reason: str | None = None) -> Event:
    data = {"run_id": job.run_id, "priority": job.priority} | ({"gpu": True} if job.requires_gpu else {})
    return make_event(
        from_local_iso(at) or datetime.fromtimestamp(0, UTC),
        system=System.RUNFORGE,
        queue=QUEUE,
        item=job.job_id,
        kind=kind,
        change=change,
        source=source,
        attempt=job.attempt,
        group=job.group_id,
        actor=actor,
        reason=reason,
        data=data,
    )
