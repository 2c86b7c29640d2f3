"""Priorities, deduplication and rate limits through the public API, on a real server."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import (
    Dedup,
    Job,
    Keep,
    Queue,
    QueueClient,
    Rate,
    SyncQueueClient,
    TryAgain,
    Worker,
    WorkerSettings,
)
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import BadQueue, ModeMismatch
from queueyard.panqueue.store import QueueStore
from scripts import run_script
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey
from unit.panqueue.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server", "valkey"]

NO_POLLING = WorkerSettings(poll_ms=600_000)


async def order_of(server: Server, queue: Queue[Any, Any], count: int) -> list[Any]:
    """The payloads in the order in which one slot runs them."""
    handler = Recorder(wanted=count)
    async with Worker(queue, handler, url=server.url, concurrency=1, settings=NO_POLLING):
        await handler.done.wait()
    return [job.payload for job in handler.jobs]


class TestPriorities:
    @in_loop
    async def test_the_urgent_come_first_and_equals_in_the_order_of_adding(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), priorities=True)
        chance = random.Random(1)
        wanted: dict[int, list[Any]] = {}
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            for number in range(200):
                priority = chance.choice([-100, -1, 0, 0, 1, 100])
                wanted.setdefault(priority, []).append(number)
                await handle.add(number, priority=priority or None)
            found = await order_of(server, queue, 200)

        assert found == [number for priority in sorted(wanted, reverse=True) for number in wanted[priority]]

    @in_loop
    async def test_a_retried_job_keeps_its_priority_and_a_delayed_one_too(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), priorities=True)
        seen: list[Any] = []
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            seen.append(job.payload)
            if job.payload == "urgent" and job.attempt == 1:
                raise TryAgain(0)
            if len(seen) == 4:
                done.set()

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.add_many(["low", "lower"], priority=-1)
            await handle.add("urgent", priority=5, delay_ms=1)
            await eventually(lambda: _is_due(server, queue.id))
            async with Worker(queue, handler, url=server.url, concurrency=1, settings=NO_POLLING):
                await done.wait()

        assert seen[0] == "urgent"
        assert seen.count("urgent") == 2
        assert seen.index("low") < seen.index("lower")

    @in_loop
    async def test_with_ageing_a_stream_of_urgent_jobs_starves_nobody(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), ageing_ms=1)
        seen: list[Any] = []
        low_ran = asyncio.Event()

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)

            async def handler(job: Job[Any]) -> None:
                seen.append(job.payload)
                if job.payload == "low":
                    low_ran.set()
                else:
                    # Each urgent job brings another one: strictly by priority, the low one would never run.
                    await handle.add("urgent", priority=100)

            await handle.add("low", priority=-100)
            await handle.add_many(["urgent"] * 3, priority=100)
            async with Worker(queue, handler, url=server.url, concurrency=1, settings=NO_POLLING) as worker:
                await low_ran.wait()
                worker.pause()
            await handle.drain()

        assert seen[0] == "urgent"

    @in_loop
    async def test_a_worker_that_does_not_know_them_learns_the_rule_from_the_queue(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), priorities=True)
        async with QueueClient(server.url) as client:
            await client.queue(queue).add_many(["low"], priority=-5)
            await client.queue(queue).add_many(["high"], priority=5)
            assert await order_of(server, queue, 2) == ["high", "low"]
            await client.queue(queue).add_many(["low"], priority=-5)
            await client.queue(queue).add_many(["high"], priority=5)

            assert await order_of(server, Queue(queue.id), 2) == ["high", "low"]

    @in_loop
    async def test_what_waits_by_priority_is_counted_listed_removed_and_drained(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), priorities=True)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            jobs = [await handle.add(number, priority=number) for number in range(1, 6)]
            stop = asyncio.Event()
            started = asyncio.Event()

            async def handler(_job: Job[Any]) -> None:
                started.set()
                await stop.wait()

            async with Worker(queue, handler, url=server.url, concurrency=1) as worker:
                await started.wait()
                listed = [job.payload for job in await handle.jobs("waiting")]
                await handle.remove(jobs[0].id)
                await handle.cancel(jobs[1].id)
                left = (await handle.counts()).waiting
                worker.pause()
                drained = await handle.drain()
                stop.set()

        assert (listed, left, drained) == (["4", "3", "2", "1"], 2, 2)

    def test_keyed_queues_have_turns_instead(self) -> None:
        with pytest.raises(BadQueue, match="global mode"):
            Queue("q", mode="keyed", priorities=True)


async def _is_due(server: Server, queue_id: str) -> bool:
    raw = raw_redis(server)
    seconds, micros = raw.time()
    return bool(raw.zcount(f"{{q:{queue_id}}}:delayed", "-inf", seconds * 1_000 + micros // 1_000))


class TestDeduplication:
    @in_loop
    async def test_a_second_job_of_a_key_is_left_out_until_the_first_has_ended(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            first = await handle.add(1, dedup=Dedup("k"))
            second, other = await asyncio.gather(handle.add(2, dedup=Dedup("k")), handle.add(3, dedup=Dedup("l")))
            await order_of(server, queue, 2)
            third = await handle.add(4, dedup=Dedup("k"))

        assert (first.is_new, second.is_new, other.is_new, third.is_new) == (True, False, True, True)
        assert second.id == first.id != third.id

    @in_loop
    async def test_a_throttle_holds_for_its_time_whatever_becomes_of_the_job(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            first = await handle.add(1, dedup=Dedup.throttle("k", 60_000))
            await order_of(server, queue, 1)
            second = await handle.add(2, dedup=Dedup.throttle("k", 60_000))
            raw_redis(server).pexpire(f"{{q:{queue.id}}}:dedup:k", 1)

            async def is_free() -> bool:
                return (await handle.add(3, dedup=Dedup.throttle("k", 60_000))).is_new

            await eventually(is_free)

        assert (first.is_new, second.is_new, second.id) == (True, False, first.id)

    @in_loop
    async def test_of_a_burst_only_the_last_job_runs(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        async with QueueClient(server.url) as client:
            for number in range(5):
                await client.queue(queue).add(number, dedup=Dedup.debounce("k", 200))
            counts = await client.queue(queue).counts()
            found = await order_of(server, queue, 1)

        assert (counts.delayed, found) == (1, [4])

    def test_the_blocking_client_and_the_command_line(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()
        with SyncQueueClient(server.url) as client:
            job = client.queue(queue).add(1, dedup=Dedup("k"))
            assert not client.queue(queue).add(1, dedup=Dedup("k")).is_new

        again = run_script("panqueue", "enqueue", queue, "1", "--once", "k", cwd=tmp_path, REDIS_URL=server.url)
        wrong = run_script("panqueue", "enqueue", queue, "1", "--throttle", "k", cwd=tmp_path, REDIS_URL=server.url)

        assert again.stdout.strip() == job.id
        assert (wrong.code, "KEY=TIME" in wrong.stderr) == (2, True)


def starts_of(server: Server, queue_id: str, ids: list[str]) -> list[int]:
    """When jobs were claimed, by the server's clock, earliest first; each ran once."""
    return sorted(int(server.call("HGET", f"{{q:{queue_id}}}:job:{one}", "lastStartedAt")) for one in ids)


def faster_than(rate: Rate, starts: list[int]) -> list[tuple[int, int]]:
    """Windows of time with more starts than the bucket can have held and got meanwhile."""
    burst = rate.burst or rate.count
    return [
        (first, last)
        for place, first in enumerate(starts)
        for count, last in enumerate(starts[place:], 1)
        # The bucket is kept with six digits.
        if count > burst + (last - first) * rate.count / rate.per_ms + 0.001
    ]


def test_a_window_with_too_many_starts_is_seen() -> None:
    rate = Rate(20, per_ms=1_000, burst=2)

    assert faster_than(rate, [0, 0, 50, 100, 100_000, 100_000]) == []
    assert faster_than(rate, [0, 0, 49]) == [(0, 49)]


class TestRates:
    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_no_more_jobs_start_than_the_rate_allows_and_all_of_them_run(self, server: Server, mode: str) -> None:
        rate = Rate(20, per_ms=1_000, burst=5)
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode, rate=rate, key_concurrency=None, keep_completed=Keep())
        handler = Recorder(wanted=15)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            async with Worker(queue, handler, url=server.url, settings=NO_POLLING):
                added = await handle.add_many(range(15), key=str if mode == "keyed" else None)
                await handler.done.wait()

        assert faster_than(rate, starts_of(server, queue.id, [job.id for job in added])) == []

    @in_loop
    async def test_a_key_that_has_spent_its_tokens_holds_up_nobody_else(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed", key_concurrency=10, key_rate=Rate(1, per_ms=3_600_000))
        handler = Recorder(wanted=3)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            async with Worker(queue, handler, url=server.url, settings=NO_POLLING):
                await handle.add_many(range(5), key=lambda _: "greedy")
                await handle.add("modest", key="modest")
                await handle.add("late", key="late")
                await handler.done.wait()
                counts = await handle.counts()

        assert sorted(job.key or "" for job in handler.jobs) == ["greedy", "late", "modest"]
        assert (counts.waiting, counts.failed) == (4, 0)

    @in_loop
    async def test_a_limited_key_goes_on_when_it_has_tokens_again(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed", key_concurrency=9, key_rate=Rate(2, per_ms=100))
        handler = Recorder(wanted=12)
        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url, settings=NO_POLLING):
            await client.queue(queue).add_many(range(12), key=lambda one: f"k{one % 2}")
            await handler.done.wait()

        assert len({job.id for job in handler.jobs}) == 12

    @in_loop
    async def test_a_rate_can_be_set_and_lifted_while_workers_run(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        handler = Recorder(wanted=30)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.set_rate(Rate(1, per_ms=3_600_000))
            await handle.add_many(range(30))
            async with Worker(queue, handler, url=server.url, settings=NO_POLLING):
                await eventually(lambda: len(handler.jobs) == 1)
                limited = (await handle.counts()).waiting
                await handle.set_rate(None)
                await handler.done.wait()
            with pytest.raises(ModeMismatch, match="global mode"):
                await handle.set_rate(Rate(1), per_key=True)

        assert limited == 29

    @in_loop
    async def test_a_handler_may_say_when_to_try_again_without_spending_a_retry(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), rate=Rate(1_000))
        seen: list[tuple[Any, int, int]] = []
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            seen.append((job.payload, job.attempt, job.failures))
            if len(seen) == 1:
                raise TryAgain(150, everybody=True, why="429")
            if len(seen) == 3:
                done.set()

        one_slot = WorkerSettings(concurrency=1, poll_ms=600_000)
        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url, settings=one_slot):
            await client.queue(queue).add_many(["a", "b"])
            await done.wait()

        assert sorted(seen[1:]) == [("a", 2, 0), ("b", 1, 0)]

    def test_the_command_line_sets_shows_and_lifts_it(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()

        def run(*words: str) -> Any:
            return run_script("panqueue", "rate", queue, *words, cwd=tmp_path, REDIS_URL=server.url)

        assert run("100/1s", "--burst", "7").stdout == "all: 100 per 1 s, at most 7 at once\n"
        assert run("--json").json["rate"] == {"count": 100, "per_ms": 1000, "burst": 7}
        assert run("none").stdout == f"{queue} has no rate limit\n"
        assert run("fast").code == 2
        assert run("0/1s").code == 1

    @pytest.mark.parametrize(
        "settings", [{"rate": Rate(0)}, {"key_rate": Rate(1)}, {"rate": Rate(1, per_ms=0)}, {"ageing_ms": -1}]
    )
    def test_rules_that_make_no_sense_are_refused(self, settings: Any) -> None:
        with pytest.raises(BadQueue):
            Queue("q", **settings)


class TestNothingIsLost:
    @pytest.mark.parametrize("seed", range(4))
    def test_random_turns_under_all_rules_lose_and_double_nothing(self, server: Server, seed: int) -> None:
        """Keyed, with limits and rates: whatever order things come in, each job is claimed once and no limit broken."""
        chance = random.Random(seed)
        queue: Queue[Any, Any] = Queue(
            fresh_id(), mode="keyed", key_concurrency=2, rate=Rate(2_000), key_rate=Rate(400, burst=3)
        )
        store, line = QueueStore(queue.id), Line(parse_address(server.url))
        line.ask(store.declare_mode(queue.mode, 2))  # type: ignore[arg-type]
        line.ask(store.write_rules(queue.rules))
        builder = store.turn_builder(lease_ms=60_000, worker="w", keep=None, keyed=True, ruled=True)
        with SyncQueueClient(server.url) as client:
            client.queue(queue).add_many(range(150), key=lambda one: f"k{one % 7}")
        held: list[Any] = []
        claimed: list[str] = []
        calls = 0
        while len(claimed) < 150:
            calls += 1
            done = [one for one in held if chance.random() < 0.5]
            held = [one for one in held if one not in done]
            turn = line.ask(builder.build(done, claim=chance.randint(0, 9), token=f"t{calls}"))
            claimed += [job.id for job in turn.claimed]
            held += [(job.id, f"t{calls}", job.key, b"") for job in turn.claimed]
            per_key = [sum(1 for one in held if one[2] == f"k{n}") for n in range(7)]
            assert max(per_key) <= 2
        line.ask(builder.build(held, claim=0, token="end"))
        with SyncQueueClient(server.url) as client:
            counts = client.queue(queue).counts()
        line.close()

        assert len(set(claimed)) == len(claimed) == 150
        assert (counts.waiting, counts.active, counts.failed) == (0, 0, 0)
