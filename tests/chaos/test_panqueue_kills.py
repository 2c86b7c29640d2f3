"""Everything that can die, dies: workers by kill -9, connections, the server, its scripts; and nothing is lost.

What happened is read from the queue's own event stream, which the scripts write in the same step as the change itself.
QUEUEYARD_CHAOS_JOBS sets how many jobs `make chaos` runs (50,000).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.events import Kind
from queueyard.kernel.testing import ClaimHistory
from queueyard.panqueue import Keep, Queue, QueueClient
from queueyard.panqueue.errors import JobExists, PanqueueError
from servers import Server, fresh_id, in_loop, own_server

if TYPE_CHECKING:
    from queueyard.kernel.events import Event
    from queueyard.panqueue import QueueHandle

JOBS = 2_000
MANY_JOBS = int(os.environ.get("QUEUEYARD_CHAOS_JOBS", "50000"))
WORKERS = 3
KEYS = 20
LIMIT = 12
PROGRAM = Path(__file__).with_name("panqueue_worker.py")


class Yard:
    """A server, some workers, and a hand that breaks things."""

    def __init__(self, server: Server, mode: str, folder: Path, seed: int) -> None:
        self.server = server
        self.mode = mode
        self.queue_id = fresh_id("chaos")
        self.chance = random.Random(seed)
        self._folder = folder
        self._workers: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.done: Counter[str] = Counter()

    def hire(self) -> None:
        self._started += 1
        words = [sys.executable, str(PROGRAM), self.server.url, self.queue_id, self.mode]
        log = str(self._folder / f"worker-{self._started}")
        skew = ["skew"] if self._started % 3 == 0 else []
        stderr = (self._folder / f"stderr-{self._started}").open("wb")
        self._workers.append(subprocess.Popen([*words, log, *skew], stdin=subprocess.DEVNULL, stderr=stderr))
        stderr.close()

    async def break_something(self) -> None:
        what = self.chance.choice(
            [self.kill_a_worker, self.stop_a_worker, self.cut, self.freeze, self.crash, self.forget]
        )
        self.done[what.__name__] += 1
        await what()

    async def kill_a_worker(self) -> None:
        victim = self._workers.pop(self.chance.randrange(len(self._workers)))
        victim.kill()
        await asyncio.to_thread(victim.wait)
        self.hire()

    async def stop_a_worker(self) -> None:
        victim = self._workers.pop(self.chance.randrange(len(self._workers)))
        victim.send_signal(signal.SIGTERM)
        self.hire()
        await asyncio.to_thread(victim.wait)

    async def cut(self) -> None:
        await asyncio.to_thread(self.server.call, "CLIENT", "KILL", "TYPE", self.chance.choice(["normal", "pubsub"]))

    async def freeze(self) -> None:
        self.server.freeze()
        await asyncio.sleep(self.chance.choice([0.05, 0.3, 1.0]))
        self.server.thaw()

    async def crash(self) -> None:
        self.server.kill()
        await asyncio.sleep(0.05)
        await asyncio.to_thread(self.server.start)

    async def forget(self) -> None:
        await asyncio.to_thread(self.server.call, "SCRIPT", "FLUSH")

    def dismiss(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            worker.wait(timeout=30)

    def end(self) -> None:
        for worker in self._workers:
            with suppress(ProcessLookupError):
                worker.kill()
            worker.wait()

    def handled(self) -> list[str]:
        """What handlers wrote down, from all workers that ever lived."""
        return [line for path in sorted(self._folder.glob("worker-*")) for line in path.read_text().splitlines()]


async def add_surely(handle: QueueHandle[Any, Any], number: int, mode: str, what: str) -> None:
    """Add a job under an id of our own until the server has it; a reply that was lost does not make two of it."""
    while True:
        try:
            key = f"k{number % KEYS}" if mode == "keyed" else None
            await handle.add({"what": what}, job_id=f"j{number}", key=key, retries=3, max_stalls=1_000)
        except JobExists:
            return
        except PanqueueError:
            await asyncio.sleep(0.02)
            continue
        return


async def add_all(handle: QueueHandle[Any, Any], jobs: int, mode: str, chance: random.Random) -> None:
    kinds = ("work",) * 196 + ("fail",) * 2 + ("doomed", "block")
    for start in range(0, jobs, 100):
        # In order: what is added in one round is one call.
        for number in range(start, min(start + 100, jobs)):
            await add_surely(handle, number, mode, chance.choice(kinds))


async def is_empty(handle: QueueHandle[Any, Any]) -> bool:
    try:
        counts = await handle.counts()
    except PanqueueError:
        return False
    return counts.waiting + counts.active + counts.delayed == 0


def broken_promises(events: list[Event], jobs: int, mode: str) -> list[str]:
    """What the stream tells about it."""
    history = ClaimHistory()
    found: list[str] = []
    active: dict[str, str | None] = {}
    tokens: dict[str, str] = {}
    added: dict[str | None, list[str]] = defaultdict(list)
    begun: dict[str | None, list[str]] = defaultdict(list)
    for event in events:
        item = event.item
        if event.kind is Kind.QUEUED:
            history.accepted(item)
            added[event.group].append(item)
        elif event.kind is Kind.STARTED:
            if event.attempt == 1:
                begun[event.group].append(item)
            tokens[item] = f"{event.actor}-{event.attempt}"
            active[item] = event.group
            history.started(item, tokens[item])
            per_key = Counter(active.values())
            if len(active) > LIMIT or (mode == "keyed" and per_key[event.group] > 2):
                found.append(f"{len(active)} active, {per_key[event.group]} of {event.group}")
        elif event.kind in {Kind.SUCCEEDED, Kind.FAILED}:
            active.pop(item, None)
            history.finished(item, tokens.get(item, "nobody"))
        elif event.kind in {Kind.STALLED, Kind.RELEASED, Kind.RETRIED}:
            active.pop(item, None)
            history.lost(item, tokens.get(item, "nobody"))
    found += history.violations()
    found += [f"{group}: not in order" for group, ids in begun.items() if ids != added[group]]
    if len({item for ids in added.values() for item in ids}) != jobs:
        found.append("not all jobs were accepted")
    return found


async def play(folder: Path, *, mode: str, jobs: int, seed: int, pause_s: float) -> None:
    with own_server("--appendonly", "yes", "--appendfsync", "everysec", folder=folder) as server:
        yard = Yard(server, mode, folder, seed)
        queue: Queue[Any, Any] = Queue(
            yard.queue_id, mode=mode, key_concurrency=2 if mode == "keyed" else None, keep_completed=Keep()
        )
        try:
            async with QueueClient(server.url, timeout_s=3) as client:
                handle = client.queue(queue)
                await handle.switch_events(20 * jobs)
                for _ in range(WORKERS):
                    yard.hire()
                adding = asyncio.ensure_future(add_all(handle, jobs, mode, yard.chance))
                while not adding.done() or not await is_empty(handle):
                    await asyncio.sleep(pause_s * yard.chance.random())
                    await yard.break_something()
                await adding
                yard.dismiss()
                events = [event async for _, event in handle.events()]
        finally:
            yard.end()

    handled = yard.handled()
    assert [line for line in handled if line.startswith("!")] == []
    assert {f"j{number}" for number in range(jobs)} <= set(handled)
    assert broken_promises(events, jobs, mode) == []
    # The play was one: several things of several kinds broke.
    assert len(yard.done) > 2


@pytest.mark.parametrize(("mode", "seed"), [("global", 1), ("keyed", 2)])
@in_loop
async def test_two_thousand_jobs_survive_everything(tmp_path: Path, mode: str, seed: int) -> None:
    await play(tmp_path, mode=mode, jobs=JOBS, seed=seed, pause_s=0.5)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("mode", "seed"), [("global", 3), ("keyed", 4)])
def test_tens_of_thousands_of_jobs_survive_everything(tmp_path: Path, mode: str, seed: int) -> None:
    asyncio.run(play(tmp_path, mode=mode, jobs=MANY_JOBS // 2, seed=seed, pause_s=1.0))


class TestTheCheckerItself:
    @staticmethod
    def event(kind: Kind, item: str, actor: str = "w", attempt: int = 1) -> Event:
        from queueyard.kernel.events import Event, System

        return Event(
            id="",
            at="",
            system=System.PANQUEUE,
            source="",
            queue="q",
            item=item,
            kind=kind,
            actor=actor,
            attempt=attempt,
        )

    def test_a_job_that_is_lost_finished_twice_or_out_of_order_is_seen(self) -> None:
        def told(*moves: tuple[Kind, str]) -> list[str]:
            return broken_promises([self.event(kind, item) for kind, item in moves], 1, "global")

        good = [(Kind.QUEUED, "a"), (Kind.STARTED, "a"), (Kind.SUCCEEDED, "a")]

        assert told(*good) == []
        assert told(*good[:2])
        assert told(*good, (Kind.STARTED, "a"), (Kind.SUCCEEDED, "a"))
        assert told(*good, (Kind.SUCCEEDED, "a"))
        assert told(*good[:2], (Kind.STALLED, "a"), (Kind.SUCCEEDED, "a"))
        both = [self.event(kind, item) for kind, item in [(Kind.QUEUED, "a"), (Kind.QUEUED, "b")]]
        swapped = [self.event(Kind.STARTED, "b"), self.event(Kind.SUCCEEDED, "b"), self.event(Kind.STARTED, "a")]
        assert "None: not in order" in broken_promises([*both, *swapped, self.event(Kind.SUCCEEDED, "a")], 2, "global")
