"""Runs that go on at the same time: their processes, their time limits, and how each is ended.

Nothing here blocks and nothing polls: the end of a process is a readable descriptor, and `next_due_s` says when there
is something to do otherwise. Ending a run is TERM to its whole group, a time of grace, then KILL.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
import signal
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.runforge.execution import Outcome
from queueyard.runforge.records import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from queueyard.kernel.clock import Clock
    from queueyard.runforge.execution import Launch
    from queueyard.runforge.poller import Poller
    from queueyard.runforge.records import Job
    from queueyard.runforge.spawn import Process


@dataclass(slots=True)
class Running:
    """One run that goes on."""

    job: Job
    launch: Launch
    #: None for a process that another daemon started
    child: Process | None
    #: which one that is; None as long as nobody knows
    identity: proc.Identity | None
    log: int | None
    started: datetime
    #: monotonic; None for no limit
    deadline_s: float | None
    limit_s: float | None = None
    gpu: str | None = None
    pidfd: int | None = None
    #: the outcome that whoever asked it to end has in mind
    stopped: Outcome | None = None
    #: why it is handed back instead of ended
    hand_back: str | None = None
    #: monotonic; when TERM turns into KILL
    kill_at_s: float | None = None

    @property
    def is_stopping(self) -> bool:
        return self.stopped is not None or self.hand_back is not None


class Slots:
    """The runs of one daemon, or of one sweep that runs by itself."""

    def __init__(self, poller: Poller, clock: Clock, *, kill_grace_s: float, on_end: Callable[[Running], None]) -> None:
        self._poller = poller
        self._clock = clock
        self._kill_grace_s = kill_grace_s
        self._on_end = on_end
        self._active: dict[str, Running] = {}

    def __len__(self) -> int:
        return len(self._active)

    def __iter__(self) -> Iterator[Running]:
        return iter(list(self._active.values()))

    def get(self, job_id: str) -> Running | None:
        return self._active.get(job_id)

    def watch(self, running: Running) -> None:
        """Take care of a run from now on; `on_end` is called once its process is gone."""
        self._active[running.job.job_id] = running
        if running.child is not None:
            self._register(running, os.pidfd_open(running.child.pid))
        elif running.identity is not None:
            self._watch_stranger(running, running.identity)

    def name_process(self, running: Running, identity: proc.Identity) -> None:
        """It became known which process a run is."""
        running.identity = identity
        self._watch_stranger(running, identity)

    def release(self, running: Running) -> int | None:
        """Let go of a run whose process is gone; its exit code, or None if it was not our child.

        What is left of its process group is ended: a run is over when its first process is.
        """
        self._active.pop(running.job.job_id, None)
        if running.pidfd is not None:
            self._poller.unregister(running.pidfd)
            os.close(running.pidfd)
            running.pidfd = None
        if running.child is not None:
            # Before the wait: until then nobody else can get the number of this group.
            proc.signal_group(running.child.pid, signal.SIGKILL)
            return running.child.wait()
        if running.identity is not None and proc.identity_of(running.identity.pid) is None:
            proc.signal_group(running.identity.pid, signal.SIGKILL)
        return None

    def stop(self, running: Running, outcome: Outcome | None, *, hand_back: str | None = None) -> None:
        """Ask a run to end, with what its end then means; the first to ask decides."""
        if running.is_stopping:
            return
        running.stopped, running.hand_back = outcome, hand_back
        running.kill_at_s = self._clock.monotonic() + self._kill_grace_s
        self._signal(running, signal.SIGTERM)

    def enforce(self) -> None:
        """End what has run for too long, and kill what did not end when it was asked to."""
        now = self._clock.monotonic()
        for running in self:
            if running.deadline_s is not None and now >= running.deadline_s and not running.is_stopping:
                error = f"timed out after {running.limit_s:g} s"
                self.stop(running, Outcome(state=JobState.FAILED, error=error))
            if running.kill_at_s is not None and now >= running.kill_at_s:
                running.kill_at_s = None
                self._signal(running, signal.SIGKILL)

    def next_due_s(self) -> float | None:
        """When `enforce` has something to do, monotonic; None for never."""
        times = [
            due
            for running in self._active.values()
            for due in (running.kill_at_s, None if running.is_stopping else running.deadline_s)
            if due is not None
        ]
        return min(times, default=None)

    def _watch_stranger(self, running: Running, identity: proc.Identity) -> None:
        try:
            self._register(running, os.pidfd_open(identity.pid))
        except ProcessLookupError:
            self._on_end(running)
            return
        if not proc.is_alive(identity):
            # It went between two looks, and its number may be somebody else's by now.
            self._on_end(running)

    def _register(self, running: Running, pidfd: int) -> None:
        running.pidfd = pidfd
        self._poller.register(pidfd, lambda: self._on_end(running))

    def _signal(self, running: Running, number: signal.Signals) -> None:
        # A child that we did not wait for keeps its number; a stranger may have lost it.
        if running.child is not None:
            proc.signal_group(running.child.pid, number)
        elif running.identity is not None and proc.is_alive(running.identity):
            proc.signal_group(running.identity.pid, number)
