"""A handler for tests of real workers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.panqueue import Job


class Recorder:
    """Notes what it got and how many ran at once; `done` is set when it had as many as were wanted."""

    def __init__(self, wanted: int = 1) -> None:
        self.jobs: list[Job[Any]] = []
        self.running = 0
        self.most = 0
        self.done = asyncio.Event()
        #: what a test puts here is done for each job
        self.work: Callable[[Job[Any]], Awaitable[None]] = self._nothing
        self._wanted = wanted

    async def __call__(self, job: Job[Any]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.work(job)
        finally:
            self.running -= 1
            self.jobs.append(job)
            if len(self.jobs) >= self._wanted:
                self.done.set()

    async def _nothing(self, job: Job[Any]) -> None: ...
