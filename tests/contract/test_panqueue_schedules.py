"""Delayed and repeated jobs through the public API, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import random
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import Queue, QueueClient, SyncQueueClient, Worker, WorkerSettings
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import BadQueue, BadSchedule, UnknownSchedule
from queueyard.panqueue.schedules import slot_id
from queueyard.panqueue.scheduling import fire_due
from queueyard.panqueue.store import QueueStore
from scripts import run_script
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey
from unit.panqueue.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["server", "valkey"]

SLOTS = 10_000
#: so long that only notifications and the time that is due can wake a worker
NO_POLLING = WorkerSettings(poll_ms=600_000)


class TestDelays:
    @in_loop
    async def test_a_delayed_job_does_not_start_before_its_time_by_the_servers_clock(self, server: Server) -> None:
        handler = Recorder(wanted=2)
        queue_id = fresh_id()
        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, settings=NO_POLLING),
        ):
            later = await client.queue(queue_id).add("later", delay_ms=300)
            record = await later.record()
            await client.queue(queue_id).add("now")
            await handler.done.wait()
        raw = raw_redis(server)

        assert record.status == "delayed"
        assert [job.payload for job in handler.jobs] == ["now", "later"]
        assert raw.zcard(f"{{q:{queue_id}}}:delayed") == 0

    @in_loop
    async def test_a_job_may_be_given_a_moment_and_one_that_has_passed_is_now(self, server: Server) -> None:
        handler = Recorder(wanted=2)
        queue_id = fresh_id()
        now = datetime.now(UTC)
        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            await queue.add("soon", run_at=now + timedelta(milliseconds=200))
            past = await (await queue.add("past", run_at=now - timedelta(days=1))).record()
            async with Worker(queue_id, handler, url=server.url, settings=NO_POLLING):
                await handler.done.wait()

        assert past.status == "waiting"
        assert [job.payload for job in handler.jobs] == ["past", "soon"]

    @in_loop
    async def test_delayed_jobs_of_a_keyed_queue_keep_their_key(self, server: Server) -> None:
        handler = Recorder(wanted=3)
        queue: Queue[int, Any] = Queue(fresh_id(), int, mode="keyed")
        async with (
            QueueClient(server.url) as client,
            Worker(queue, handler, url=server.url, settings=NO_POLLING),
        ):
            await client.queue(queue).add_many([1, 2, 3], key=lambda one: f"k{one}", delay_ms=50)
            await handler.done.wait()

        assert sorted((job.payload, job.key or "") for job in handler.jobs) == [(1, "k1"), (2, "k2"), (3, "k3")]

    def test_a_blocking_client_delays_too(self, server: Server) -> None:
        with SyncQueueClient(server.url) as client:
            job = client.queue(fresh_id()).add(1, delay_ms=60_000)

            assert job.record().status == "delayed"

    @pytest.mark.parametrize(
        ("options", "about"),
        [
            ({"delay_ms": -1}, "delay_ms must be 0 or more"),
            ({"delay_ms": 1, "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "give one of them"),
            ({"priority": 101}, "priority must be from -100 to 100"),
            ({"expires_ms": 0}, "expires_ms must be 1 or more"),
        ],
    )
    def test_bad_placing_is_refused_before_anything_is_sent(self, options: Any, about: str) -> None:
        with SyncQueueClient("redis://127.0.0.1:1") as client, pytest.raises(BadQueue, match=about) as refused:
            client.queue("q", **options)

        assert refused.value.hint


class TestSchedules:
    @in_loop
    async def test_a_worker_adds_the_jobs_of_an_interval_one_per_slot(self, server: Server) -> None:
        handler = Recorder(wanted=3)
        queue_id = fresh_id()
        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, settings=NO_POLLING),
            Worker(queue_id, handler, url=server.url, settings=NO_POLLING),
        ):
            await client.queue(queue_id).schedule("pulse", {"n": 1}, every_ms=100)
            await handler.done.wait()
            await client.queue(queue_id).remove_schedule("pulse")

        ids = [job.id for job in handler.jobs]
        assert len(set(ids)) == len(ids)
        assert all(one.startswith("pulse@") for one in ids)

    @in_loop
    async def test_upserting_the_same_changes_nothing_and_another_goes_on_behind_the_last_slot(
        self, server: Server
    ) -> None:
        async with QueueClient(server.url) as client:
            queue = client.queue(fresh_id())

            first = await queue.schedule("nightly", 1, cron="0 3 * * *", tz="Europe/Berlin")
            again = await queue.schedule("nightly", 1, cron="0 3 * * *", tz="Europe/Berlin")
            other = await queue.schedule("nightly", 2, cron="0 4 * * *", tz="Europe/Berlin", retries=3)
            [standing] = await queue.schedules()

        assert (first, again, other) == (True, False, True)
        assert (standing.schedule.cron, standing.schedule.payload, standing.schedule.retries) == ("0 4 * * *", "2", 3)

    @in_loop
    async def test_a_paused_schedule_rests_and_goes_on_from_now(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            queue = client.queue(fresh_id())
            await queue.schedule("s", 1, every_ms=60_000)

            assert await queue.pause_schedule("s")
            assert not await queue.pause_schedule("s")
            [paused] = await queue.schedules()
            assert await queue.resume_schedule("s")
            [running] = await queue.schedules()
            await queue.remove_schedule("s")

            assert (paused.paused, paused.next_ms, running.paused) == (True, None, False)
            assert running.next_ms is not None
            assert await queue.schedules() == []
            with pytest.raises(UnknownSchedule, match="no schedule s"):
                await queue.remove_schedule("s")

    def test_the_blocking_client_has_the_same_verbs(self, server: Server) -> None:
        with SyncQueueClient(server.url) as client:
            queue = client.queue(fresh_id())

            assert queue.schedule("s", [1], cron="0 0 * * *")
            assert queue.pause_schedule("s")
            assert queue.resume_schedule("s")
            assert [one.schedule.name for one in queue.schedules()] == ["s"]
            queue.remove_schedule("s")
            with pytest.raises(BadSchedule, match="no such time zone"):
                queue.schedule("s", 1, cron="0 0 * * *", tz="Nowhere")
            with pytest.raises(BadSchedule, match="about a repeated job"):
                queue.schedule("s", 1, cron="0 0 * * *", delay_ms=5)

    @in_loop
    async def test_a_keyed_queue_needs_the_key_and_says_so(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed")
        handler = Recorder()
        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url, settings=NO_POLLING):
            await client.queue(queue).schedule("s", 1, every_ms=100, key="k")
            await handler.done.wait()

        assert handler.jobs[0].key == "k"


class TestNoSlotIsLostOrDoubled:
    """Schedulers that die between any two steps, several at once, over ten thousand slots."""

    @pytest.mark.parametrize("seed", range(3))
    def test_ten_thousand_slots_whoever_dies_when(self, valkey: Server, seed: int) -> None:
        chance = random.Random(seed)
        store = QueueStore(fresh_id())
        every = 1_000
        first = self._downtime(valkey, store, every)
        line = Line(parse_address(valkey.url))
        crews: list[Any] = []
        added = 0

        while added < SLOTS:
            # Up to four schedulers, each somewhere between its steps; any of them may be gone the next moment.
            if len(crews) < 4:
                crews.append([fire_due(store), None])
            crew = chance.choice(crews)
            if chance.random() < 0.3:
                crews.remove(crew)
                continue
            try:
                crew[1] = line.ask(crew[0].send(crew[1]))
            except StopIteration:
                crews.remove(crew)
            added = line.call("LLEN", store.keys["waiting"])

        found = [raw.decode() for raw in reversed(line.call("LRANGE", store.keys["waiting"], 0, -1))]
        line.close()
        assert found == [slot_id("s", first + n * every) for n in range(len(found))]
        assert len(found) >= SLOTS

    def _downtime(self, server: Server, store: QueueStore, every: int) -> int:
        """A schedule whose next slot lies ten thousand slots in the past, as after an outage."""
        with SyncQueueClient(server.url) as client:
            client.queue(store.queue_id).schedule("s", 1, every_ms=every, catch_up="all")
            [standing] = client.queue(store.queue_id).schedules()
        assert standing.next_ms is not None
        first = standing.next_ms - SLOTS * every
        raw = raw_redis(server)
        raw.hset(f"{store.keys['schedule']}s", "next", first)
        raw.zadd(store.keys["schedules"], {"s": first})
        raw.close()
        return first

    @in_loop
    async def test_two_schedulers_that_saw_the_same_slot_add_it_once(self, server: Server) -> None:
        store = QueueStore(fresh_id())
        self._downtime(server, store, 1_000)
        line = Line(parse_address(server.url))
        one, other = fire_due(store), fire_due(store)
        seen_by_one, seen_by_other = line.ask(next(one)), line.ask(next(other))

        for talk, seen in ((one, seen_by_one), (other, seen_by_other)):
            line.ask(talk.send(seen))

        assert line.call("LLEN", store.keys["waiting"]) == 100
        line.close()

    @in_loop
    async def test_a_change_of_the_schedule_beats_a_scheduler_that_read_the_old_one(self, server: Server) -> None:
        store = QueueStore(fresh_id())
        self._downtime(server, store, 1_000)
        line = Line(parse_address(server.url))
        talk = fire_due(store)
        seen = line.ask(next(talk))
        with SyncQueueClient(server.url) as client:
            client.queue(store.queue_id).schedule("s", 2, every_ms=60_000)

            line.ask(talk.send(seen))

            assert client.queue(store.queue_id).counts().waiting == 0
        line.close()


class TestCommandLine:
    def test_schedules_are_made_listed_and_removed(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()

        def run(*words: str) -> Any:
            return run_script("panqueue", *words, "--json", cwd=tmp_path, REDIS_URL=server.url)

        made = run("schedule", queue, "nightly", "{}", "--cron", "0 3 * * *", "--tz", "Europe/Berlin")
        listed = run("schedules", "list", queue)
        paused = run("schedules", "pause", queue, "nightly")
        resumed = run("schedules", "resume", queue, "nightly")
        removed = run("schedules", "remove", queue, "nightly")
        wrong = run("schedule", queue, "bad", "{}", "--cron", "61 * * * *")
        nobody = run("schedules", "pause", queue, "nightly")

        assert made.json["changed"]
        assert [one["schedule"]["cron"] for one in listed.json] == ["0 3 * * *"]
        assert (paused.json["paused"], resumed.json["paused"], removed.json["removed"]) == (True, False, True)
        assert (wrong.code, nobody.code) == (1, 1)
        assert "not a cron line" in wrong.stderr
        assert "schedules list" in nobody.stderr

    def test_a_delay_on_the_command_line(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()

        made = run_script("panqueue", "enqueue", queue, "1", "--delay", "1h", cwd=tmp_path, REDIS_URL=server.url)
        wrong = run_script("panqueue", "enqueue", queue, "1", "--delay", "soon", cwd=tmp_path, REDIS_URL=server.url)
        with SyncQueueClient(server.url) as client:
            counts = client.queue(queue).counts()

        assert (made.code, counts.delayed, wrong.code) == (0, 1, 1)


@in_loop
async def test_a_delayed_job_survives_the_death_of_everybody_but_the_server(server: Server) -> None:
    queue_id = fresh_id()
    handler = Recorder()
    async with QueueClient(server.url) as client:
        await client.queue(queue_id).add(1, delay_ms=100)
    worker = Worker(queue_id, handler, url=server.url, settings=NO_POLLING)
    await worker.start()
    await eventually(handler.done.is_set)
    await worker.stop()

    assert [job.attempt for job in handler.jobs] == [1]
