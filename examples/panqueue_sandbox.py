"""A handler that may read one folder and write another, and nothing else: what it tries beyond that is refused.

Run it anywhere on Linux: python examples/panqueue_sandbox.py. It uses REDIS_URL, or a Valkey of its own in a throw-away
folder. What enforces the policy depends on the machine: panqueue sandbox tiers
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING
import uuid

import msgspec

from queueyard.panqueue import Job, Queue, QueueClient, Worker
from queueyard.panqueue.embedded import start, stop
from queueyard.panqueue.errors import JobFailed
from queueyard.panqueue.executors import Policy, Sandbox
from queueyard.panqueue.executors.errors import PolicyRefused

if TYPE_CHECKING:
    from collections.abc import Iterator


class Copy(msgspec.Struct):
    source: str
    target: str


def shout(job: Job[Copy]) -> str:
    """Runs in a child that is locked in; it is found there by its name."""
    text = Path(job.payload.source).read_text()
    Path(job.payload.target).write_text(text.upper())
    return text.upper()


async def main(url: str, folder: Path) -> None:
    for name in ("in", "out"):
        (folder / name).mkdir()
    (folder / "in" / "greeting").write_text("hello")
    (folder / "secret").write_text("nobody's business")
    policy = Policy(read=(str(folder / "in"),), write=(str(folder / "out"),), memory_mb=256)
    queue = Queue(f"shout-{uuid.uuid4().hex[:6]}", Copy, str, executor=Sandbox(policy))

    async with QueueClient(url) as client, Worker(queue, shout, url=url):
        handle = client.queue(queue)
        allowed = await handle.add(Copy(str(folder / "in" / "greeting"), str(folder / "out" / "loud")))
        print("allowed:", await allowed.result())
        for what, source, target in (("read", "secret", "out/stolen"), ("write", "in/greeting", "in/changed")):
            job = await handle.add(Copy(str(folder / source), str(folder / target)))
            try:
                print(f"{what}: not refused", await job.result())
            except JobFailed:
                print(f"{what}: refused")
        await handle.obliterate(confirm=queue.id)


@contextmanager
def a_server() -> Iterator[str]:
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        yield start(Path(folder)).url
        stop(Path(folder))


if __name__ == "__main__":
    with a_server() as server, tempfile.TemporaryDirectory() as place:
        try:
            asyncio.run(main(server, Path(place)))
        except PolicyRefused as refused:
            print(refused)
