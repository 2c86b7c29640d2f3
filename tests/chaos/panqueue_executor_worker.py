"""A worker whose handlers run in children, to be killed: python panqueue_executor_worker.py URL QUEUE TIER."""

from __future__ import annotations

import asyncio
from pathlib import Path
import sys

sys.path.insert(0, str(Path(__file__).parents[1]))

import executor_handlers
from queueyard.panqueue import BackoffRule, Queue, WorkerPool, WorkerSettings
from queueyard.panqueue.executors import Policy, PoolSettings, Sandbox, Subprocess
from queueyard.panqueue.worker import Worker


async def main(url: str, queue_id: str, tier: str) -> None:
    settings = PoolSettings(max_jobs=50)
    executor = Subprocess(settings) if tier == "subprocess" else Sandbox(Policy(memory_mb=256), settings)
    queue = Queue(
        queue_id,
        int,
        int,
        retries=1_000,
        max_stalls=1_000,
        backoff=BackoffRule(base_ms=0, cap_ms=0),
        executor=executor,
    )
    worker = WorkerSettings(concurrency=3, lease_ms=2_000, sweep_ms=500)
    await WorkerPool([Worker(queue, executor_handlers.increment, url=url, settings=worker)]).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:4]))
