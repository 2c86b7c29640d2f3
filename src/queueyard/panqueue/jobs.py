"""A job in the hands of its handler, and what a worker tells about its jobs.

Callbacks are called in the worker's event loop, one after the other; they must not block. One that raises is reported
to `on_worker_error` and disturbs nobody.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from queueyard.panqueue.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.records import JobRecord

#: what reads a payload of some kind also reads one of a more special kind
P_co = TypeVar("P_co", covariant=True)


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
    #: renewal, finish
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
