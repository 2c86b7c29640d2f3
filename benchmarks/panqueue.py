"""panqueue against its peers and against a bare loop, all on one server, taking turns.

Run: make bench, or python benchmarks/panqueue.py [SCALE] [ROUNDS] [PART]... SCALE shrinks every number of jobs (1.0);
parts: rates, latency, keyed, commands, memory, long. Peers are installed into throw-away folders (QUEUEYARD_BENCH_DIR
keeps them); one that cannot be had is left out with a line.
Everything runs at least once: what only pops and forgets is no peer. Jobs do nothing, one worker process, concurrency
100, the same Valkey. A rate counts from the first handler to the last, so nobody pays for starting up.

The bare loop is the limit: one script over redis-py that finishes N jobs and claims up to M, with the same hashes,
leases and tokens, and nothing else around it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import os
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

import redis

import measuring
from panqueue_peers.bare import BareLoop, bare_bulk, bare_latency
from panqueue_peers.others import Peer, install_peers
from queueyard.panqueue import Job, Queue, QueueClient, Worker
from queueyard.panqueue.embedded import find_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCALE = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
PARTS = sys.argv[3:]
CONCURRENCY = 100
JOBS = int(30_000 * SCALE)
PORT = 6399
URL = f"redis://127.0.0.1:{PORT}"


# --- ours ------------------------------------------------------------------------------------------------------------


async def ours_processed(jobs: int, *, yields: bool = False, queue: Queue[Any, Any] | None = None) -> float:
    seen = 0
    first = rate = 0.0
    end = asyncio.Event()

    async def handler(_job: Job[Any]) -> None:
        nonlocal seen, first, rate
        seen += 1
        if seen == 1:
            first = time.perf_counter()
        if yields:
            await asyncio.sleep(0)
        if seen == jobs:
            rate = (jobs - 1) / (time.perf_counter() - first)
            end.set()

    async with Worker(queue or Queue("bench"), handler, url=URL, concurrency=CONCURRENCY):
        await end.wait()
    return rate


async def ours_bulk(jobs: int, queue: Queue[Any, Any] | None = None, keys: int = 0) -> float:
    async with QueueClient(URL) as client:
        handle = client.queue(queue or Queue("bench", mode="global"))
        payloads = [{"n": number} for number in range(jobs)]
        key = (lambda payload: f"key-{payload['n'] % keys}") if keys else None
        start = time.perf_counter()
        await handle.add_many(payloads, key=key)
        return jobs / (time.perf_counter() - start)


async def ours_concurrent_adds(jobs: int) -> float:
    async with QueueClient(URL) as client:
        handle = client.queue(Queue("bench", mode="global"))
        start = time.perf_counter()
        for _ in range(0, jobs, 1_000):
            await asyncio.gather(*(handle.add({"n": number}) for number in range(1_000)))
        return jobs / (time.perf_counter() - start)


async def ours_single_adds(jobs: int) -> float:
    async with QueueClient(URL) as client:
        handle = client.queue(Queue("bench", mode="global"))
        start = time.perf_counter()
        for number in range(jobs):
            await handle.add({"n": number})
        return jobs / (time.perf_counter() - start)


# --- figures ---------------------------------------------------------------------------------------------------------


def flush() -> None:
    with redis.Redis(port=PORT) as client:
        client.execute_command("FLUSHALL", "SYNC")


class Rates:
    """Jobs per second of every candidate, round by round."""

    def __init__(self) -> None:
        self.processed: dict[str, list[float]] = {}
        self.yielding: dict[str, list[float]] = {}
        self.single: dict[str, list[float]] = {}
        self.bulk: dict[str, list[float]] = {}

    def take(self, peers: list[Peer]) -> None:
        """One round: every candidate once."""
        for peer in peers:
            flush()
            _note(self.single, peer.name, peer.run("single"))
            flush()
            _note(self.bulk, peer.name, peer.run("bulk"))
            _note(self.processed, peer.name, peer.run("work"))
            if peer.is_python and peer.name not in {"celery", "rq"}:
                flush()
                peer.run("bulk")
                _note(self.yielding, peer.name, peer.run("work", yields=True))
        for yields, table in ((False, self.processed), (True, self.yielding)):
            flush()
            _note(self.bulk, "bare bulk script", asyncio.run(bare_bulk(PORT, JOBS)))
            bare = BareLoop(PORT, JOBS, concurrency=CONCURRENCY, yields=yields)
            _note(table, "bare loop", asyncio.run(bare.run()))
            flush()
            _note(self.bulk, "panqueue", asyncio.run(ours_bulk(JOBS)))
            _note(table, "panqueue", asyncio.run(ours_processed(JOBS, yields=yields)))
        flush()
        _note(self.single, "panqueue, concurrent adds", asyncio.run(ours_concurrent_adds(JOBS)))
        flush()
        _note(self.single, "panqueue, one by one", asyncio.run(ours_single_adds(max(500, JOBS // 20))))

    def show(self) -> None:
        for title, table in (
            ("processed", self.processed),
            ("processed, handlers yield once", self.yielding),
            ("added one by one", self.single),
            ("added in bulk", self.bulk),
        ):
            for name, rates in sorted(table.items(), key=lambda one: -statistics.median(one[1])):
                measuring.report(f"{title}: {name}", statistics.median(rates), "/s")


def _note(table: dict[str, list[float]], name: str, rate: float | None) -> None:
    if rate is not None:
        table.setdefault(name, []).append(rate)


def measure_rates(peers: list[Peer]) -> None:
    rates = Rates()
    for number in range(ROUNDS):
        print(f"round {number + 1} of {ROUNDS}, load {os.getloadavg()[0]:.1f}", flush=True)
        rates.take(peers)
    rates.show()
    everybody = {peer.name for peer in peers}
    python = {peer.name for peer in peers if peer.is_python}
    ours = _median(rates.processed, "panqueue")
    compare("processed / best Python peer", ours, _best(rates.processed, python), 15)
    compare("processed / BullMQ on Node", ours, _median(rates.processed, "bullmq (Node)"), 4)
    compare("processed / bare loop", ours, _median(rates.processed, "bare loop"), 0.6)
    yielding = _median(rates.yielding, "panqueue")
    compare("processed with a yield / best Python peer", yielding, _best(rates.yielding, python), 10)
    bulk = _median(rates.bulk, "panqueue")
    compare("add_many / best peer's bulk", bulk, _best(rates.bulk, everybody), 5)
    compare("add_many / bare bulk script", bulk, _median(rates.bulk, "bare bulk script"), 0.6)
    concurrent = _median(rates.single, "panqueue, concurrent adds")
    compare("concurrent add() / best peer's single add", concurrent, _best(rates.single, everybody), 10)


def compare(what: str, ours: float, theirs: float, at_least: float) -> None:
    if theirs:
        measuring.report(f"ratio: {what}", ours / theirs, "x", at_least=at_least)


def _median(table: dict[str, list[float]], name: str) -> float:
    return statistics.median(table[name]) if table.get(name) else 0.0


def _best(table: dict[str, list[float]], names: set[str]) -> float:
    return max((_median(table, name) for name in names), default=0.0)


def measure_latency() -> None:
    samples = max(50, int(400 * SCALE))
    bare: list[float] = []
    ours: list[float] = []
    for _ in range(4):
        flush()
        bare += asyncio.run(bare_latency(PORT, samples // 4))
        flush()
        ours += asyncio.run(_our_latency(samples // 4))
    p50 = {"bare loop": statistics.median(bare), "panqueue": statistics.median(ours)}
    for name, value in p50.items():
        measuring.report(f"latency from add to handler, p50: {name}", value * 1e3, "ms")
    measuring.report("ratio: p50 / bare loop", p50["panqueue"] / p50["bare loop"], "x", at_most=1.2)
    measuring.report("latency from add to handler, p99: bare loop", _p99(bare) * 1e3, "ms")
    measuring.report("latency from add to handler, p99: panqueue", _p99(ours) * 1e3, "ms", at_most=5.0)


def _p99(samples: list[float]) -> float:
    return sorted(samples)[int(len(samples) * 0.99) - 1]


async def _our_latency(samples: int) -> list[float]:
    taken: list[float] = []
    arrived = asyncio.Event()

    async def handler(job: Job[Any]) -> None:
        taken.append(time.perf_counter() - job.payload)
        arrived.set()

    async with QueueClient(URL) as client, Worker(Queue("bench"), handler, url=URL, concurrency=CONCURRENCY):
        handle = client.queue(Queue("bench", mode="global"))
        for _ in range(samples):
            arrived.clear()
            await handle.add(time.perf_counter())
            await arrived.wait()
            await asyncio.sleep(0.003)
    return taken[samples // 10 :]


def measure_keyed() -> None:
    jobs = max(2_000, JOBS // 2)
    rates: dict[str, list[float]] = {}
    costs: dict[int, list[float]] = {}
    for _ in range(ROUNDS):
        flush()
        asyncio.run(ours_bulk(jobs))
        rates.setdefault("global", []).append(asyncio.run(ours_processed(jobs)))
        for keys in (100, 1_000, 10_000):
            flush()
            queue: Queue[Any, Any] = Queue("bench", mode="keyed", key_concurrency=1 if keys > 100 else 2)
            asyncio.run(ours_bulk(jobs, queue, keys))
            with _commands() as stats:
                rates.setdefault(f"keyed, {keys:,} keys", []).append(asyncio.run(ours_processed(jobs, queue=queue)))
            costs.setdefault(keys, []).append(stats["evalsha_us"] / jobs)
    for name, values in rates.items():
        measuring.report(f"processed, {name}", statistics.median(values), "/s")
    for keys, values in costs.items():
        measuring.report(f"server time per keyed job, {keys:,} keys", statistics.median(values), "us")
    grown = statistics.median(costs[10_000]) / statistics.median(costs[100])
    # A hundred times the keys: the logarithm doubles.
    measuring.report("ratio: server time per job, 10,000 keys / 100 keys", grown, "x", at_most=2.0)
    half = statistics.median(rates["keyed, 1,000 keys"]) / statistics.median(rates["global"])
    measuring.report("ratio: keyed with 1,000 keys / global", half, "x", at_least=0.5)


@contextmanager
def _commands() -> Iterator[dict[str, float]]:
    """How many commands the server executed meanwhile, and how long its scripts took."""
    told: dict[str, float] = {}
    with redis.Redis(port=PORT) as client:
        client.config_resetstat()
        yield told
        stats = client.info("commandstats")
    told["calls"] = sum(one["calls"] for one in stats.values())
    told["evalsha_us"] = stats["cmdstat_evalsha"]["usec"]


def measure_commands() -> None:
    flush()
    with _commands() as stats:
        asyncio.run(ours_bulk(JOBS))
        asyncio.run(ours_processed(JOBS))
    measuring.report("server commands per job, added and processed", stats["calls"] / JOBS, "", at_most=8)


def measure_memory(peers: list[Peer]) -> None:
    jobs = 20_000
    node = next((peer for peer in peers if peer.name == "bullmq (Node)"), None)
    theirs = 0.0
    if node is not None:
        node.jobs = jobs
        theirs = _bytes_per_job(lambda: node.run("bulk"), jobs)
        measuring.report("bytes per waiting job: BullMQ on Node", theirs, "B")
    public = _bytes_per_job(lambda: asyncio.run(ours_bulk(jobs)), jobs)
    short = _bytes_per_job(lambda: asyncio.run(ours_bulk(jobs, Queue("bench", mode="global", short_ids=True))), jobs)
    measuring.report("bytes per waiting job: panqueue, public layout", public, "B")
    measuring.report("bytes per waiting job: panqueue, short ids", short, "B")
    if theirs:
        measuring.report("ratio: short ids / BullMQ", short / theirs, "x", at_most=1.0)
        # The public layout fixes ids of 36 characters and ten fields per job; only short ids can be smaller.
        measuring.report("ratio: public layout / BullMQ (known to be above 1)", public / theirs, "x")


def _bytes_per_job(add: Callable[[], object], jobs: int) -> float:
    flush()
    time.sleep(0.5)
    with redis.Redis(port=PORT) as client:
        before = client.info("memory")["used_memory"]
        add()
        after = client.info("memory")["used_memory"]
    return float(after - before) / jobs


def measure_a_long_queue() -> None:
    waiting = int(1_000_000 * SCALE)
    jobs = JOBS
    few: list[float] = []
    many: list[float] = []
    flush()
    asyncio.run(ours_bulk(waiting, Queue("long", mode="global")))
    for _ in range(max(3, ROUNDS)):
        asyncio.run(ours_bulk(jobs))
        few.append(asyncio.run(ours_processed(jobs)))
        many.append(asyncio.run(ours_processed(jobs, queue=Queue("long"))))
        asyncio.run(ours_bulk(jobs, Queue("long", mode="global")))
    measuring.report("processed, almost empty queue", statistics.median(few), "/s")
    measuring.report(f"processed, {waiting:,} jobs waiting", statistics.median(many), "/s")
    measuring.report(
        "ratio: long queue / short one", statistics.median(many) / statistics.median(few), "x", at_least=0.9
    )
    flush()


def main() -> None:
    kept = os.environ.get("QUEUEYARD_BENCH_DIR")
    with tempfile.TemporaryDirectory(prefix="panqueue-bench-", dir=kept) as name:
        folder = Path(name)
        server = subprocess.Popen(
            [str(find_binary()), "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", name],
            stdout=subprocess.DEVNULL,
        )
        try:
            peers = install_peers(Path(kept) / "peers" if kept else folder / "peers", PORT)
            _wait_for_server()
            print(f"scale {SCALE:g}, {ROUNDS} rounds, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
            parts: dict[str, Callable[[], None]] = {
                "rates": lambda: measure_rates(peers),
                "latency": measure_latency,
                "keyed": measure_keyed,
                "commands": measure_commands,
                "memory": lambda: measure_memory(peers),
                "long": measure_a_long_queue,
            }
            for part in PARTS or parts:
                parts[part]()
        finally:
            server.kill()
            server.wait()
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    measuring.finish()


def _wait_for_server() -> None:
    for _ in range(500):
        try:
            with redis.Redis(port=PORT) as client:
                client.ping()
        except redis.exceptions.ConnectionError:
            time.sleep(0.02)
        else:
            return
    sys.exit("the server does not answer")


if __name__ == "__main__":
    main()
