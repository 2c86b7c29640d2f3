"""The queue in memory: what the entries of the journal, one after the other, make of it. Pure.

Whoever reads the same journal comes to the same state. An entry that does not fit what is there (a job that was
canceled cannot be started) changes nothing, for every reader alike; that is how two writers who did not see each
other are told apart.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from queueyard.runforge.records import (
    ENDED,
    TRANSITIONS,
    Added,
    Checkpoint,
    Ended,
    Extra,
    GroupSaved,
    Job,
    JobState,
    Limits,
    Prioritised,
    Pruned,
    Published,
    QueueFile,
    Returned,
    Spawned,
    Started,
    StopWished,
    group_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from queueyard.runforge.records import Entry

_NOTHING_MORE = Extra()


class Change(NamedTuple):
    """One job, before and after an entry; `before` is None for a new one, `after` for one that was pruned."""

    before: Job | None
    after: Job | None


class QueueState:
    """Every job, in the order in which they came, and what the scheduler remembers."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.extras: dict[str, Extra] = {}
        #: run -> the job of it that is queued or running
        self.live_runs: dict[str, str] = {}
        #: group -> its jobs
        self.group_jobs: dict[str, list[str]] = {}
        self.max_parallel = 2
        self.gpu_slots = 1
        self.last_served_group: str | None = None
        self.served: dict[str, int] = {}
        self._services = 0
        #: group -> the byte of the journal at which it last changed, as long as its group.json does not tell
        self.unsaved: dict[str, int] = {}
        #: what queue.json was when we wrote it last, and what it told
        self.published: Published | None = None
        #: the byte of the journal behind the last entry that queue.json has to tell
        self.changed_at = 0

    @classmethod
    def restore(cls, checkpoint: Checkpoint) -> QueueState:
        """The state that a checkpoint holds."""
        state = cls()
        state.max_parallel = checkpoint.max_parallel
        state.gpu_slots = checkpoint.gpu_slots
        state.last_served_group = checkpoint.last_served_group
        state.served = dict(checkpoint.served)
        state._services = max(state.served.values(), default=0)
        state.unsaved = dict.fromkeys(checkpoint.unsaved, 0)
        if checkpoint.published:
            file, checksum = checkpoint.published
            state.published = Published(upto=0, file=file, checksum=checksum)
        state.extras = dict(checkpoint.extras)
        # `_keep_new` for each would be half of what a command takes that looks at 100,000 jobs.
        state.jobs = {job.job_id: job for job in checkpoint.jobs}
        state.live_runs = {job.run_id: job.job_id for job in checkpoint.jobs if job.state not in ENDED}
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for job in checkpoint.jobs:
            if job.group_id is not None:
                groups[job.group_id].append(job.job_id)
        state.group_jobs = dict(groups)
        return state

    def checkpoint(self, journal: str) -> Checkpoint:
        """All of it, for a journal that starts anew."""
        return Checkpoint(
            journal=journal,
            max_parallel=self.max_parallel,
            gpu_slots=self.gpu_slots,
            last_served_group=self.last_served_group,
            served=self.served,
            unsaved=list(self.unsaved),
            published=(self.published.file, self.published.checksum) if self.published else None,
            extras=self.extras,
            jobs=list(self.jobs.values()),
        )

    def queue_file(self) -> QueueFile:
        """What other tools are to see."""
        return QueueFile(
            max_parallel=self.max_parallel,
            gpu_slots=self.gpu_slots,
            jobs=list(self.jobs.values()),
            last_served_group=self.last_served_group,
        )

    def extra_of(self, job_id: str) -> Extra:
        return self.extras.get(job_id, _NOTHING_MORE)

    def in_state(self, *states: JobState) -> Iterator[Job]:
        return (job for job in self.jobs.values() if job.state in states)

    def of_group(self, group_id: str) -> list[Job]:
        """The jobs of a group, in the order in which they came."""
        return [self.jobs[name] for name in self.group_jobs.get(group_id, ()) if name in self.jobs]

    def jobs_of_run(self, run_id: str) -> list[Job]:
        return [job for job in self.jobs.values() if job.run_id == run_id]

    def waiting_jobs(self) -> Iterable[str]:
        """Those that the contract's fields alone do not explain: with something to wait for."""
        return (name for name, extra in self.extras.items() if extra.after or extra.not_before)

    # --- entries -----------------------------------------------------------------------------------------------------

    def apply(self, entry: Entry, offset: int) -> list[Change]:
        """Let an entry that stands before byte `offset` of the journal take effect; what it changed, maybe nothing."""
        changes = self._applied(entry)
        if changes or isinstance(entry, Limits):
            self.changed_at = offset
        for _, after in changes:
            # A group goes on telling of runs whose jobs were pruned.
            if after is not None and after.group_id is not None:
                self.unsaved[after.group_id] = offset
        return changes

    @property
    def is_behind(self) -> bool:
        """Whether queue.json does not tell everything yet."""
        return not self.is_told_to(self.changed_at)

    def is_told_to(self, offset: int) -> bool:
        """Whether queue.json tells everything up to a byte of the journal."""
        return self.published is not None and self.published.upto >= offset

    def _applied(self, entry: Entry) -> list[Change]:
        handler: Callable[[QueueState, Entry], list[Change]] = self._HANDLERS[type(entry)]
        return handler(self, entry)

    def _publish(self, entry: Published) -> list[Change]:
        self.published = entry
        return []

    def _save_group(self, entry: GroupSaved) -> list[Change]:
        if self.unsaved.get(entry.group_id, entry.upto + 1) <= entry.upto:
            del self.unsaved[entry.group_id]
        return []

    def _limit(self, entry: Limits) -> list[Change]:
        self.max_parallel, self.gpu_slots = entry.max_parallel, entry.gpu_slots
        self.last_served_group = entry.last_served_group or self.last_served_group
        return []

    def _add(self, entry: Added) -> list[Change]:
        new = []
        for job in entry.jobs:
            # One live job per run: two writers that did not see each other may have queued it twice.
            if job.job_id not in self.jobs and (job.state in ENDED or job.run_id not in self.live_runs):
                self._keep_new(job)
                new.append(job)
        self.extras.update({job.job_id: entry.extras[job.job_id] for job in new if job.job_id in entry.extras})
        # Jobs that another tool ran: its groups had their turns in the order of the starts.
        for job in sorted((job for job in new if job.started_at), key=lambda job: job.started_at or ""):
            self._serve(job)
        return [Change(None, job) for job in new]

    def _start(self, entry: Started) -> list[Change]:
        job = self.jobs.get(entry.job_id)
        if job is None or job.state is not JobState.QUEUED or job.attempt != entry.attempt:
            return []
        self._serve(job)
        self.last_served_group = group_key(job)
        self._forget_process(job.job_id)
        return [self._move(job, JobState.RUNNING, started_at=entry.at, finished_at=None, error=None)]

    def _spawned(self, entry: Spawned) -> list[Change]:
        job = self.jobs.get(entry.job_id)
        if job is not None and job.state is JobState.RUNNING and job.attempt == entry.attempt:
            extra = self.extra_of(job.job_id)
            self.extras[job.job_id] = msgspec.structs.replace(extra, pid=entry.pid, pid_started=entry.pid_started)
        return []

    def _end(self, entry: Ended) -> list[Change]:
        job = self.jobs.get(entry.job_id)
        if job is None or job.state is not entry.was or job.attempt != entry.attempt:
            return []
        if entry.state not in TRANSITIONS.get(job.state, frozenset()):
            return []
        self.live_runs.pop(job.run_id, None)
        self._forget_process(job.job_id)
        return [self._move(job, entry.state, finished_at=entry.at, error=entry.error)]

    def _return(self, entry: Returned) -> list[Change]:
        job = self.jobs.get(entry.job_id)
        if job is None or job.state is not JobState.RUNNING or job.attempt != entry.attempt:
            return []
        self._forget_process(job.job_id)
        extra = self.extra_of(job.job_id)
        spent = entry.next_attempt - entry.attempt
        extra = msgspec.structs.replace(
            extra, not_before=entry.not_before, lost=extra.lost + entry.lost, retries=max(0, extra.retries - spent)
        )
        self._keep_extra(job.job_id, extra)
        return [
            self._move(
                job,
                JobState.QUEUED,
                started_at=None,
                finished_at=None,
                attempt=entry.next_attempt,
                error=entry.reason,
            )
        ]

    def _wish_stop(self, entry: StopWished) -> list[Change]:
        for name, attempt in entry.jobs.items():
            job = self.jobs.get(name)
            if job is not None and job.state is JobState.RUNNING and job.attempt == attempt:
                self.extras[name] = msgspec.structs.replace(self.extra_of(name), stop=entry.reason)
        return []

    def _prioritise(self, entry: Prioritised) -> list[Change]:
        job = self.jobs.get(entry.job_id)
        if job is None or job.state is not JobState.QUEUED:
            return []
        self.jobs[job.job_id] = msgspec.structs.replace(job, priority=entry.priority)
        return [Change(job, self.jobs[job.job_id])]

    def _prune(self, entry: Pruned) -> list[Change]:
        gone = [self.jobs[name] for name in entry.job_ids if name in self.jobs and self.jobs[name].state in ENDED]
        for job in gone:
            del self.jobs[job.job_id]
            self.extras.pop(job.job_id, None)
        for group in {job.group_id for job in gone if job.group_id is not None}:
            left = [name for name in self.group_jobs[group] if name in self.jobs]
            if left:
                self.group_jobs[group] = left
            else:
                del self.group_jobs[group]
                self.served.pop(group, None)
        return [Change(job, None) for job in gone]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _keep_new(self, job: Job) -> None:
        self.jobs[job.job_id] = job
        if job.state not in ENDED:
            self.live_runs[job.run_id] = job.job_id
        if job.group_id is not None:
            self.group_jobs.setdefault(job.group_id, []).append(job.job_id)

    def _move(self, job: Job, state: JobState, **fields: object) -> Change:
        self.jobs[job.job_id] = msgspec.structs.replace(job, state=state, **fields)
        return Change(job, self.jobs[job.job_id])

    def _serve(self, job: Job) -> None:
        self._services += 1
        self.served[group_key(job)] = self._services

    def _forget_process(self, job_id: str) -> None:
        extra = self.extras.get(job_id)
        if extra is not None:
            extra = msgspec.structs.replace(extra, pid=None, pid_started=None, stop=None, not_before=None)
            self._keep_extra(job_id, extra)

    def _keep_extra(self, job_id: str, extra: Extra) -> None:
        if extra == _NOTHING_MORE:
            self.extras.pop(job_id, None)
        else:
            self.extras[job_id] = extra

    _HANDLERS: ClassVar[dict[type[Entry], Any]] = {
        Added: _add,
        Started: _start,
        Spawned: _spawned,
        Ended: _end,
        Returned: _return,
        StopWished: _wish_stop,
        Prioritised: _prioritise,
        Pruned: _prune,
        Published: _publish,
        GroupSaved: _save_group,
        Limits: _limit,
    }
