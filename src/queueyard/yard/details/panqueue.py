"""Queues with their settings, jobs by their state, and the keys that come up next."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.panqueue import service
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line, lines_to_all
from queueyard.panqueue.errors import ForeignData
from queueyard.panqueue.records import Counts, JobRecord, JobState, Mode
from queueyard.panqueue.store import QueueStore
from queueyard.yard.details.parts import Part, Wanted, jain, part, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: who looks for a text looks through so many jobs of each state of each queue
MOST_SEARCHED = 1_000
_TIMEOUT_S = 3.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    mode: str
    #: paused or open
    state: str
    waiting: int
    active: int
    delayed: int
    failed: int
    completed: int
    #: how long the oldest waiting job has waited
    oldest_s: float | None
    #: active jobs whose lease ran out
    overdue: int


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    id: str
    #: one of JobState
    state: str
    #: how often it was started
    runs: int
    key: str | None
    #: JSON text, its beginning
    payload: str
    reason: str | None
    #: RFC 3339, as all times here
    queued_at: str | None
    started_at: str | None
    finished_at: str | None


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A concurrency key among the jobs that run or come up next."""

    queue: str
    key: str
    running: int
    #: among the jobs that come up next, see MOST_SEARCHED
    waiting: int
    #: of the running jobs of the queue that have a key: 0 to 1
    share: float | None


class PanqueueDetails(msgspec.Struct, frozen=True, kw_only=True):
    #: Jain's index over the running jobs of keys that have any or wait; None without keyed queues
    fairness: float | None
    queues: Part[QueueRow]
    keys: Part[KeyRow]
    active: Part[JobRow]
    failed: Part[JobRow]
    delayed: Part[JobRow]
    waiting: Part[JobRow]


def look(at: str, wanted: Wanted) -> PanqueueDetails:
    with _server(at) as server:
        counts = list(server.counts())
        keys = [row for one in counts if one.mode is not Mode.GLOBAL for row in _keys(server, one)]
        return PanqueueDetails(
            fairness=jain([row.running for row in keys]) if len(keys) > 1 else None,
            queues=part(map(_queue_row, counts), wanted),
            keys=part(keys, wanted),
            active=_jobs(server, counts, JobState.ACTIVE, wanted),
            failed=_jobs(server, counts, JobState.FAILED, wanted),
            delayed=_jobs(server, counts, JobState.DELAYED, wanted),
            waiting=_jobs(server, counts, JobState.WAITING, wanted),
        )


class _Server:
    """All queues of one server, or of all masters of a cluster."""

    def __init__(self, at: str) -> None:
        self._address = parse_address(at)
        self._all = lines_to_all(self._address)
        self._lines: list[Line] = []

    def counts(self) -> Iterator[Counts]:
        """Every queue; one that holds foreign data is left out."""
        for queue in sorted({queue for line in self._all for queue in line.hold(service.queues())}):
            with suppress(ForeignData):
                yield self.line(queue).hold(service.counts(QueueStore(queue)))

    def jobs(self, queue: str, state: JobState, most: int) -> list[JobRecord]:
        return self.line(queue).hold(service.jobs(QueueStore(queue), state, most=most))

    def line(self, queue: str) -> Line:
        if len(self._all) == 1:
            return self._all[0]
        self._lines.append(Line(self._address, QueueStore(queue).keys.tag, timeout_s=_TIMEOUT_S))
        return self._lines[-1]

    def close(self) -> None:
        for line in (*self._all, *self._lines):
            line.close()


@contextmanager
def _server(at: str) -> Iterator[_Server]:
    server = _Server(at)
    try:
        yield server
    finally:
        server.close()


def _jobs(server: _Server, counts: Sequence[Counts], state: JobState, wanted: Wanted) -> Part[JobRow]:
    """Of each queue the first ones; with a text to look for, the first MOST_SEARCHED are looked through."""
    most = MOST_SEARCHED if wanted.text else wanted.limit
    rows = [
        _job_row(one.queue, job) for one in counts if getattr(one, state) for job in server.jobs(one.queue, state, most)
    ]
    found = part(rows, wanted)
    return found if wanted.text else Part(rows=found.rows, total=sum(getattr(one, state) for one in counts))


def _keys(server: _Server, one: Counts) -> list[KeyRow]:
    running = Counter(job.concurrency_key or "" for job in server.jobs(one.queue, JobState.ACTIVE, MOST_SEARCHED))
    waiting = Counter(job.concurrency_key or "" for job in server.jobs(one.queue, JobState.WAITING, MOST_SEARCHED))
    busy = sum(running.values())
    rows = [
        KeyRow(
            queue=one.queue,
            key=key,
            running=running[key],
            waiting=waiting[key],
            share=running[key] / busy if busy else None,
        )
        for key in {*running, *waiting}
    ]
    return sorted(rows, key=lambda row: (-row.running, -row.waiting, row.key))


def _queue_row(one: Counts) -> QueueRow:
    return QueueRow(
        queue=one.queue,
        mode=one.mode,
        state="paused" if one.paused else "open",
        waiting=one.waiting,
        active=one.active,
        delayed=one.delayed,
        failed=one.failed,
        completed=one.completed,
        oldest_s=None if one.oldest_ms is None else one.oldest_ms / 1000,
        overdue=one.overdue,
    )


def _job_row(queue: str, job: JobRecord) -> JobRow:
    reason = job.failed_reason or job.last_error
    return JobRow(
        queue=queue,
        id=job.id,
        state=job.status,
        runs=job.runs,
        key=job.concurrency_key,
        payload=shortened(job.payload),
        reason=shortened(reason) if reason else None,
        queued_at=_time(job.created_at),
        started_at=_time(job.last_started_at),
        finished_at=_time(job.finished_at),
    )


def _time(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else to_rfc3339(_EPOCH + timedelta(milliseconds=milliseconds))
