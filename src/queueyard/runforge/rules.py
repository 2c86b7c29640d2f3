"""runforge's decisions: who runs next, what a failure leads to, what another tool's edit means. Pure: no I/O, no clock.

Spec sections: Scheduling Algorithm and Priority (`choose`), Health Check (`is_healthy`). `choose` is written to be
compared with the spec; the daemon uses `lineup.LineUp`, which tests hold equal to it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
import re
from typing import TYPE_CHECKING
import zlib

import msgspec

from queueyard.kernel.backoff import Backoff
from queueyard.kernel.errors import UnsafePath
from queueyard.kernel.paths import safe_segment
from queueyard.runforge.errors import InvalidValue
from queueyard.runforge.records import (
    ENDED,
    Added,
    DaemonFile,
    DaemonState,
    Ended,
    Entry,
    Extra,
    Job,
    JobState,
    Policy,
    Prioritised,
    Returned,
    group_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

#: spec: Health Check
HEARTBEAT_TIMEOUT_S = 30.0
#: a job under which so many daemons died has failed: it may be what kills them
MOST_LOST = 3

_LONGEST_BACKOFF_MS = 3_600_000
_ID = re.compile(r"[A-Za-z0-9._-]{1,256}")


# --- scheduling ------------------------------------------------------------------------------------------------------


def choose(
    waiting: Iterable[Job],
    *,
    last_served: str | None,
    served: Mapping[str, int],
    paused: Container[str] = frozenset(),
    gpu_free: bool = True,
    policy: Policy = Policy.FAIR,
) -> Job | None:
    """The job to start next, or None. `waiting` holds the queued jobs that are due, in the order in which they came.

    `served` is the number of the service that each group got last; a group that never got one comes first.
    """
    # spec: steps 1 to 3
    heads: dict[str, tuple[int, Job]] = {}
    for place, job in enumerate(waiting):
        group = group_key(job)
        if group in paused or (job.requires_gpu and not gpu_free):
            continue
        if group not in heads or job.priority > heads[group][1].priority:
            heads[group] = place, job
    # spec: step 4
    others = {group: head for group, head in heads.items() if group != last_served} or heads
    if not others:
        return None

    # spec: step 5; its own words starve a third group, hence the turn before the time
    def rank(group: str) -> tuple[int, int]:
        turn = served.get(group, 0) if policy is Policy.FAIR else 0
        return turn, others[group][0]

    return others[min(others, key=rank)][1]


def fate_of(after: Sequence[str], jobs: Mapping[str, Job]) -> tuple[JobState, str] | bool:
    """What waiting for `after` means now: True to go, False to wait on, or the end that comes without a start, and why.

    A job that is no longer in the queue was pruned, and only ended jobs are; it counts as done.
    """
    states = {name: jobs[name].state for name in after if name in jobs}
    for bad, told in ((JobState.FAILED, "failed"), (JobState.CANCELED, "was canceled")):
        for name, state in states.items():
            if state is bad:
                return bad, f"{name}, which it waits for, {told}"
    return all(state is JobState.SUCCEEDED for state in states.values())


# --- ends ------------------------------------------------------------------------------------------------------------


def after_failure(
    job: Job, extra: Extra, error: str, *, at: str, now_s: float, random: Callable[[], float]
) -> Ended | Returned:
    """What a failed attempt leads to: the end, or one more attempt after a pause."""
    if extra.retries <= 0:
        return ended(job, JobState.FAILED, at=at, error=error)
    backoff = Backoff(base_ms=extra.backoff_ms, cap_ms=max(_LONGEST_BACKOFF_MS, extra.backoff_ms), jitter=0.1)
    delay_s = backoff.delay_ms(job.attempt, random) / 1000
    return Returned(
        job_id=job.job_id,
        attempt=job.attempt,
        next_attempt=job.attempt + 1,
        at=at,
        reason=error,
        not_before=now_s + delay_s if delay_s else None,
    )


def after_loss(job: Job, extra: Extra, *, at: str) -> Ended | Returned:
    """What is done with a run whose daemon died and that ended without telling how: once more, but not for ever."""
    if extra.lost + 1 >= MOST_LOST:
        why = f"nobody saw how it ended: {extra.lost + 1} daemons died while it ran"
        return ended(job, JobState.FAILED, at=at, error=why)
    reason = "queued again: the daemon died while it ran, and nobody saw how it ended"
    return Returned(job_id=job.job_id, attempt=job.attempt, next_attempt=job.attempt, at=at, reason=reason, lost=True)


def handed_back(job: Job, reason: str, *, at: str) -> Returned:
    """A running job that its daemon gives back unfinished; the attempt is not spent."""
    return Returned(job_id=job.job_id, attempt=job.attempt, next_attempt=job.attempt, at=at, reason=reason)


def ended(job: Job, state: JobState, *, at: str, error: str | None = None) -> Ended:
    """The end of a job as it is now."""
    return Ended(job_id=job.job_id, was=job.state, attempt=job.attempt, state=state, at=at, error=error)


# --- retry -----------------------------------------------------------------------------------------------------------


def latest_by_run(jobs: Iterable[Job]) -> dict[str, Job]:
    """The last job of each run: the one that says how the run stands."""
    return {job.run_id: job for job in jobs}


def retries_of(jobs: Iterable[Job]) -> list[Job]:
    """The jobs that `retry-failed` does again: per run the last one, if it failed."""
    return [job for job in latest_by_run(jobs).values() if job.state is JobState.FAILED]


def again(job: Job, job_id: str, *, at: str) -> Job:
    """The next attempt of a failed job, as a job of its own."""
    return Job(
        job_id=job_id,
        run_id=job.run_id,
        group_id=job.group_id,
        priority=job.priority,
        requires_gpu=job.requires_gpu,
        attempt=job.attempt + 1,
        created_at=at,
    )


def extra_again(extra: Extra, renamed: Mapping[str, str]) -> Extra:
    """What the next attempt keeps; what it waits for is followed to its own next attempt."""
    after = tuple(renamed.get(name, name) for name in extra.after)
    return Extra(after=after, retries=extra.retries, backoff_ms=extra.backoff_ms, timeout_s=extra.timeout_s)


# --- other tools -----------------------------------------------------------------------------------------------------


def merge(ours: Mapping[str, Job], live_runs: Mapping[str, str], foreign: Iterable[Job], *, at: str) -> list[Entry]:
    """What a queue.json that another tool wrote adds to ours.

    Such a tool read the file, changed it and wrote it back, without a lock: what it does not hold, or holds in an
    older state, it never saw. So nothing is removed and no state goes back. It may add jobs, end a queued job and
    change its priority. That a job is running is for our own daemon to say.
    """
    entries: list[Entry] = []
    unknown: list[Job] = []
    live = set(live_runs)
    for theirs in {(job.job_id, job.run_id): job for job in reversed(list(foreign))}.values():
        mine = ours.get(theirs.job_id)
        if mine is None or mine.run_id != theirs.run_id:
            unknown.append(theirs)
        elif mine.state is JobState.QUEUED and theirs.attempt >= mine.attempt:
            if theirs.state in ENDED:
                entries.append(ended(mine, theirs.state, at=theirs.finished_at or at, error=theirs.error))
                live.discard(mine.run_id)
            elif theirs.priority != mine.priority:
                entries.append(Prioritised(job_id=mine.job_id, priority=theirs.priority))
    added = _new_jobs(reversed(unknown), ours, live)
    return [*entries, *([Added(jobs=added)] if added else [])]


def _new_jobs(unknown: Iterable[Job], ours: Mapping[str, Job], live: set[str]) -> list[Job]:
    known = dict(ours)
    added: list[Job] = []
    for raw in unknown:
        theirs = _told_apart(raw, known)
        # The public tool can hand out one run twice; two live jobs of one run would run beside each other.
        if theirs.job_id not in known and (theirs.state in ENDED or theirs.run_id not in live):
            known[theirs.job_id] = theirs
            added.append(theirs)
            if theirs.state not in ENDED:
                live.add(theirs.run_id)
    return added


def _told_apart(job: Job, known: Mapping[str, Job]) -> Job:
    """The public tool gives one id to two jobs of the same second; the second gets another, the same one each time."""
    mine = known.get(job.job_id)
    if mine is None or mine.run_id == job.run_id:
        return job
    name = f"{job.job_id}_{zlib.crc32(job.run_id.encode('utf-8', 'surrogatepass')):08x}"
    return msgspec.structs.replace(job, job_id=name)


# --- names and times -------------------------------------------------------------------------------------------------


def local_iso(moment: datetime) -> str:
    """A time as queue, daemon and group files hold it: local, without zone, with microseconds."""
    return moment.astimezone().replace(tzinfo=None).isoformat(timespec="microseconds")


def from_local_iso(text: str) -> datetime | None:
    """The time behind such a text, also with a zone; None if it is no time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def check_id(text: str, what: str) -> str:
    """An id that can be a folder and a word of a token. InvalidValue for any other."""
    try:
        safe = _ID.fullmatch(text) is not None and safe_segment(text) == text
    except UnsafePath:
        safe = False
    if not safe:
        raise InvalidValue(f"not a {what} id: {text!r}", hint="Use letters, digits, '.', '_' and '-', 256 at most.")
    return text


def job_ids(at: datetime, taken: Collection[str]) -> Iterator[str]:
    """job_YYYYMMDD_HHMMSS_NNNN, counted from 1, without those that are taken."""
    stem = f"job_{at.astimezone():%Y%m%d_%H%M%S}"
    number = 0
    while True:
        number += 1
        name = f"{stem}_{number:04d}"
        if name not in taken:
            yield name


def group_id_for(name: str, at: datetime) -> str:
    """grp_YYYYMMDD_HHMMSS_<the first 20 characters of the name, what is not a letter or digit as _>."""
    short = re.sub(r"[^A-Za-z0-9]", "_", name[:20])
    return f"grp_{at.astimezone():%Y%m%d_%H%M%S}_{short}"


def run_stem(at: datetime, try_number: int) -> str:
    """What the runs of one sweep share; further tries are for two sweeps of one second."""
    return f"{at.astimezone():%Y%m%d-%H%M%S}-sweep{'' if try_number == 1 else try_number}"


# --- health ----------------------------------------------------------------------------------------------------------


def is_healthy(daemon: DaemonFile, now: datetime) -> bool:
    """spec: Health Check."""
    beat = from_local_iso(daemon.last_heartbeat)
    return (
        daemon.state is DaemonState.RUNNING
        and beat is not None
        and now - beat <= timedelta(seconds=HEARTBEAT_TIMEOUT_S)
    )
