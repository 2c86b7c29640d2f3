"""Runs the jobs of one worker in children: what a `Runner` calls in place of the handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from queueyard.panqueue.errors import PanqueueError, Unrecoverable
from queueyard.panqueue.executors.errors import ChildFailed, HandlerFailed
from queueyard.panqueue.executors.messages import Children, Failed, Log, Progress, Reply, Run, Step
from queueyard.panqueue.executors.pool import Pool

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.executors.children import Launch
    from queueyard.panqueue.executors.guarantees import Guarantee
    from queueyard.panqueue.executors.messages import Note
    from queueyard.panqueue.executors.pool import PoolSettings
    from queueyard.panqueue.jobs import Held
    from queueyard.panqueue.queues import Queue


class Executor(Protocol):
    """Where the handlers of a queue run, if not in the worker itself."""

    def explain(self) -> list[Guarantee]:
        """What is enforced on this machine, and what is not."""

    def crew(self, queue: Queue[Any, Any], handler: Callable[..., Any]) -> Crew:
        """Make ready to run jobs. BadHandler, BadPolicy, PolicyRefused."""


class Crew:
    """The children of one worker."""

    def __init__(self, queue: Queue[Any, Any], launch: Launch, settings: PoolSettings) -> None:
        """In a running event loop."""
        self._queue = queue
        self.pool = Pool(launch, settings)

    async def run(self, job: Held[Any]) -> Any:
        """What the handler returns. HandlerFailed, Unrecoverable, ChildFailed; cancelled, its handler is ended."""
        message = Run(job.id, job.queue_id, job.attempt, job.failures, job.key, job.token, payload=msgspec.Raw(job.raw))
        child = await self.pool.take()
        crashed = False
        try:
            answer = await child.ask(message, lambda note: _served(job, note))
        except ChildFailed:
            crashed = True
            raise
        finally:
            self.pool.give_back(child, crashed=crashed)
        if isinstance(answer, Failed):
            raise Unrecoverable(answer.message) if answer.final else HandlerFailed(answer.message)
        return None if bytes(answer.value) == b"null" else self._queue.results.decode(bytes(answer.value))

    async def close(self) -> None:
        await self.pool.close()


async def _served(job: Held[Any], note: Note) -> Reply:
    """Do in the worker what the handler asks for; what cannot be done is told to the handler."""
    try:
        match note:
            case Progress(value=value):
                job.desk.progress(job, msgspec.json.decode(value))
            case Log(text=text):
                job.desk.log(job, text)
            case Step(name=name, found=found, result=result):
                stored = await job.desk.step(job, name, bytes(result) if found else None)
                return Reply() if stored is None else Reply(found=True, value=msgspec.Raw(stored))
            case Children():
                ended = await job.desk.children(job)
                return Reply(found=True, value=msgspec.Raw(msgspec.json.encode(ended)))
    except (PanqueueError, msgspec.MsgspecError) as fault:
        return Reply(error=str(fault))
    return Reply()
