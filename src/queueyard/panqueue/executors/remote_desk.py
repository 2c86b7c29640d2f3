"""A worker's desk, seen from a child: what the handler says goes to the parent, which writes it down.

The handler waits for each reply, so that it can say no more than the parent can bear.
"""

from __future__ import annotations

from queue import SimpleQueue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queueyard.panqueue.errors import LeaseLost, PanqueueError
from queueyard.panqueue.executors.messages import Children, Log, Progress, Reply, Step
from queueyard.panqueue.flows import ChildResult
from queueyard.panqueue.payloads import Codec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from queueyard.panqueue.executors.messages import Note
    from queueyard.panqueue.jobs import Held

_T = TypeVar("_T")
_ANYTHING: Codec[Any] = Codec(name="progress", max_bytes=10_000)


class RemoteDesk:
    """For one job."""

    def __init__(self, send: Callable[[Note], None]) -> None:
        self._send = send
        self._replies: SimpleQueue[Reply] = SimpleQueue()
        self._one_at_a_time = threading.Lock()

    def answer(self, reply: Reply) -> None:
        """The parent has replied, or will not any more."""
        self._replies.put(reply)

    # --- as jobs.Job calls it ----------------------------------------------------------------------------------------

    def progress(self, job: Held[Any], value: Any) -> None:
        self._ask(job, Progress(msgspec.Raw(_ANYTHING.encode(value))))

    def log(self, job: Held[Any], text: str) -> None:
        self._ask(job, Log(text))

    async def step(self, job: Held[Any], name: str, result: bytes | None = None) -> bytes | None:
        asked = Step(name) if result is None else Step(name, found=True, result=msgspec.Raw(result))
        reply = self._ask(job, asked)
        return bytes(reply.value) if reply.found else None

    async def children(self, job: Held[Any]) -> dict[str, ChildResult]:
        return msgspec.json.decode(self._ask(job, Children()).value, type=dict[str, ChildResult])

    def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """The result of a coroutine of this class: none of them ever waits for an event loop."""
        try:
            work.send(None)
        except StopIteration as end:
            result: _T = end.value
            return result
        raise RuntimeError(f"{work} waits for something")

    def _ask(self, job: Held[Any], note: Note) -> Reply:
        with self._one_at_a_time:
            # Once it has ended or was cancelled, nobody listens.
            if job.lost or job.has_ended:
                raise LeaseLost(f"job {job.id} is over: nobody writes down what it says")
            self._send(note)
            reply = self._replies.get()
        if reply.error is not None:
            raise PanqueueError(reply.error)
        return reply
