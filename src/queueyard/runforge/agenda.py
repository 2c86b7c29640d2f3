"""Which queued jobs may be started now: those that wait for nothing, in the order of the line-up. Pure.

It follows the state of the queue by its changes. A job waits for other jobs (`after`) or for a moment (`not_before`);
once neither holds it back it is in the line-up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from queueyard.runforge.lineup import LineUp
from queueyard.runforge.records import ENDED, Ended, JobState, Policy
from queueyard.runforge.rules import ended, fate_of, local_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from queueyard.runforge.records import Job
    from queueyard.runforge.state import Change, QueueState


class Agenda:
    """What is due, what waits, and for what."""

    def __init__(self, state: QueueState, *, policy: Policy = Policy.FAIR) -> None:
        self._state = state
        self._line_up = LineUp(policy)
        #: job that is not over -> the jobs that wait for it
        self._waiting_for: dict[str, set[str]] = {}
        #: (seconds since 1970, job)
        self._delayed: list[tuple[float, str]] = []
        self._line_up.last_served = state.last_served_group
        for group, turn in state.served.items():
            self._line_up.set_turn(group, turn)

    def __len__(self) -> int:
        """How many jobs are due."""
        return len(self._line_up)

    def fill(self, now: Callable[[], datetime]) -> list[Ended]:
        """Take every queued job of the state; the ends of those whose wait is in vain."""
        ends = []
        for job in self._state.jobs.values():
            if job.state is JobState.QUEUED:
                ends += self._admit(job, now)
            elif job.state is JobState.RUNNING:
                self._line_up.remember(job)
        return ends

    def take(self, changes: Iterable[Change], now: Callable[[], datetime]) -> list[Ended]:
        """Follow what changed; the ends of jobs that wait for something that will not come."""
        ends: list[Ended] = []
        for before, after in changes:
            if after is None or after.state in ENDED:
                ends += self._over(after or before, now)
            elif after.state is JobState.QUEUED:
                ends += self._admit(after, now)
            elif before is not None and before.state is JobState.QUEUED:
                self._line_up.serve(after)
            else:
                self._line_up.remove(after)
        return ends

    def wake(self, *, now_s: float) -> None:
        """Let jobs in whose moment has come."""
        while self._delayed and self._delayed[0][0] <= now_s:
            _, name = heappop(self._delayed)
            job = self._state.jobs.get(name)
            not_before = self._state.extra_of(name).not_before or 0.0
            if job is not None and job.state is JobState.QUEUED and not_before <= now_s:
                self._line_up.add(job)

    @property
    def next_wake_s(self) -> float | None:
        """Seconds since 1970; when `wake` has something to do."""
        return self._delayed[0][0] if self._delayed else None

    def next(self, *, gpu_free: bool) -> Job | None:
        """The job to start next."""
        name = self._line_up.next(gpu_free=gpu_free)
        return None if name is None else self._state.jobs[name]

    def pause(self, group: str) -> None:
        self._line_up.pause(group)

    def resume(self, group: str) -> None:
        self._line_up.resume(group)

    def paused(self) -> list[str]:
        return list(self._line_up.paused())

    # --- inside ------------------------------------------------------------------------------------------------------

    def _admit(self, job: Job, now: Callable[[], datetime]) -> list[Ended]:
        extra = self._state.extras.get(job.job_id)
        if extra is None or not (extra.after or extra.not_before):
            self._line_up.add(job)
            return []
        fate = fate_of(extra.after, self._state.jobs)
        if isinstance(fate, tuple):
            return [ended(job, fate[0], at=local_iso(now()), error=fate[1])]
        if fate and (extra.not_before is None or extra.not_before <= now().timestamp()):
            self._line_up.add(job)
            return []
        self._line_up.remove(job)
        self._line_up.remember(job)
        if fate and extra.not_before is not None:
            heappush(self._delayed, (extra.not_before, job.job_id))
        for name in extra.after:
            if name in self._state.jobs and self._state.jobs[name].state not in ENDED:
                self._waiting_for.setdefault(name, set()).add(job.job_id)
        return []

    def _over(self, job: Job | None, now: Callable[[], datetime]) -> list[Ended]:
        if job is None:
            return []
        self._line_up.forget(job)
        ends = []
        for name in sorted(self._waiting_for.pop(job.job_id, ())):
            waiting = self._state.jobs.get(name)
            if waiting is not None and waiting.state is JobState.QUEUED:
                ends += self._admit(waiting, now)
        return ends
