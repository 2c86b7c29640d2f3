"""A worker's desk, seen from a child: what the handler says goes to the parent, which writes it down.

The handler waits for each reply, so that it can say no more than the parent can bear. Whoever speaks reads the reply
himself: while a handler runs, nobody else reads from the line.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queueyard.panqueue.errors import LeaseLost, PanqueueError
from queueyard.panqueue.executors.messages import Children, Log, Progress, Reply, Step
from queueyard.panqueue.flows import ChildResult
from queueyard.panqueue.payloads import Codec

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from queueyard.panqueue.executors.line import Line
    from queueyard.panqueue.executors.messages import Note
    from queueyard.panqueue.jobs import Held

_T = TypeVar("_T")
_ANYTHING: Codec[Any] = Codec(name="progress", max_bytes=10_000)


class RemoteDesk:
    """For one job."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._one_at_a_time = threading.Lock()

    def close(self) -> None:
        """The job has ended: wait for a thread of its handler that waits for a reply; others are refused."""
        with self._one_at_a_time:
            pass

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
            self._line.send(note)
            reply = self._line.receive()
        if not isinstance(reply, Reply):
            raise PanqueueError(f"the worker answered with {type(reply).__name__}")
        if reply.error is not None:
            raise PanqueueError(reply.error)
        return reply
