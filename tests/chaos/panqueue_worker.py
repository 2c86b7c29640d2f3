"""One worker process for the chaos tests: `python panqueue_worker.py URL QUEUE MODE FILE [skew]`.

Each handler appends its job to FILE before it works and complains there if more run at once than may. Some jobs block
the event loop for three leases, some fail once. With `skew` the wall clock of this process is a day ahead.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
import random
import sys
import time
from typing import Any

LEASE_MS = 400
CONCURRENCY = 8


def main(url: str, queue_id: str, mode: str, log: str, *rest: str) -> None:
    if "skew" in rest:
        real = time.time
        time.time = lambda: real() + 86_400
    from queueyard.panqueue import BackoffRule, Job, Keep, Limit, Queue, Unrecoverable, WorkerPool, WorkerSettings
    from queueyard.panqueue.worker import Worker

    running = 0
    stream = Path(log).open("a", buffering=1, encoding="utf-8")  # noqa: SIM115  open as long as the process lives

    async def handler(job: Job[Any]) -> None:
        nonlocal running
        running += 1
        stream.write(f"{job.id}\n" if running <= CONCURRENCY else f"! {running} at once\n")
        try:
            what = job.payload["what"]
            if what == "block" and job.attempt == 1:
                time.sleep(3 * LEASE_MS / 1_000)  # noqa: ASYNC251  that is the accident
            elif what == "fail" and job.failures == 0:
                raise ValueError("once")
            elif what == "doomed":
                raise Unrecoverable("for good")
            else:
                await asyncio.sleep(random.random() * 0.01)
        finally:
            running -= 1

    queue: Queue[Any, Any] = Queue(
        queue_id,
        mode=mode,
        key_concurrency=2 if mode == "keyed" else None,
        keep_completed=Keep(),
        keep_failed=Keep(),
        backoff=BackoffRule(base_ms=5, cap_ms=20),
    )
    settings = WorkerSettings(
        concurrency=CONCURRENCY, lease_ms=LEASE_MS, sweep_ms=100, poll_ms=200, drain_timeout_ms=5_000
    )
    asyncio.run(_work(WorkerPool, Worker(queue, handler, url=url, settings=settings, limit=Limit(12))))
    stream.close()


async def _work(pool: Any, worker: Any) -> None:
    from queueyard.panqueue.errors import ServerUnreachable

    while True:
        try:
            await pool([worker]).run()
        except ServerUnreachable:
            # The server may be down just now.
            await asyncio.sleep(0.05)
            continue
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
