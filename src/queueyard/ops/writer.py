"""The one place where batches are applied: a thread of its own, a bounded row before it, spaces served in turn.

Nobody waits without end: who comes when the row is full is told to come back. A space with many clients does not keep
the others waiting, because the writer takes one batch of each space in turn. What is in the row when the server is
asked to stop is still applied.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from concurrent.futures import Future
import logging
import threading
from typing import TYPE_CHECKING, TypeVar

import msgspec

from queueyard.ops.errors import LedgerFailed
from queueyard.ops.ledger import Answered, Ledger, Push, SpaceName
from queueyard.ops.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")
_log = logging.getLogger("queueyard.ops.writer")

#: one sync of the disk is shared by so many batches, or by so many bytes
_SHARE_BATCHES = 8
_SHARE_BYTES = 4 << 20


class _Job(msgspec.Struct, frozen=True):
    push: Push
    done: Future[Answered]


class Writer:
    """Applies batches for all connections."""

    def __init__(self, open_ledger: Callable[[], Ledger], *, max_waiting: int, max_waiting_bytes: int) -> None:
        self._open_ledger = open_ledger
        self._max_waiting = max_waiting
        self._max_waiting_bytes = max_waiting_bytes
        self._changed = threading.Condition()
        self._rows: OrderedDict[SpaceName, deque[_Job]] = OrderedDict()
        self._errands: deque[tuple[Callable[[Ledger], object], Future[object]]] = deque()
        self._keys: set[tuple[SpaceName, str, int]] = set()
        self._waiting = 0
        self._waiting_bytes = 0
        self._stopping = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin. LedgerFailed if there is no database to write to."""
        first = self._open_ledger()
        ledgers = [first, *(self._open_ledger() for _ in range(first.database.writers - 1))]
        self._threads = [
            threading.Thread(target=self._run, args=(ledger,), name=f"writer-{number}", daemon=True)
            for number, ledger in enumerate(ledgers)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Apply what waits, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def waiting(self) -> int:
        """Batches in the row and under way."""
        return self._waiting

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    def submit(self, push: Push) -> Future[Answered]:
        """The answer, as soon as it is committed. Problem 409 or 503 if the batch cannot even wait."""
        size = push.batch.size
        with self._changed:
            if self._stopping:
                raise Problem("shutting_down", retry_after_s=5)
            if push.key in self._keys:
                raise Problem("in_progress", retry_after_s=1)
            if self._waiting >= self._max_waiting or self._waiting_bytes + size > self._max_waiting_bytes:
                raise Problem("overloaded", f"{self._waiting} batches wait", retry_after_s=1 + self._waiting // 100)
            job = _Job(push, Future())
            # A client that hangs up does not take its batch back.
            job.done.set_running_or_notify_cancel()
            self._keys.add(push.key)
            self._waiting += 1
            self._waiting_bytes += size
            self._rows.setdefault(push.space, deque()).append(job)
            self._changed.notify()
        return job.done

    def run(self, errand: Callable[[Ledger], _T]) -> Future[_T]:
        """Do something else with the ledger, between two batches."""
        done: Future[_T] = Future()
        with self._changed:
            self._errands.append((errand, done))  # type: ignore[arg-type]
            self._changed.notify()
        return done

    def _run(self, ledger: Ledger) -> None:
        most = _SHARE_BATCHES if ledger.database.groups_commits else 1
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._rows or self._errands or self._stopping)
                    errands = [self._errands.popleft() for _ in range(len(self._errands))]
                    jobs = self._next_jobs(most)
                    if not jobs and not errands:
                        return
                for errand, done in errands:
                    _settle(done, lambda errand=errand: errand(ledger))  # type: ignore[misc]
                if jobs:
                    self._apply(ledger, jobs)
        finally:
            ledger.close()

    def _next_jobs(self, most: int) -> list[_Job]:
        """One batch of each space in turn, as many as share a commit."""
        jobs: list[_Job] = []
        size = 0
        while self._rows and len(jobs) < most and size < _SHARE_BYTES:
            space, row = self._rows.popitem(last=False)
            jobs.append(row.popleft())
            size += jobs[-1].push.batch.size
            if row:
                self._rows[space] = row  # to the end of the turn
        return jobs

    def _apply(self, ledger: Ledger, jobs: list[_Job]) -> None:
        try:
            answers: list[Answered | Problem] = ledger.apply([job.push for job in jobs])
        except Exception as fault:  # noqa: BLE001  whatever it is, somebody waits for an answer
            if len(jobs) > 1:
                # One of them may be at fault; alone, each answers for itself.
                for job in jobs:
                    self._apply(ledger, [job])
                return
            answers = [_explained(fault)]
        with self._changed:
            for job in jobs:
                self._keys.discard(job.push.key)
                self._waiting -= 1
                self._waiting_bytes -= job.push.batch.size
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Problem):
                job.done.set_exception(answer)
            else:
                job.done.set_result(answer)


def _explained(fault: Exception) -> Problem:
    if isinstance(fault, LedgerFailed):
        _log.error("%s", fault)
        return Problem("storage_failed", retry_after_s=5)
    _log.exception("a batch could not be applied", exc_info=fault)
    return Problem("internal")


def _settle(done: Future[object], act: Callable[[], object]) -> None:
    try:
        done.set_result(act())
    except Exception as fault:  # noqa: BLE001  whoever waits for it gets it
        done.set_exception(fault)
