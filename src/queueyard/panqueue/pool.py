"""Several workers that start and stop together.

    async with WorkerPool([Worker(emails, send), Worker(reports, build)]):
        ...

`run` also listens to TERM and INT: the first asks for a drain, the second stops at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from queueyard.kernel.lifecycle import Lifecycle, Phase
from queueyard.panqueue.errors import BadQueue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from queueyard.panqueue.worker import Stopped, Worker


class WorkerPool:
    """Workers of different queues in one event loop; used once."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """BadQueue if two of them share a queue: give one of them more concurrency instead."""
        ids = [worker.queue.id for worker in workers]
        double = sorted({one for one in ids if ids.count(one) > 1})
        if double or not workers:
            raise BadQueue(
                f"a pool has one worker per queue, and at least one: {', '.join(double) or 'none given'}",
                hint="Raise the concurrency of one worker instead of making two.",
            )
        self.workers = list(workers)

    async def start(self) -> None:
        """Start all; if one cannot, those that have begun are stopped again and its error is raised."""
        try:
            for worker in self.workers:
                await worker.start()
        except BaseException:
            await self.stop(drain=False)
            raise

    async def stop(self, *, drain: bool = True, timeout_ms: int | None = None) -> list[Stopped]:
        """Stop all at the same time."""
        return list(await asyncio.gather(*(one.stop(drain=drain, timeout_ms=timeout_ms) for one in self.workers)))

    async def run(self) -> list[Stopped]:
        """Start, and work until a signal or until somebody stops every worker."""
        loop = asyncio.get_running_loop()
        lifecycle = Lifecycle()
        changed = asyncio.Event()
        loop.add_reader(lifecycle.fileno(), changed.set)
        try:
            with lifecycle.on_signals():
                await self.start()
                return await self._until_stopped(lifecycle, changed)
        finally:
            loop.remove_reader(lifecycle.fileno())
            lifecycle.close()

    async def _until_stopped(self, lifecycle: Lifecycle, changed: asyncio.Event) -> list[Stopped]:
        ends = asyncio.gather(*(worker.run() for worker in self.workers))
        stopping: list[asyncio.Task[Any]] = []
        while not ends.done():
            signalled: asyncio.Future[Any] = asyncio.ensure_future(changed.wait())
            both: list[asyncio.Future[Any]] = [ends, signalled]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            signalled.cancel()
            if changed.is_set():
                changed.clear()
                drain = lifecycle.acknowledge() is Phase.DRAINING
                stopping.append(asyncio.ensure_future(self._ask_to_stop(drain=drain)))
        return list(ends.result())

    async def _ask_to_stop(self, *, drain: bool) -> None:
        if not drain:
            for worker in self.workers:
                worker.hurry()
        # Both signals may come before we look: then there was no drain yet that could be hurried.
        await self.stop(drain=drain)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
