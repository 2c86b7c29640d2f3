"""A worker process that dies: `python panqueue_flow_worker.py URL PARENTS CHILDREN`.

Each job kills the whole process by SIGKILL when it first runs: children in the middle of their work, parents after they
have read their children's results. Whoever starts it again sees the flow come to its end all the same.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from queueyard.panqueue import Job, Keep, Queue, Worker, WorkerPool, WorkerSettings

SETTINGS = WorkerSettings(lease_ms=300, sweep_ms=50, poll_ms=100, concurrency=1)


async def child(job: Job[Any]) -> Any:
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return job.payload * 2


async def parent(job: Job[Any]) -> Any:
    found = await job.children()
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(one.result for one in found.values()) + job.payload


def main(url: str, parents: str, children: str) -> None:
    upper: Queue[Any, Any] = Queue(parents, keep_completed=Keep())
    lower: Queue[Any, Any] = Queue(children)
    pool = WorkerPool(
        [Worker(upper, parent, url=url, settings=SETTINGS), Worker(lower, child, url=url, settings=SETTINGS)]
    )
    asyncio.run(pool.run())


if __name__ == "__main__":
    main(*sys.argv[1:])
