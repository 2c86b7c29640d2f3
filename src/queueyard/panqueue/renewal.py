"""Renewal of leases beside the handlers: a thread and a connection of its own, so that a blocked loop keeps its jobs.

One limit: a C extension that holds Python's lock for longer than the lease also stops this thread. Then the lease is
lost, the finish is refused, and the job runs again elsewhere.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from queueyard.panqueue.errors import PanqueueError
from queueyard.panqueue.records import Finish
from queueyard.panqueue.store import MOST_JOBS_PER_CALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.blocking import Line
    from queueyard.panqueue.jobs import Held
    from queueyard.panqueue.store import Ask, QueueStore

_RETRY_S = 0.25


class Renewal:
    """One round after the other: renew everything that is held, and find out what is lost."""

    def __init__(
        self,
        store: QueueStore,
        *,
        lease_ms: int,
        held: Callable[[], Sequence[Held[Any]]],
        on_lost: Callable[[list[Held[Any]]], None],
        on_error: Callable[[PanqueueError], None],
        time: Callable[[], float],
    ) -> None:
        self._store = store
        self._lease_ms = lease_ms
        self._held = held
        self._on_lost = on_lost
        self._on_error = on_error
        # The event loop's own time, which the simulation moves; it is safe to ask from another thread.
        self._time = time

    def round(self, ask: Callable[[Ask[list[Finish]]], list[Finish]]) -> bool:
        """Renew all leases once; False if the server could not be asked.

        A lease whose end has passed without an answer counts as lost: somebody else may have the job by now.
        """
        jobs = self._held()
        lost: list[Held[Any]] = []
        answered = True
        for start in range(0, len(jobs), MOST_JOBS_PER_CALL):
            batch = jobs[start : start + MOST_JOBS_PER_CALL]
            asked_at = self._time()
            try:
                codes = ask(self._store.extend([(job.id, job.token) for job in batch], lease_ms=self._lease_ms))
            except PanqueueError as fault:
                answered = False
                self._on_error(fault)
                break
            for job, code in zip(batch, codes, strict=True):
                if code is Finish.DONE:
                    job.expires_at = asked_at + self._lease_ms / 1_000
                else:
                    lost.append(job)
        now = self._time()
        lost += [job for job in jobs if job.expires_at < now and job not in lost]
        if lost:
            self._on_lost(lost)
        return answered


class RenewalThread:
    """Runs the rounds until it is told to stop."""

    def __init__(self, renewal: Renewal, line: Line, *, every_s: float) -> None:
        self._renewal = renewal
        self._line = line
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="panqueue-renewal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to end; it is a daemon thread, so nobody needs to wait for a call that hangs."""
        self._stop.set()

    def _run(self) -> None:
        pause_s = self._every_s
        while not self._stop.wait(pause_s):
            answered = self._renewal.round(self._line.ask)
            pause_s = self._every_s if answered else min(_RETRY_S, self._every_s)
        self._line.close()
