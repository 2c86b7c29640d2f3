"""How the queue stands: counts, groups with progress and time to go, failures; and waiting for the end of something."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel import proc
from queueyard.kernel.errors import CorruptFile, UnsafePath
from queueyard.runforge.errors import TimedOut, UnknownGroup
from queueyard.runforge.records import ENDED, UNGROUPED, DaemonFile, DaemonState, Job, JobState
from queueyard.runforge.rules import is_healthy, latest_by_run
from queueyard.runforge.store import WAKE_FOR_SNAPSHOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.state import QueueState
    from queueyard.runforge.store import Store

#: so many of its last runs say how long a run of a group takes
_SAMPLE = 50
_SHOWN_FAILURES = 5
_LOOK_EVERY_S = 0.05
_LOOK_WHETHER_TOLD_EVERY_S = 0.01
_TOLD_WITHIN_S = 5.0


class DaemonStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the daemon."""

    #: running, stopping, stopped, dead (it says that it runs, but does not) or none (there never was one)
    state: str
    pid: int | None = None
    #: spec: Health Check
    healthy: bool = False
    last_heartbeat: str | None = None
    max_parallel: int = 2
    active_jobs: int = 0


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How one group stands; a run counts by its last job."""

    group_id: str
    paused: bool
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    #: seconds to go, estimated; None where nothing is left or nothing is known
    eta_s: float | None
    #: runs that failed, the latest last, with the reason
    failures: list[dict[str, str]]

    @property
    def total(self) -> int:
        return self.queued + self.running + self.done

    @property
    def done(self) -> int:
        return self.succeeded + self.failed + self.canceled


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `queue-status` tells."""

    workspace: str
    daemon: DaemonStatus
    max_parallel: int
    gpu_slots: int
    total_jobs: int
    #: state -> jobs
    jobs: dict[str, int]
    groups: list[GroupStatus]
    #: seconds until nothing is left, estimated
    eta_s: float | None


def daemon_status(store: Store) -> DaemonStatus:
    """The daemon as it is, not only as it says."""
    try:
        known = store.daemon()
    except CorruptFile:
        return DaemonStatus(state="unknown")
    if known is None:
        return DaemonStatus(state="none")
    return DaemonStatus(
        state=_real_state(known),
        pid=known.pid,
        healthy=is_healthy(known, store.clock.now()) and _real_state(known) == DaemonState.RUNNING,
        last_heartbeat=known.last_heartbeat,
        max_parallel=known.max_parallel,
        active_jobs=known.active_jobs,
    )


def _real_state(known: DaemonFile) -> str:
    """A daemon that was killed says for ever that it is running."""
    if known.state is DaemonState.STOPPED:
        return str(known.state)
    return str(known.state) if proc.identity_of(known.pid) is not None else "dead"


def status(store: Store, groups: GroupFiles) -> Status:
    """How everything stands now; nothing is written. CorruptFile if a state file makes no sense."""
    state = store.look()
    per_group: defaultdict[str | None, list[Job]] = defaultdict(list)
    for job in state.jobs.values():
        per_group[job.group_id].append(job)
    latest = {UNGROUPED if name is None else name: latest_by_run(jobs) for name, jobs in per_group.items()}
    counts = {name: _counts(runs.values()) for name, runs in latest.items()}
    busy = sum(not ENDED.issuperset(found) for found in counts.values())
    sharing = busy / max(1, state.max_parallel)
    told = [_group_status(name, runs, counts[name], groups, sharing=sharing) for name, runs in latest.items()]
    of_jobs = _counts(state.jobs.values())
    return Status(
        workspace=str(store.workspace.root),
        daemon=daemon_status(store),
        max_parallel=state.max_parallel,
        gpu_slots=state.gpu_slots,
        total_jobs=len(state.jobs),
        jobs={str(one): of_jobs[one] for one in JobState},
        groups=told,
        eta_s=max((one.eta_s for one in told if one.eta_s is not None), default=None),
    )


def _counts(jobs: Iterable[Job]) -> Counter[JobState]:
    return Counter(map(attrgetter("state"), jobs))


def _group_status(
    name: str, latest: Mapping[str, Job], counts: Counter[JobState], groups: GroupFiles, *, sharing: float
) -> GroupStatus:
    """`latest` is the last job of each run, `sharing` how many groups share one slot."""
    left = counts[JobState.QUEUED] + counts[JobState.RUNNING]
    takes_s = mean_duration_s(latest.values()) if left else None
    failures: Iterable[Job] = ()
    if counts[JobState.FAILED]:
        failures = deque((job for job in latest.values() if job.state is JobState.FAILED), maxlen=_SHOWN_FAILURES)
    return GroupStatus(
        group_id=name,
        paused=bool(counts[JobState.QUEUED]) and name != UNGROUPED and _is_paused(groups, name),
        queued=counts[JobState.QUEUED],
        running=counts[JobState.RUNNING],
        succeeded=counts[JobState.SUCCEEDED],
        failed=counts[JobState.FAILED],
        canceled=counts[JobState.CANCELED],
        eta_s=None if takes_s is None else left * takes_s * sharing,
        failures=[{"run_id": job.run_id, "error": job.error or ""} for job in failures],
    )


def _is_paused(groups: GroupFiles, name: str) -> bool:
    try:
        return groups.is_paused(name)
    except UnsafePath:
        return False


def mean_duration_s(jobs: Iterable[Job]) -> float | None:
    """How long the last runs took; None before the first one ended."""
    done = deque((job for job in jobs if job.started_at and job.finished_at), maxlen=_SAMPLE)
    spans = [span for job in done if (span := _duration_s(job)) is not None]
    return sum(spans) / len(spans) if spans else None


def _duration_s(job: Job) -> float | None:
    try:
        # Both are local times without zone, so the difference needs none.
        span = datetime.fromisoformat(job.finished_at or "") - datetime.fromisoformat(job.started_at or "")
    except (ValueError, TypeError):
        return None
    return max(0.0, span.total_seconds())


def wait(store: Store, target: str, *, timeout_s: float | None = None) -> dict[str, int]:
    """Wait until a group, a run or a job is over and the files say so; how its runs ended. UnknownGroup, TimedOut."""
    deadline = None if timeout_s is None else store.clock.monotonic() + timeout_s
    while True:
        jobs = _jobs_meant(store.look(), target)
        if not jobs:
            raise UnknownGroup(f"there is no group, run or job {target}", hint="See: runforge-cli queue-status")
        left = [job for job in jobs if job.state not in ENDED]
        if not left:
            _wait_until_told(store, jobs)
            return {str(state): sum(job.state is state for job in jobs) for state in JobState if state in ENDED}
        if deadline is not None and store.clock.monotonic() >= deadline:
            raise TimedOut(
                f"{target} is not over after {timeout_s:g} s: {len(left)} of {len(jobs)} to go",
                hint=f"Wait on: runforge-cli wait {target}",
            )
        store.clock.sleep(_LOOK_EVERY_S)


def _wait_until_told(store: Store, jobs: Iterable[Job]) -> None:
    """Let queue.json and group.json catch up with what is over, where a daemon is there to write them."""
    mark, groups = store.state.changed_at, {job.group_id for job in jobs}
    deadline = store.clock.monotonic() + _TOLD_WITHIN_S
    is_served = store.wake(WAKE_FOR_SNAPSHOT)
    while is_served and store.clock.monotonic() < deadline:
        state = store.look()
        # A journal that starts anew counts from its own beginning; its checkpoint came after a snapshot.
        if state.is_told_to(min(mark, state.changed_at)) and groups.isdisjoint(state.unsaved):
            return
        store.clock.sleep(_LOOK_WHETHER_TOLD_EVERY_S)


def _jobs_meant(state: QueueState, target: str) -> list[Job]:
    """The last job of each run that is meant."""
    if target in state.jobs:
        return [state.jobs[target]]
    jobs = state.of_group(target) or state.jobs_of_run(target)
    return list(latest_by_run(jobs).values())
