"""Queued and running runs; a run that failed and was tried again counts by its last job only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.events import System
from queueyard.runforge.records import JobState
from queueyard.runforge.rules import from_local_iso
from queueyard.runforge.service import RunForge
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from queueyard.runforge.records import Job
    from queueyard.runforge.status import DaemonStatus

_HEALTH = {"none": "no daemon", "stopped": "no daemon", "dead": "daemon died", "unknown": "daemon unknown"}


def glance(at: str, now: datetime) -> Glance:
    forge = RunForge.open(Path(at), environment={})
    told = forge.status()
    waiting = told.jobs[JobState.QUEUED]
    return Glance(
        system=System.RUNFORGE,
        at=at,
        waiting=waiting,
        running=told.jobs[JobState.RUNNING],
        failed=sum(group.failed for group in told.groups),
        oldest_wait_s=_oldest_wait_s(forge.jobs(), now) if waiting else None,
        health=_health(told.daemon),
        is_well=told.daemon.healthy or not (waiting or told.jobs[JobState.RUNNING]),
    )


def _health(daemon: DaemonStatus) -> str:
    if daemon.state in _HEALTH:
        return _HEALTH[daemon.state]
    return f"daemon {daemon.state}" if daemon.healthy else "daemon hangs"


def _oldest_wait_s(jobs: Iterable[Job], now: datetime) -> float | None:
    created = (from_local_iso(job.created_at) for job in jobs if job.state is JobState.QUEUED)
    return max(((now - moment).total_seconds() for moment in created if moment is not None), default=None)
