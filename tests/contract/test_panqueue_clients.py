"""Typed queues, results, tasks and coalesced adds, through the public API."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
import os
import threading
from typing import Any, TypedDict

import msgspec
import pytest

from queueyard.panqueue import Job, Keep, Queue, QueueClient, SyncQueueClient, Tasks, Worker
from queueyard.panqueue.errors import Closed, JobExists, JobFailed, ResultGone, TimedOut
from servers import Server, fresh_id, in_loop, raw_redis, server, valkey

__all__ = ["server", "valkey"]


class Email(msgspec.Struct):
    to: str
    at: datetime
    copies: list[str] = []


@dataclass
class Point:
    x: float
    y: float


class Order(TypedDict):
    number: int


class TestTypes:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (Email, Email("a@example.org", datetime(2026, 1, 2, tzinfo=UTC), ["b"])),
            (Point, Point(1.5, -2.0)),
            (Order, {"number": 7}),
            (list[Point], [Point(0.0, 1.0)]),
            (dict[str, int], {"a": 1}),
            (str, "żółw"),
            (None, {"any": [1, None, {"thing": True}]}),
        ],
    )
    @in_loop
    async def test_a_payload_arrives_as_the_type_that_the_queue_was_declared_with(
        self, valkey: Server, kind: Any, value: Any
    ) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), kind) if kind else Queue(fresh_id())
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()

        async with QueueClient(valkey.url) as client, Worker(queue, seen.put, url=valkey.url):
            await client.queue(queue).add(value)
            job = await seen.get()

        assert job.payload == value
        assert type(job.payload) is type(value)

    @in_loop
    async def test_defaults_of_a_handle_hold_unless_the_add_says_otherwise(self, valkey: Server) -> None:
        async with QueueClient(valkey.url) as client:
            handle = client.queue(fresh_id(), retries=3, max_stalls=1)
            plain = await (await handle.add({})).record()
            other = await (await handle.add({}, retries=0)).record()

        assert (plain.max_retries, plain.max_stalls) == (3, 1)
        assert (other.max_retries, other.max_stalls) == (0, 1)


class TestAdding:
    @in_loop
    async def test_adds_of_one_round_become_one_call_and_keep_their_order(self, server: Server) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue_id)
            await handle.add(-1)
            before = raw.info("commandstats")["cmdstat_evalsha"]["calls"]
            added = await asyncio.gather(*(handle.add(number) for number in range(300)))
            calls = raw.info("commandstats")["cmdstat_evalsha"]["calls"] - before
            waiting = await handle.jobs("waiting", skip=1, most=300)
        raw.close()

        assert calls == 1
        assert [job.id for job in waiting] == [job.id for job in added]

    @in_loop
    async def test_different_options_in_one_round_still_keep_the_order(self, valkey: Server) -> None:
        async with QueueClient(valkey.url) as client:
            handle = client.queue(fresh_id())
            await asyncio.gather(*(handle.add(number, retries=number % 3) for number in range(30)))
            waiting = await handle.jobs("waiting", most=30)

        assert [(int(job.payload), job.max_retries) for job in waiting] == [(n, n % 3) for n in range(30)]

    @in_loop
    async def test_an_id_that_is_taken_is_refused_and_the_others_are_added(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            handle = client.queue(fresh_id())
            await handle.add(1, job_id="a")
            told = await asyncio.gather(
                handle.add(2, job_id="b"), handle.add(3, job_id="a"), handle.add(4, job_id="c"), return_exceptions=True
            )
            waiting = await handle.jobs("waiting")

        assert isinstance(told[1], JobExists)
        assert [job.id for job in waiting] == ["a", "b", "c"]
        assert waiting[0].payload == "1"

    @in_loop
    async def test_short_ids_are_counted_by_the_server(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), short_ids=True)
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()
        async with QueueClient(server.url) as client:
            handle = client.queue(queue, retries=1)
            first = await handle.add("x")
            more = await handle.add_many(["y", "z"])
            record = await first.record()
            async with Worker(queue, seen.put, url=server.url, concurrency=1):
                jobs = [await seen.get() for _ in range(3)]

        assert [first.id, *(job.id for job in more)] == ["1", "2", "3"]
        assert (record.max_retries, record.max_stalls, record.runs) == (1, 5, 0)
        assert [(job.id, job.payload) for job in jobs] == [("1", "x"), ("2", "y"), ("3", "z")]

    def test_threads_may_share_a_sync_client(self, valkey: Server) -> None:
        with SyncQueueClient(valkey.url) as client:
            handle = client.queue(fresh_id())
            threads = [threading.Thread(target=lambda: [handle.add(number) for number in range(50)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

            assert handle.counts().waiting == 200

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_makes_a_connection_of_its_own(self, valkey: Server) -> None:
        """As web servers do it: the client is used before the fork, and by parent and child at once after it."""
        with SyncQueueClient(valkey.url) as client:
            handle = client.queue(fresh_id())
            handle.add("before")
            pid = os.fork()
            if not pid:
                for _ in range(100):
                    handle.add("child")
                os._exit(0)
            for _ in range(100):
                handle.add("parent")
            _, status = os.waitpid(pid, 0)
            payloads = Counter(job.payload for job in handle.jobs("waiting", most=300))

        assert status == 0
        assert payloads == {'"before"': 1, '"child"': 100, '"parent"': 100}

    @in_loop
    async def test_a_closed_client_says_so(self, valkey: Server) -> None:
        client = QueueClient(valkey.url)
        handle = client.queue(fresh_id())
        await handle.add(1)
        await client.close()

        with pytest.raises(Closed):
            await handle.add(2)
        with pytest.raises(Closed):
            client.queue("other")


class TestResults:
    @in_loop
    async def test_a_result_arrives_as_its_type_as_soon_as_the_job_is_done(self, server: Server) -> None:
        queue = Queue(fresh_id(), int, Point)

        async def handler(job: Job[int]) -> Point:
            return Point(job.payload, job.payload * 2)

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            added = await client.queue(queue).add_many(range(20))
            results = await asyncio.gather(*(job.result(timeout_s=20) for job in added))

        assert results == [Point(n, n * 2) for n in range(20)]

    @in_loop
    async def test_a_result_of_a_job_that_was_over_before_is_there_too(self, server: Server) -> None:
        queue = Queue(fresh_id(), int, int)

        async def handler(job: Job[int]) -> int:
            return job.payload + 1

        async with QueueClient(server.url) as client:
            job = await client.queue(queue).add(1)
            async with Worker(queue, handler, url=server.url):
                await job.result(timeout_s=20)
        async with QueueClient(server.url) as other:
            assert await other.queue(queue).result(job.id, timeout_s=5) == 2

    @in_loop
    async def test_a_job_that_failed_raises_its_reason(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())

        async def handler(_job: Job[Any]) -> None:
            raise ValueError("out of paper")

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            job = await client.queue(queue).add({})
            with pytest.raises(JobFailed, match="out of paper") as caught:
                await job.result(timeout_s=20)

        assert caught.value.facts() == {"job": job.id, "reason": "out of paper"}

    @in_loop
    async def test_a_result_that_nobody_kept_is_told_apart_from_none(self, server: Server) -> None:
        forgetful: Queue[Any, Any] = Queue(fresh_id())
        mindful: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep(count=10))

        async def handler(_job: Job[Any]) -> None: ...

        async with (
            QueueClient(server.url) as client,
            Worker(forgetful, handler, url=server.url),
            Worker(mindful, handler, url=server.url),
        ):
            with pytest.raises(ResultGone, match="nothing was kept"):
                await (await client.queue(forgetful).add({})).result(timeout_s=20)
            assert await (await client.queue(mindful).add({})).result(timeout_s=20) is None

    @in_loop
    async def test_waiting_has_an_end(self, valkey: Server) -> None:
        async with QueueClient(valkey.url) as client:
            job = await client.queue(fresh_id()).add({})
            with pytest.raises(TimedOut, match=r"0\.05 s"):
                await job.result(timeout_s=0.05)

    @in_loop
    async def test_a_result_that_json_cannot_hold_fails_the_job(self, valkey: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep(count=10))

        async def handler(_job: Job[Any]) -> Any:
            return {"when": object()}

        async with QueueClient(valkey.url) as client, Worker(queue, handler, url=valkey.url):
            job = await client.queue(queue).add({})
            with pytest.raises(JobFailed, match=r"result\.when"):
                await job.result(timeout_s=20)

    def test_code_without_a_loop_can_wait_for_a_result(self, server: Server) -> None:
        queue = Queue(fresh_id(), int, int)
        stop = threading.Event()

        async def handler(job: Job[int]) -> int:
            return job.payload * 2

        async def serve() -> None:
            async with Worker(queue, handler, url=server.url):
                await asyncio.to_thread(stop.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            with SyncQueueClient(server.url) as client:
                assert client.queue(queue).add(21).result(timeout_s=20) == 42
                with pytest.raises(TimedOut):
                    client.queue(fresh_id()).add(1).result(timeout_s=0.02)
        finally:
            stop.set()
            thread.join()


class TestTasks:
    @in_loop
    async def test_a_decorated_function_is_a_job_and_still_a_function(self, server: Server) -> None:
        tasks = Tasks(server.url)

        @tasks.task(fresh_id("add"), retries=1)
        async def add(a: int, b: int = 10) -> int:
            return a + b

        assert await add(1, 2) == 3
        async with tasks, tasks.pool():
            first = await add.add(1)
            second = await add.add(a=2, b=3)
            assert await first.result(timeout_s=20) == 11
            assert await second.result(timeout_s=20) == 5

    @in_loop
    async def test_arguments_are_checked_before_they_are_added(self, valkey: Server) -> None:
        tasks = Tasks(valkey.url)

        @tasks.task(fresh_id("add"))
        async def add(a: int) -> None: ...

        async with tasks:
            with pytest.raises(TypeError, match="missing a required argument"):
                add.add()  # type: ignore[call-arg]
            with pytest.raises(msgspec.ValidationError, match="Expected `int`"):
                add.add("one")  # type: ignore[arg-type]

    @in_loop
    async def test_a_plain_function_can_be_a_task_and_added_without_a_loop(self, valkey: Server) -> None:
        tasks = Tasks(valkey.url)

        @tasks.task(fresh_id("twice"))
        def twice(text: str) -> str:
            return text * 2

        async with tasks, tasks.pool():
            job = await asyncio.to_thread(twice.add_sync, "ab")
            assert await asyncio.to_thread(job.result, timeout_s=20) == "abab"
