"""One slow customer does not hold up the others: at most one job per customer at a time, in order.

Run it anywhere: python examples/panqueue_keyed.py. It uses REDIS_URL, or a Valkey of its own in a throw-away folder.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING
import uuid

from queueyard.panqueue import Job, Queue, QueueClient, Worker
from queueyard.panqueue.embedded import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

imports = Queue(f"imports-{uuid.uuid4().hex[:6]}", int, mode="keyed", key_concurrency=1)


async def main(url: str) -> None:
    order: dict[str, list[int]] = defaultdict(list)
    running: set[str] = set()
    done = asyncio.Event()

    async def import_file(job: Job[int]) -> None:
        customer = job.key or ""
        assert customer not in running, "two at once"
        running.add(customer)
        await asyncio.sleep(0.02 if customer == "slow" else 0)
        running.discard(customer)
        order[customer].append(job.payload)
        if sum(map(len, order.values())) == 16:
            done.set()

    async with QueueClient(url) as client:
        queue = client.queue(imports)
        await queue.add_many(range(10), key=lambda _: "slow")
        await queue.add_many(range(3), key=lambda _: "quick")
        await queue.add_many(range(3), key=lambda _: "nimble")
        async with Worker(imports, import_file, url=url, concurrency=5):
            await done.wait()
        await queue.obliterate(confirm=imports.id)

    print("finished first:", *list(order)[:2])
    print("in order:", all(numbers == sorted(numbers) for numbers in order.values()))


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
