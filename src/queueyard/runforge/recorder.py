"""What the daemon has to write down: ends, starts and processes, in as few writes as possible.

A start is written before the process exists, together with all ends that came before it. An end is written at the
latest when the round is over. Which process a run is, is written once the run has lived for a moment; before that, a
later daemon would find it by the lock of its log.

Where the disk refuses, what has happened is kept and tried again, and nothing new is begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError, StorageFailed
from queueyard.runforge.records import Spawned, Started

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.kernel import proc
    from queueyard.kernel.clock import Clock
    from queueyard.runforge.records import Entry, Job
    from queueyard.runforge.store import Store

#: a run that is over sooner is never looked for
_PROCESS_AFTER_S = 0.05
#: how long nothing is started after the disk refused
_AFTER_REFUSAL_S = 2.0
_COMPLAIN_EVERY_S = 30.0


class Recorder:
    """The way from the daemon to the journal."""

    def __init__(self, store: Store, clock: Clock, complain: Callable[[str], None]) -> None:
        self._store = store
        self._clock = clock
        self._complain = complain
        self._pending: list[Entry] = []
        #: job -> when its process is written down (monotonic), the job, and how to ask for the process
        self._processes: dict[str, tuple[float, Job, Callable[[], proc.Identity]]] = {}
        self._refused_until_s = float("-inf")
        self._complain_at_s = float("-inf")

    @property
    def is_refused(self) -> bool:
        """Whether the disk refused a moment ago, so that nothing should be begun."""
        return self._clock.monotonic() < self._refused_until_s

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    def add(self, *entries: Entry) -> None:
        """Write with the next start, or when the round is over."""
        self._pending += entries

    def add_process(self, job: Job, identity: Callable[[], proc.Identity]) -> None:
        """Write down which process a job is, if it lives long enough."""
        self._processes[job.job_id] = self._clock.monotonic() + _PROCESS_AFTER_S, job, identity

    def drop_process(self, job_id: str) -> None:
        self._processes.pop(job_id, None)

    def write(self, *entries: Entry) -> bool:
        """Write these and everything that waits, at once; False if the disk refuses."""
        everything = [*self._pending, *entries]
        if not everything:
            return True
        try:
            self._store.commit(*everything, durable=False)
        except StorageFailed as fault:
            # A start that is not written is not made; the rest has happened.
            self._pending = [one for one in everything if not isinstance(one, Started)]
            self.refuse(fault)
            return False
        self._pending = []
        return True

    def write_round(self) -> None:
        """Write what came together, unless the disk refused just now."""
        if self.is_refused:
            return
        now = self._clock.monotonic()
        for name, (due_s, job, identity) in list(self._processes.items()):
            if due_s <= now:
                del self._processes[name]
                who = identity()
                self.add(Spawned(job_id=name, attempt=job.attempt, pid=who.pid, pid_started=who.started))
        self.write()

    def next_due_s(self) -> float | None:
        """When `write_round` has something to do, monotonic."""
        times = [due_s for due_s, _, _ in self._processes.values()]
        if self._pending:
            times.append(self._refused_until_s)
        return min(times, default=None)

    def refuse(self, fault: QueueyardError) -> None:
        """The disk refuses: begin nothing for a moment."""
        now = self._clock.monotonic()
        self._refused_until_s = now + _AFTER_REFUSAL_S
        if now >= self._complain_at_s:
            self._complain_at_s = now + _COMPLAIN_EVERY_S
            self._complain(f"nothing is started for now: {fault}")
