"""The limit: one script over redis-py that finishes N jobs and claims up to M, with nothing else around it.

It writes the same hashes, leases and tokens as panqueue and fences every finish; it has no retries, no renewal, no
time-outs, no keys, no pause and no events.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
import time
from typing import Any
import uuid

import redis.asyncio

_PROGRAMS = Path(__file__).parent / "programs"
FUSED = (_PROGRAMS / "fused.lua").read_text(encoding="utf-8")
BULK = (_PROGRAMS / "bulk.lua").read_text(encoding="utf-8")
WAITING, ACTIVE, JOB, NOTIFY = (f"{{q:bench}}:{name}" for name in ("waiting", "active", "job:", "notify"))


class BareLoop:
    """Two calls in flight, one connection each, every job its own task."""

    def __init__(self, port: int, jobs: int, *, concurrency: int, yields: bool = False) -> None:
        self._client = redis.asyncio.Redis(port=port, max_connections=8)
        self._concurrency = concurrency
        self._sha = ""
        self._jobs = jobs
        self._yields = yields
        self._free = concurrency
        self._finished: list[bytes | str] = []
        self._seen = 0
        self._first = 0.0
        self.rate = 0.0
        self._end = asyncio.Event()
        self._wake = asyncio.Event()

    async def run(self) -> float:
        self._sha = await self._client.script_load(FUSED)
        lanes = [asyncio.ensure_future(self._lane(f"t{number}")) for number in range(2)]
        await self._end.wait()
        for lane in lanes:
            lane.cancel()
        await self._client.aclose()
        return self.rate

    async def _lane(self, name: str) -> None:
        calls = 0
        while True:
            finished, self._finished = self._finished, []
            self._free += len(finished) // 2
            claim = min(self._free, self._concurrency // 2)
            if not finished and not claim:
                self._wake.clear()
                await self._wake.wait()
                continue
            calls += 1
            self._free -= claim
            token = f"{name}-{calls}"
            words = (WAITING, ACTIVE, JOB, claim, 30_000, token, *finished)
            _, claimed = await self._client.evalsha(self._sha, 3, *words)
            self._free += claim - len(claimed) // 2
            for at in range(0, len(claimed), 2):
                asyncio.get_running_loop().create_task(self._job(claimed[at], token, claimed[at + 1][0]))
            await asyncio.sleep(0)

    async def _job(self, job_id: bytes, token: str, payload: bytes) -> None:
        self._seen += 1
        if self._seen == 1:
            self._first = time.perf_counter()
        json.loads(payload)
        if self._yields:
            await asyncio.sleep(0)
        self._finished += [job_id, token]
        self._wake.set()
        if self._seen == self._jobs:
            self.rate = (self._jobs - 1) / (time.perf_counter() - self._first)
            self._end.set()


async def bare_bulk(port: int, jobs: int) -> float:
    async with redis.asyncio.Redis(port=port) as client:
        sha = await client.script_load(BULK)
        start = time.perf_counter()
        for _ in range(0, jobs, 1_000):
            words: list[Any] = []
            for number in range(1_000):
                words += [str(uuid.uuid4()), b'{"n":%d}' % number]
            await client.evalsha(sha, 3, WAITING, JOB, NOTIFY, "bench", *words)
        return jobs / (time.perf_counter() - start)


async def bare_latency(port: int, samples: int) -> list[float]:
    """Subscribe, and claim with the same script when something is told."""
    taken: list[float] = []
    async with redis.asyncio.Redis(port=port) as client, redis.asyncio.Redis(port=port) as worker:
        fused, bulk = await worker.script_load(FUSED), await client.script_load(BULK)
        listener = worker.pubsub()
        await listener.subscribe(NOTIFY)
        arrived = asyncio.Event()

        async def listen() -> None:
            async for message in listener.listen():
                if message["type"] == "message":
                    words = (WAITING, ACTIVE, JOB, 100, 30_000, "t")
                    _, claimed = await worker.evalsha(fused, 3, *words)
                    for at in range(0, len(claimed), 2):
                        taken.append(time.perf_counter() - json.loads(claimed[at + 1][0]))
                        arrived.set()
                        await worker.evalsha(fused, 3, WAITING, ACTIVE, JOB, 0, 30_000, "t", claimed[at], "t")

        listening = asyncio.ensure_future(listen())
        for _ in range(samples):
            arrived.clear()
            payload = json.dumps(time.perf_counter())
            await client.evalsha(bulk, 3, WAITING, JOB, NOTIFY, "bench", str(uuid.uuid4()), payload)
            await arrived.wait()
            await asyncio.sleep(0.003)
        listening.cancel()
        await listener.aclose()  # type: ignore[no-untyped-call]
    return taken[samples // 10 :]
