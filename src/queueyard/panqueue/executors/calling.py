"""Calls the handler, in a child: the payload as its type, a result as JSON, and an ear for cancellation meanwhile."""

from __future__ import annotations

import asyncio
import inspect
import os
from queue import SimpleQueue
import threading
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

import msgspec

from queueyard.panqueue.errors import BadPayload, Unrecoverable
from queueyard.panqueue.executors.errors import BadHandler
from queueyard.panqueue.executors.handlers import Handler, load
from queueyard.panqueue.executors.messages import NOTHING, Cancel, Done, Failed, Reply, Run
from queueyard.panqueue.executors.remote_desk import RemoteDesk
from queueyard.panqueue.jobs import Held, Job
from queueyard.panqueue.payloads import Codec
from queueyard.panqueue.rules import told_reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.executors.messages import Note, ToChild


class Calls:
    """The handler of this child, and the job that it is busy with."""

    def __init__(self, handler: Handler, *, keeps_result: bool) -> None:
        """Whatever loading the handler raises."""
        found = load(handler)
        # A task knows its types and how it is called; a function says both itself.
        queue = getattr(found, "queue", None)
        self._function: Callable[[Job[Any]], Any] = found.handler if queue is not None else found
        self._payloads: Codec[Any] = queue.payloads if queue is not None else Codec(_payload_type(found))
        self._results: Codec[Any] = queue.results if queue is not None else Codec(_result_type(found), name="result")
        self._keeps_result = keeps_result
        self._is_async = inspect.iscoroutinefunction(self._function)
        self._loop = asyncio.new_event_loop() if self._is_async else None
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._send: Callable[[Note], None] | None = None
        self._job: Held[Any] | None = None
        self._task: asyncio.Task[Any] | None = None

    def listen(self, receive: Callable[[], ToChild], send: Callable[[Note], None]) -> None:
        """Hear what the parent says, in a thread of its own, also while the handler is busy."""
        self._send = send
        threading.Thread(target=self._hear, args=(receive,), daemon=True, name="panqueue-parent").start()

    def next_answer(self) -> Done | Failed | None:
        """Wait for a job and run it; None when it is time to go."""
        run = self._inbox.get()
        if run is None:
            return None
        try:
            return Done(self._result_of(run))
        except asyncio.CancelledError:
            return Failed("cancelled")
        except BaseException as fault:  # noqa: BLE001  whatever a handler raises is the job's failure
            return Failed(told_reason(fault), final=isinstance(fault, Unrecoverable | BadPayload))
        finally:
            if self._job is not None:
                self._job.has_ended = True
            self._job = self._task = None

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
            desk=None if self._send is None else RemoteDesk(self._send),
        )
        value = self._function(job) if self._loop is None else self._awaited(self._loop, job)
        return msgspec.Raw(self._results.encode(value)) if self._keeps_result and value is not None else NOTHING

    def _awaited(self, loop: asyncio.AbstractEventLoop, job: Job[Any]) -> Any:
        self._task = loop.create_task(self._function(job))
        return loop.run_until_complete(self._task)

    def _hear(self, receive: Callable[[], ToChild]) -> None:
        while True:
            try:
                message = receive()
            except (EOFError, OSError):
                # Nobody waits for what the handler may be doing.
                os._exit(0)
            if isinstance(message, Run):
                self._inbox.put(message)
            elif isinstance(message, Reply):
                self._reply(message)
            elif isinstance(message, Cancel):
                self._cancel()
            else:
                self._inbox.put(None)

    def _reply(self, reply: Reply) -> None:
        if (job := self._job) is not None and job.desk is not None:
            job.desk.answer(reply)

    def _cancel(self) -> None:
        """A coroutine is cancelled; a plain function can only look at `job.lost`."""
        if (job := self._job) is not None:
            job.lost = True
        # Whoever waits for a reply waits in vain.
        self._reply(Reply(error="the job was cancelled"))
        if (task := self._task) is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(task.cancel)


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
