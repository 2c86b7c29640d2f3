"""A job in the hands of its handler, and what a worker tells about its jobs.

Callbacks are called in the worker's event loop, one after the other; they must not block. One that raises is reported
to `on_worker_error` and disturbs nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from queueyard.panqueue.errors import Closed, LeaseLost
from queueyard.panqueue.payloads import Codec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.panqueue.flows import ChildResult
    from queueyard.panqueue.records import JobRecord

#: what reads a payload of some kind also reads one of a more special kind
P_co = TypeVar("P_co", covariant=True)
R = TypeVar("R")

_STEPS: Codec[Any] = Codec(name="step", max_bytes=1_000_000)
encode_step = _STEPS.encode


class Job(msgspec.Struct, Generic[P_co], eq=False):
    """One claimed job, as its handler sees it."""

    #: unique within its queue
    id: str
    queue_id: str
    #: how often it was started, this time included: 1, 2, ...
    attempt: int
    #: how often its handler failed before
    failures: int
    #: its concurrency key; None in global mode
    key: str | None
    #: proof of this claim; give it to other systems that must refuse a worker whose time is over
    token: str
    #: as the queue's type has it
    payload: P_co
    #: whether the lease is gone: by now the job may be somebody else's, and what this handler does is in vain
    lost: bool

    def check(self) -> None:
        """LeaseLost if the lease is gone; for handlers in threads, which nobody can cancel."""
        if self.lost:
            raise LeaseLost(f"the lease of job {self.id} is gone: another worker may have it")

    def progress(self, value: Any) -> None:
        """Say how far it is: any small JSON value. Written a few times a second at most, the last one in any case."""
        self._at_desk().progress(self, value)

    def log(self, text: str) -> None:
        """Add a line to the job's log; the last 1,000 are kept for a week."""
        self._at_desk().log(self, text)

    async def step(self, name: str, work: Callable[[], Awaitable[R]]) -> R:
        """Do something once over all attempts: what it returned is kept, and given again after a crash or retry.

        It is done at least once: an attempt that dies between doing and noting does it again. LeaseLost.
        """
        desk = self._at_desk()
        stored = await desk.step(self, name)
        if stored is None:
            stored = await desk.step(self, name, encode_step(await work()))
        result: R = msgspec.json.decode(stored or b"null")
        return result

    def step_in_thread(self, name: str, work: Callable[[], R]) -> R:
        """The same for a handler that is a plain function."""
        desk = self._at_desk()
        stored = desk.wait_for(desk.step(self, name))
        if stored is None:
            stored = desk.wait_for(desk.step(self, name, encode_step(work())))
        result: R = msgspec.json.decode(stored or b"null")
        return result

    async def children(self) -> dict[str, ChildResult]:
        """How the jobs of its flow that it waited for ended, by their names."""
        found: dict[str, ChildResult] = await self._at_desk().children(self)
        return found

    def children_in_thread(self) -> dict[str, ChildResult]:
        """The same for a handler that is a plain function."""
        desk = self._at_desk()
        found: dict[str, ChildResult] = desk.wait_for(desk.children(self))
        return found

    def _at_desk(self) -> Any:
        desk = getattr(self, "desk", None)
        if desk is None:
            raise Closed("this job is not in the hands of a worker", hint="Only handlers can do that.")
        return desk

    def __repr__(self) -> str:
        return f"<Job {self.id} of {self.queue_id}, attempt {self.attempt}>"


class Held(Job[P_co], eq=False):
    """The same job, as its worker sees it."""

    #: the payload as it stands in Redis
    raw: bytes
    #: StoredOptions as JSON; None for the usual ones
    opts: bytes | None
    #: when the lease ends if nobody renews it, on the worker's monotonic clock, seconds
    expires_at: float
    started_at: float
    #: where it writes down what it says; given by the worker
    desk: Any = None
    task: asyncio.Task[None] | None = None
    has_begun: bool = False
    #: the handler has ended; what is left is to tell the server
    has_ended: bool = False
    #: why the worker cancels the handler: timeout, lost, stop
    stopped_for: str | None = None
    #: a call that may have finished it broke off
    is_unsure: bool = False
    #: what the handler returned; as JSON where results are kept
    value: Any = None


@dataclass(frozen=True, slots=True)
class JobStarted:
    job: Job[Any]


@dataclass(frozen=True, slots=True)
class JobCompleted:
    """Its completion is recorded."""

    job: Job[Any]
    result: Any
    #: how long its handler ran, milliseconds
    duration_ms: float


@dataclass(frozen=True, slots=True)
class JobErrored:
    """Its handler failed, and that is recorded."""

    job: Job[Any]
    error: BaseException
    #: milliseconds until the next attempt may start; None: there is none, it failed for good
    retry_in_ms: int | None
    duration_ms: float


@dataclass(frozen=True, slots=True)
class JobStalled:
    """A sweep of this worker took the job back from a worker that is gone."""

    record: JobRecord
    #: whether that was once too often
    failed: bool


@dataclass(frozen=True, slots=True)
class JobLost:
    """This worker no longer holds the job: its lease ran out, or somebody else finished or removed it."""

    job: Job[Any]
    #: renewal, finish, canceled
    phase: str
    #: whether an earlier call, whose reply was lost, may have finished it
    unsure: bool


@dataclass(frozen=True, slots=True)
class WorkerError:
    """Something went wrong that is no job's fault; the worker goes on."""

    #: claim, finish, renewal, sweep, notifications, callback, corrupt, hand-back
    kind: str
    error: BaseException


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Who wants to know. What is not set costs nothing."""

    on_started: Callable[[JobStarted], object] | None = None
    on_completed: Callable[[JobCompleted], object] | None = None
    #: every failure of a handler, retried or not
    on_error: Callable[[JobErrored], object] | None = None
    #: only those that are not tried again
    on_failed: Callable[[JobErrored], object] | None = None
    on_stalled: Callable[[JobStalled], object] | None = None
    on_lost: Callable[[JobLost], object] | None = None
    on_worker_error: Callable[[WorkerError], object] | None = None
    #: idle, running, draining, stopped
    on_state: Callable[[str], object] | None = None
