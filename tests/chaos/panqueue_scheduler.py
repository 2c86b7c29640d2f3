"""One worker process that fires schedules and runs their jobs: `python panqueue_scheduler.py URL QUEUE`."""

from __future__ import annotations

import asyncio
import sys
from typing import Any


async def main(url: str, queue_id: str) -> None:
    from queueyard.panqueue import Job, Queue, Worker

    async def handler(_job: Job[Any]) -> None: ...

    # Nothing is kept: a slot that was added a second time would find no trace of the first.
    async with Worker(Queue(queue_id), handler, url=url, concurrency=50):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
