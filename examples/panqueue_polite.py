"""Calls to somebody else: two at once and twenty a second per customer, and none is lost when he says "too many".

Run it anywhere: python examples/panqueue_polite.py. It uses REDIS_URL, or a Valkey of its own in a throw-away folder.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING
import uuid

from queueyard.panqueue import Dedup, Job, Queue, QueueClient, Rate, TryAgain, Worker
from queueyard.panqueue.embedded import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

calls = Queue(
    f"calls-{uuid.uuid4().hex[:6]}", int, mode="keyed", key_concurrency=2, key_rate=Rate(20, per_ms=1_000, burst=4)
)


async def main(url: str) -> None:
    answered: Counter[str] = Counter()
    refused = 0
    done = asyncio.Event()

    async def call(job: Job[int]) -> None:
        nonlocal refused
        if job.payload == 3 and job.attempt == 1:
            refused += 1
            raise TryAgain(50, why="429 too many requests")
        answered[job.key or ""] += 1
        if answered.total() == 16:
            done.set()

    async with QueueClient(url) as client:
        queue = client.queue(calls)
        async with Worker(calls, call, url=url, concurrency=20):
            await queue.add_many(range(8), key=lambda _: "ada")
            await queue.add_many(range(8), key=lambda _: "ben")
            again = await queue.add(99, key="cleo", dedup=Dedup("cleo's only call"), delay_ms=60_000)
            double = await queue.add(99, key="cleo", dedup=Dedup("cleo's only call"), delay_ms=60_000)
            await done.wait()
        counts = await queue.counts()
        await queue.obliterate(confirm=calls.id)

    print("answered:", *sorted(answered.items()))
    print("refused and tried again:", refused, "failed:", counts.failed)
    print("added once:", again.id == double.id, "delayed:", counts.delayed)


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
