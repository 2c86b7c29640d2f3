"""What the features of panqueue cost: priorities, delays, rate limits per key, each against a plain queue.

Run: make bench, or python benchmarks/panqueue_features.py [SCALE] [ROUNDS]. SCALE shrinks every number of jobs (1.0).
Jobs do nothing, one worker process, concurrency 100. What counts is the whole way of a job: added in bulk, claimed,
run, finished. Candidates take turns and each round begins with another one, because whoever is measured first pays for
what is still cold; the first round is not counted. A figure is the median. Server time is what the server says that its
scripts took.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any, TypeVar

import redis

import measuring
from queueyard.panqueue import Job, Queue, QueueClient, Rate, Worker
from queueyard.panqueue.embedded import find_binary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

T = TypeVar("T")
SCALE = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
JOBS = int(20_000 * SCALE)
KEYS = (100, 1_000, 10_000)
CONCURRENCY = 100
PORT = 6397
URL = f"redis://127.0.0.1:{PORT}"


async def seconds_of(queue: Queue[Any, Any], jobs: int, *, keys: int = 0, **options: Any) -> float:
    """From the first add to the end of the last handler."""
    seen = 0
    end = asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        nonlocal seen
        seen += 1
        if seen == jobs:
            end.set()

    key = (lambda number: f"key-{number % keys}") if keys else None
    async with QueueClient(URL) as client, Worker(queue, handler, url=URL, concurrency=CONCURRENCY) as worker:
        # First everything is added, then everything is run: a backlog is where order costs most.
        worker.pause()
        start = time.perf_counter()
        await client.queue(queue).add_many(range(jobs), key=key, **options)
        worker.resume()
        await end.wait()
        return time.perf_counter() - start


def measured(queue: Queue[Any, Any], jobs: int, **options: Any) -> tuple[float, float]:
    """(seconds, microseconds of server time per job) of one run on an empty server."""
    with redis.Redis(port=PORT) as client:
        client.execute_command("FLUSHALL", "SYNC")
        client.config_resetstat()
        took = asyncio.run(seconds_of(queue, jobs, **options))
        stats: Any = client.info("commandstats")
    scripts = sum(stats[name]["usec"] for name in stats if name in {"cmdstat_evalsha", "cmdstat_eval"})
    return took, scripts / jobs


def turns_of(candidates: Sequence[T]) -> Iterator[T]:
    """Every candidate once per round, one round more than is counted."""
    for number in range(ROUNDS + 1):
        first = number % len(candidates)
        yield from (*candidates[first:], *candidates[:first])


def counted(figures: list[float]) -> list[float]:
    """Those of all rounds but the first."""
    return figures[1:]


def report_costs() -> None:
    """The whole way of a job with a feature, against the same without."""
    candidates: dict[str, tuple[Queue[Any, Any], dict[str, Any]]] = {
        "plain": (Queue("plain"), {}),
        "priorities": (Queue("ranked", priorities=True), {"priority": 5}),
        "delays": (Queue("delayed"), {"delay_ms": 1}),
        "a rate limit": (Queue("rated", rate=Rate(1_000_000)), {}),
    }
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for name in turns_of(list(candidates)):
        queue, options = candidates[name]
        taken[name].append(measured(queue, JOBS, **options)[0])
    taken = {name: counted(times) for name, times in taken.items()}
    plain = statistics.median(taken["plain"])
    measuring.report("a plain job, added and run", plain / JOBS * 1e6, "us")
    for name in ("priorities", "delays", "a rate limit"):
        ratio = statistics.median(taken[name]) / plain
        measuring.report(f"a job with {name} / a plain one", ratio, "x", at_most=1.5)


def report_keys() -> None:
    """Server time per job with a rate limit per key, by the number of keys."""
    costs: dict[int, list[float]] = {keys: [] for keys in KEYS}
    for keys in turns_of(KEYS):
        queue: Queue[Any, Any] = Queue("keys", mode="keyed", key_concurrency=100, key_rate=Rate(1_000_000))
        costs[keys].append(measured(queue, max(JOBS, keys), keys=keys)[1])
    medians = {keys: statistics.median(counted(costs[keys])) for keys in KEYS}
    for keys in KEYS:
        measuring.report(f"server time per job, rate limits on {keys:,} keys", medians[keys], "us")
    measuring.report("the same, 10,000 keys / 100 keys", medians[10_000] / medians[100], "x", at_most=2.0)


@contextmanager
def valkey() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        words = [find_binary(), "--port", PORT, "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL) as server:
            try:
                with redis.Redis(port=PORT) as client:
                    while not _answers(client):
                        time.sleep(0.02)
                yield
            finally:
                server.kill()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


def main() -> None:
    with valkey():
        report_costs()
        report_keys()
    measuring.finish()


if __name__ == "__main__":
    main()
