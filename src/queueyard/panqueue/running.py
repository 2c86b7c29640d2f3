"""Runs one job: decode its payload, call the handler, keep its time, and say what came of it.

The outcome is one of four: succeeded, failed, given up (cancelled because the worker stops), or lost (cancelled because
the lease is gone). Nothing here talks to the server; an outcome is told to the `Outcomes` that were given.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
import inspect
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from queueyard.panqueue.errors import BadPayload, PanqueueError, TimedOut
from queueyard.panqueue.store import read_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.panqueue.jobs import Held, Job
    from queueyard.panqueue.queues import Queue

NOT_READABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Outcomes(Protocol):
    """Who is told what came of a job; called in the event loop, once per job."""

    def succeeded(self, job: Held[Any]) -> None: ...

    def failed(self, job: Held[Any], error: BaseException) -> None: ...

    def given_up(self, job: Held[Any]) -> None: ...

    def lost(self, job: Held[Any]) -> None: ...


class Runner:
    """Everything that the jobs of one worker have in common."""

    def __init__(
        self,
        queue: Queue[Any, Any],
        handler: Callable[[Job[Any]], Any],
        *,
        outcomes: Outcomes,
        threads: int,
        on_started: Callable[[Held[Any]], None] | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._queue = queue
        self._decode = queue.payloads.decode_raw
        self._handler = handler
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  an object whose call is a coroutine is a handler too
        )
        self._crew = None if queue.executor is None else queue.executor.crew(queue, handler)
        here: Callable[[Held[Any]], Awaitable[Any]] = handler if is_async else self._in_thread
        self._call = here if self._crew is None else self._crew.run
        self._keeps_results = queue.keep_completed is not None
        self._outcomes = outcomes
        self._on_started = on_started
        self._loop = loop
        self._timeout_ms = queue.options.timeout_ms
        needs_threads = self._crew is None and not is_async
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="panqueue-job") if needs_threads else None

    def start(self, job: Held[Any]) -> None:
        """Let the job run; its outcome is told later, never before this returns."""
        job.task = self._loop.create_task(self._run(job))

    def stop(self, job: Held[Any], why: str) -> None:
        """Cancel a handler: `timeout`, `lost` or `stop`. One in a thread is told, and runs on."""
        if job.has_ended or job.task is None:
            return
        job.stopped_for = why
        job.lost = job.lost or why != "timeout"
        if job.has_begun:
            # A task that is cancelled before its first step never gets to say so; that one looks for itself.
            job.task.cancel()

    async def close(self) -> None:
        """Let go of threads; end all children."""
        if self._crew is not None:
            await self._crew.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, job: Held[Any]) -> None:
        job.has_begun = True
        if job.stopped_for is not None:
            self._was_cancelled(job)
            return
        try:
            job.payload = self._decode(job.raw)
        except NOT_READABLE as fault:
            job.has_ended = True
            self._outcomes.failed(job, _unreadable(fault))
            return
        if self._on_started is not None:
            self._on_started(job)
        timer = None if self._timeout_ms is None and job.opts is None else self._timer(job)
        try:
            value = await self._call(job)
            # The result of a child is kept for its parent, whatever its own queue keeps.
            if self._keeps_results or (job.opts is not None and read_options(job.opts).child):
                value = self._encoded(value)
            job.value = value
        except asyncio.CancelledError:
            self._was_cancelled(job)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # noqa: BLE001  whatever a handler raises is the job's failure
            job.has_ended = True
            self._outcomes.failed(job, fault)
        else:
            job.has_ended = True
            self._outcomes.succeeded(job)
        finally:
            if timer is not None:
                timer.cancel()

    def _timer(self, job: Held[Any]) -> asyncio.TimerHandle | None:
        timeout_ms = self._timeout_of(job)
        # Cheaper than asyncio.timeout, and it works for threads too.
        return None if timeout_ms is None else self._loop.call_later(timeout_ms / 1_000, self.stop, job, "timeout")

    def _timeout_of(self, job: Held[Any]) -> int | None:
        own = read_options(job.opts).timeout_ms
        return self._timeout_ms if own is None else own

    async def _in_thread(self, job: Held[Any]) -> Any:
        return await self._loop.run_in_executor(self._threads, self._handler, job)

    def _encoded(self, value: Any) -> bytes:
        return b"" if value is None else self._queue.results.encode(value)

    def _was_cancelled(self, job: Held[Any]) -> None:
        job.has_ended = True
        why = job.stopped_for
        if why == "timeout":
            self._outcomes.failed(job, TimedOut(f"timed out after {(self._timeout_of(job) or 0) / 1_000:g} s"))
        elif why == "lost":
            self._outcomes.lost(job)
        elif why == "stop":
            self._outcomes.given_up(job)
        else:
            # Nobody of us did: the handler cancelled itself, or awaited something that was cancelled.
            self._outcomes.failed(job, PanqueueError("cancelled"))


def _unreadable(fault: BaseException) -> BadPayload:
    broken = BadPayload(f"payload cannot be understood: {fault}")
    broken.__cause__ = fault
    return broken
