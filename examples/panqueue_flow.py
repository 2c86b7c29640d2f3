"""A report that waits for its pages; one page is broken, one attempt dies half-way, and the report is right anyway.

Run it anywhere: python examples/panqueue_flow.py. It uses REDIS_URL, or a Valkey of its own in a throw-away folder.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Any
import uuid

from queueyard.panqueue import BackoffRule, FlowJob, Job, Queue, QueueClient, Worker
from queueyard.panqueue.embedded import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = uuid.uuid4().hex[:6]
pages = Queue(f"pages-{SUFFIX}", str, int)
reports = Queue(f"reports-{SUFFIX}", str, dict[str, Any], retries=2, backoff=BackoffRule(base_ms=0, cap_ms=0))


async def count_words(job: Job[str]) -> int:
    if not job.payload:
        raise ValueError("an empty page")
    return len(job.payload.split())


async def write_report(job: Job[str]) -> dict[str, Any]:
    async def add_up() -> int:
        print("adding up")
        return sum(page.result for page in (await job.children()).values() if page.ok)

    words = await job.step("add up", add_up)
    if job.attempt == 1:
        raise ConnectionError("the printer is not there yet")
    missing = [name for name, page in (await job.children()).items() if not page.ok]
    return {"title": job.payload, "words": words, "missing": missing}


async def main(url: str) -> None:
    texts = {"one": "once upon a time", "two": "", "three": "the end"}
    flow = FlowJob(
        reports,
        "A tale",
        children=[FlowJob(pages, text, name=name, on_failure="ignore") for name, text in texts.items()],
    )
    async with (
        QueueClient(url) as client,
        Worker(pages, count_words, url=url),
        Worker(reports, write_report, url=url),
    ):
        report = await client.add_flow(flow)
        print(await report.result(timeout_s=60))
    async with QueueClient(url) as client:
        for queue in (pages, reports):
            await client.queue(queue).obliterate(confirm=queue.id)


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
