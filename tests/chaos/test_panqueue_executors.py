"""Workers and their children die by kill -9, again and again: every job is done, and no child outlives its worker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from executor_crews import need_a_sandbox
from queueyard.kernel.proc import Identity, identity_of, wait_for_exit
from queueyard.panqueue import Queue, QueueClient
from servers import fresh_id, in_loop, valkey

if TYPE_CHECKING:
    from servers import Server

__all__ = ["valkey"]

PROGRAM = Path(__file__).with_name("panqueue_executor_worker.py")
JOBS = 4_000
KILLS = 60


@pytest.mark.chaos
@pytest.mark.parametrize("tier", ["subprocess", "sandbox"])
@in_loop
async def test_killed_workers_and_children_lose_no_job_and_leave_nobody_behind(valkey: Server, tier: str) -> None:
    if tier == "sandbox":
        need_a_sandbox()
    chance = random.Random(5)
    queue = Queue(fresh_id("chaos"), int, int, retries=1_000, max_stalls=1_000)
    seen: set[Identity] = set()
    workers = [_hired(valkey, queue.id, tier) for _ in range(2)]
    async with QueueClient(valkey.url) as client:
        handle = client.queue(queue)
        jobs = await handle.add_many(range(JOBS))
        for _ in range(KILLS):
            await asyncio.sleep(chance.uniform(0.05, 0.6))
            seen |= {one for worker in workers for one in _below(worker.pid)}
            if chance.random() < 0.3:
                victim = workers.pop(chance.randrange(len(workers)))
                victim.kill()
                victim.wait()
                workers.append(_hired(valkey, queue.id, tier))
            elif children := [one for worker in workers for one in _below(worker.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(children).pid, signal.SIGKILL)
        results = [await job.result(timeout_s=100) for job in jobs]
        counts = await handle.counts()
    seen |= {one for worker in workers for one in _below(worker.pid)}
    for worker in workers:
        worker.kill()
        worker.wait()

    assert results == [number + 1 for number in range(JOBS)]
    assert (counts.waiting, counts.active, counts.failed) == (0, 0, 0)
    assert seen
    assert [one for one in seen if not wait_for_exit(one, 20)] == []


def _hired(server: Server, queue_id: str, tier: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), server.url, queue_id, tier],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _below(pid: int) -> list[Identity]:
    """The children of a process now, with their children."""
    found: list[Identity] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):
            text = Path(f"/proc/{parent}/task/{parent}/children").read_text()
            waiting += map(int, text.split())
        if parent != pid and (one := identity_of(parent)) is not None:
            found.append(one)
    return found
