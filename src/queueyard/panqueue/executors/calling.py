"""Calls the handler, in a child: the payload as its type, a result as JSON, and cancellation meanwhile."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec

from queueyard.panqueue.errors import BadPayload, Unrecoverable
from queueyard.panqueue.executors.errors import BadHandler
from queueyard.panqueue.executors.handlers import Handler, load
from queueyard.panqueue.executors.messages import NOTHING, Done, Failed, Run
from queueyard.panqueue.executors.remote_desk import RemoteDesk
from queueyard.panqueue.jobs import Held, Job
from queueyard.panqueue.payloads import Codec
from queueyard.panqueue.rules import told_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.executors.line import Line


class Calls:
    """The handler of this child, and the job that it is busy with."""

    def __init__(self, handler: Handler, line: Line, *, keeps_result: bool) -> None:
        """Whatever loading the handler raises."""
        found = load(handler)
        # A task knows its types and how it is called; a function says both itself.
        queue = getattr(found, "queue", None)
        self._function: Callable[[Job[Any]], Any] = found.handler if queue is not None else found
        self._payloads: Codec[Any] = queue.payloads if queue is not None else Codec(_payload_type(found))
        self._results: Codec[Any] = queue.results if queue is not None else Codec(_result_type(found), name="result")
        self._line = line
        self._keeps_result = keeps_result
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._loop = asyncio.new_event_loop() if self._is_async else None
        #: how many jobs there were, with this one
        self._turn = 0
        #: the last one that was cancelled
        self._cancelled = 0
        self._job: Held[Any] | None = None
        self._task: asyncio.Task[Any] | None = None

    def next_answer(self) -> Done | Failed | None:
        """Wait for a job and run it; None when it is time to go."""
        try:
            message = self._line.receive()
        except (EOFError, OSError):
            return None
        if not isinstance(message, Run):
            return None
        self._turn += 1
        try:
            return Done(self._result_of(message))
        except asyncio.CancelledError:
            return Failed("cancelled")
        except BaseException as fault:  # noqa: BLE001  whatever a handler raises is the job's failure
            return Failed(told_reason(fault), final=isinstance(fault, Unrecoverable | BadPayload))
        finally:
            self._end_job()

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()

    def cancel(self, turn: int) -> None:
        """From another thread, at any time. A coroutine is cancelled; a plain function can only look at `job.lost`."""
        # Noted first, looked at last where a job begins: one of the two sees the other.
        self._cancelled = turn
        job, task = self._job, self._task
        if job is None or turn != self._turn:
            return
        job.lost = True
        if task is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)

    def _result_of(self, run: Run) -> msgspec.Raw:
        payload = self._payloads.decode(bytes(run.payload))
        self._job = job = Held(
            id=run.id,
            queue_id=run.queue_id,
            attempt=run.attempt,
            failures=run.failures,
            key=run.key,
            token=run.token,
            payload=payload,
            lost=False,
            raw=b"",
            opts=None,
            expires_at=0.0,
            started_at=0.0,
            desk=RemoteDesk(self._line),
        )
        value = self._called(job) if self._loop is None else self._awaited(self._loop, job)
        return msgspec.Raw(self._results.encode(value)) if self._keeps_result and value is not None else NOTHING

    def _called(self, job: Job[Any]) -> Any:
        if self._cancelled == self._turn:
            raise asyncio.CancelledError
        return self._function(job)

    def _awaited(self, loop: asyncio.AbstractEventLoop, job: Job[Any]) -> Any:
        self._task = task = loop.create_task(self._function(job))
        if self._cancelled == self._turn:
            task.cancel()
        return loop.run_until_complete(task)

    def _end_job(self) -> None:
        if self._job is not None:
            self._job.has_ended = True
            # The line is ours again once nobody waits for a reply on it.
            self._job.desk.close()
        self._job = self._task = None


def _payload_type(function: Any) -> Any:
    """P of a handler that takes a Job[P]; None if it does not say."""
    parameters = list(inspect.signature(function).parameters)
    hint = _hints(function).get(parameters[0]) if parameters else None
    (kind,) = get_args(hint) or (None,)
    return None if isinstance(kind, TypeVar) else kind


def _result_type(function: Any) -> Any:
    kind = _hints(function).get("return")
    return None if kind is type(None) else kind


def _hints(function: Any) -> dict[str, Any]:
    try:
        # These two are often imported for the type checker only.
        return get_type_hints(function, localns={"Job": Job, "Any": Any})
    except NameError as fault:
        raise BadHandler(
            f"the types of {function.__qualname__} are not there at run time: {fault}",
            hint="Import the types of payload and result outside of `if TYPE_CHECKING:`.",
        ) from fault
