"""A typed queue: the payload and the result are your own types on both sides.

Run it anywhere: python examples/panqueue_typed.py. It uses REDIS_URL, or a Valkey of its own in a throw-away folder.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

from queueyard.panqueue import BackoffRule, Callbacks, Job, Queue, QueueClient, Worker
from queueyard.panqueue.embedded import start, stop
from queueyard.panqueue.errors import JobFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Order:
    number: int
    cents: list[int]


@dataclass
class Receipt:
    number: int
    total: int


orders = Queue("orders", Order, Receipt, retries=2, backoff=BackoffRule(base_ms=50, cap_ms=200))


async def charge(job: Job[Order]) -> Receipt:
    if not job.payload.cents:
        raise ValueError("an order without items")
    if job.payload.number == 2 and job.attempt == 1:
        raise ConnectionError("the bank did not answer")
    return Receipt(job.payload.number, sum(job.payload.cents))


async def main(url: str) -> None:
    told = Callbacks(
        on_error=lambda one: print(f"attempt {one.job.attempt} of order {one.job.payload.number}: {one.error}")
    )
    async with QueueClient(url) as client, Worker(orders, charge, url=url, concurrency=1, callbacks=told):
        queue = client.queue(orders)
        jobs = await queue.add_many([Order(1, [250, 99]), Order(2, [1200]), Order(3, [])])
        for job in jobs:
            try:
                print(await job.result(timeout_s=30))
            except JobFailed as failure:
                print(f"failed for good: {failure.reason}")
        counts = await queue.counts()
        print(f"{counts.completed} completed, {counts.failed} failed")


@contextmanager
def a_server() -> Iterator[str]:
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        yield start(Path(folder)).url
        stop(Path(folder))


if __name__ == "__main__":
    with a_server() as server:
        asyncio.run(main(server))
