"""Schedulers that are killed with -9, several at once, at any moment: every slot becomes one job, in order.

The schedule has missed a million slots, so that its schedulers have as much to do as they can. What they did is read
from the queue's event stream, which is written in the same step as the job.
"""

from __future__ import annotations

from pathlib import Path
import random
import subprocess
import sys

import pytest

from queueyard.kernel.events import Kind
from queueyard.panqueue import SyncQueueClient
from queueyard.panqueue.schedules import slot_id
from queueyard.panqueue.store import QueueStore
from servers import Server, fresh_id, own_server, raw_redis, wait_until

PROGRAM = Path(__file__).with_name("panqueue_scheduler.py")
SCHEDULERS = 3
MISSED = 1_000_000
EVERY_MS = 1_000
EVENTS_KEPT = 5_000_000


class Yard:
    """A schedule far behind its time, and schedulers that come and go."""

    def __init__(self, server: Server, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store = QueueStore(fresh_id("slots"))
        self._server = server
        self._redis = raw_redis(server)
        self._staff: list[subprocess.Popen[bytes]] = []
        with SyncQueueClient(server.url) as client:
            handle = client.queue(self.store.queue_id)
            handle.schedule("s", 1, every_ms=EVERY_MS, catch_up="all")
            handle.switch_events(EVENTS_KEPT)
            [standing] = handle.schedules()
        assert standing.next_ms is not None
        self.first_ms = standing.next_ms - MISSED * EVERY_MS
        self._redis.hset(f"{self.store.keys['schedule']}s", "next", self.first_ms)
        self._redis.zadd(self.store.keys["schedules"], {"s": self.first_ms})

    def hire(self) -> None:
        words = [sys.executable, str(PROGRAM), self._server.url, self.store.queue_id]
        while len(self._staff) < SCHEDULERS:
            self._staff.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))

    def fired(self) -> int:
        return int(self._redis.hget(f"{self.store.keys['schedule']}s", "fired") or 0)

    def kill_some(self) -> int:
        """Wait until slots are being fired, then kill one or more in the middle of it; gives how many."""
        before = self.fired() + self.chance.randint(0, 300)
        wait_until(lambda: self.fired() > before, "nobody fires a slot", timeout_s=60)
        victims = self.chance.sample(self._staff, self.chance.randint(1, SCHEDULERS))
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()
            self._staff.remove(victim)
        return len(victims)

    def slots(self) -> list[str]:
        """What became a job, in order."""
        with SyncQueueClient(self._server.url) as client:
            events = client.queue(self.store.queue_id).events()
            return [event.item for _, event in events if event.kind is Kind.QUEUED]

    def close(self) -> None:
        for one in self._staff:
            one.kill()
            one.wait()
        self._staff.clear()
        self._redis.close()


def play(kills: int, seed: int) -> None:
    with own_server() as server:
        yard = Yard(server, seed)
        try:
            done = 0
            while done < kills:
                yard.hire()
                done += yard.kill_some()
        finally:
            yard.close()

        found = yard.slots()

    assert found
    assert found == [slot_id("s", yard.first_ms + number * EVERY_MS) for number in range(len(found))]


def test_a_few_kills_lose_no_slot_and_double_none() -> None:
    play(kills=3, seed=1)


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 5))
def test_dozens_of_kills_lose_no_slot_and_double_none(seed: int) -> None:
    play(kills=30, seed=seed)
