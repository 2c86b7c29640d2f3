"""v0.1 of the spec, clause by clause: the core lifecycle and the inline executor's concurrency."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import (
    BackoffRule,
    Callbacks,
    Job,
    Queue,
    QueueClient,
    Unrecoverable,
    Worker,
    WorkerSettings,
)
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey
from unit.panqueue.recorder import Recorder

if TYPE_CHECKING:
    from queueyard.panqueue.jobs import JobErrored

__all__ = ["server", "valkey"]

AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)


class TestConcurrency:
    """spec: v0.1 Inline Executor Concurrency."""

    @pytest.mark.parametrize("concurrency", [1, 2, 7])
    @in_loop
    async def test_at_most_so_many_handlers_run_at_once_and_so_many_do(self, server: Server, concurrency: int) -> None:
        queue_id = fresh_id()
        handler = Recorder(wanted=60)

        async def work(_job: Job[Any]) -> None:
            await asyncio.sleep(0.002)

        handler.work = work
        async with QueueClient(server.url) as client:
            await client.queue(queue_id).add_many(range(60))
            async with Worker(queue_id, handler, url=server.url, concurrency=concurrency):
                await handler.done.wait()

        assert handler.most == concurrency

    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_a_worker_with_ten_thousand_slots_fills_them(self, valkey: Server, mode: str) -> None:
        queue: Queue[int, Any] = Queue(fresh_id(), int, mode=mode)
        all_run, end = asyncio.Event(), asyncio.Event()
        running: set[int] = set()

        async def handler(job: Job[int]) -> None:
            running.add(job.payload)
            if len(running) == 6_000:
                all_run.set()
            await end.wait()

        async with QueueClient(valkey.url) as client:
            handle = client.queue(queue)
            await handle.add_many(range(6_000), key=str if mode == "keyed" else None)
            async with Worker(queue, handler, url=valkey.url, concurrency=10_000):
                await all_run.wait()
                end.set()
            left = await handle.counts()

        assert (left.waiting, left.active, left.failed) == (0, 0, 0)

    @in_loop
    async def test_an_active_job_is_a_running_job(self, server: Server) -> None:
        """spec: No Prefetching."""
        queue_id = fresh_id()
        raw = raw_redis(server)
        surplus: list[int] = []
        handler = Recorder(wanted=40)

        async def work(_job: Job[Any]) -> None:
            surplus.append(raw.zcard(f"{{q:{queue_id}}}:active") - 3)
            await asyncio.sleep(0.001)

        handler.work = work
        async with QueueClient(server.url) as client:
            await client.queue(queue_id).add_many(range(40))
            async with Worker(queue_id, handler, url=server.url, concurrency=3):
                await handler.done.wait()
        raw.close()

        assert max(surplus) <= 0

    @in_loop
    async def test_a_full_worker_claims_nothing(self, server: Server) -> None:
        queue_id = fresh_id()
        release = asyncio.Event()
        handler = Recorder(wanted=3)

        async def work(_job: Job[Any]) -> None:
            await release.wait()

        handler.work = work
        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            async with Worker(queue_id, handler, url=server.url, concurrency=2):
                await queue.add_many(range(3))
                await eventually(lambda: handler.running == 2)
                before = await queue.counts()
                release.set()
                await handler.done.wait()

        assert (before.active, before.waiting) == (2, 1)


class TestIdling:
    """spec: Idle Behavior."""

    @in_loop
    async def test_a_notification_wakes_an_idle_worker_long_before_it_polls(self, server: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder(wanted=20)
        slow_poll = WorkerSettings(poll_ms=600_000, sweep_ms=0)

        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, settings=slow_poll),
        ):
            for number in range(20):
                await client.queue(queue_id).add(number)
                await eventually(lambda number=number: len(handler.jobs) == number + 1)  # type: ignore[misc]

        assert [job.payload for job in handler.jobs] == list(range(20))

    @in_loop
    async def test_without_any_notification_the_poll_finds_the_job(self, server: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder()
        raw = raw_redis(server)

        async with Worker(queue_id, handler, url=server.url, settings=WorkerSettings(poll_ms=50, sweep_ms=0)) as worker:
            await eventually(lambda: worker.active == 0)
            raw.hset(
                f"{{q:{queue_id}}}:job:a", mapping={"id": "a", "queueId": "q", "payload": "1", "status": "waiting"}
            )
            raw.lpush(f"{{q:{queue_id}}}:waiting", "a")
            await handler.done.wait()
        raw.close()

        assert handler.jobs[0].payload == 1


class TestFailures:
    @in_loop
    async def test_a_failed_job_is_tried_again_as_often_as_it_may_and_then_fails(self, server: Server) -> None:
        queue_id = fresh_id()
        errors: list[JobErrored] = []
        failed = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            raise ValueError(f"attempt {job.attempt}")

        callbacks = Callbacks(on_error=errors.append, on_failed=lambda _: failed.set())
        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({}, retries=2, backoff=AT_ONCE)
            async with Worker(queue_id, handler, url=server.url, callbacks=callbacks):
                await failed.wait()
            record = await job.record()

        assert [str(one.error) for one in errors] == ["attempt 1", "attempt 2", "attempt 3"]
        assert [one.retry_in_ms for one in errors] == [0, 0, None]
        assert (record.status, record.runs, record.failures, record.failed_reason) == ("failed", 3, 3, "attempt 3")

    @in_loop
    async def test_the_next_attempt_waits_for_its_back_off_in_the_delayed_set(self, server: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder(wanted=2)

        async def work(job: Job[Any]) -> None:
            if job.attempt == 1:
                raise ValueError("once")

        handler.work = work
        wait_a_little = BackoffRule(base_ms=80, cap_ms=1_000, jitter=0)
        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            job = await queue.add({}, retries=1, backoff=wait_a_little)
            async with Worker(queue_id, handler, url=server.url, settings=WorkerSettings(poll_ms=600_000)):

                async def is_delayed() -> bool:
                    return (await queue.counts()).delayed == 1

                await eventually(is_delayed)
                record = await job.record()
                await handler.done.wait()

        assert record.status == "delayed"
        assert [one.attempt for one in handler.jobs] == [1, 2]

    @in_loop
    async def test_a_back_off_function_of_ones_own_decides_and_may_end_it(self, server: Server) -> None:
        queue_id = fresh_id()
        failed = asyncio.Event()
        asked: list[tuple[int, str]] = []

        def backoff(job: Job[Any], error: BaseException) -> float | None:
            asked.append((job.failures + 1, str(error)))
            return 1 if len(asked) < 3 else None

        async def handler(_job: Job[Any]) -> None:
            raise ValueError("no")

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({}, retries=100)
            callbacks = Callbacks(on_failed=lambda _: failed.set())
            async with Worker(queue_id, handler, url=server.url, backoff=backoff, callbacks=callbacks):
                await failed.wait()
            record = await job.record()

        assert asked == [(1, "no"), (2, "no"), (3, "no")]
        assert (record.status, record.failures) == ("failed", 3)

    @in_loop
    async def test_an_unrecoverable_error_is_not_tried_again(self, server: Server) -> None:
        queue_id = fresh_id()
        failed = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            raise Unrecoverable("gone for good")

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({}, retries=10)
            async with Worker(queue_id, handler, url=server.url, callbacks=Callbacks(on_failed=lambda _: failed.set())):
                await failed.wait()
            record = await job.record()

        assert (record.status, record.runs, record.failed_reason) == ("failed", 1, "gone for good")

    @in_loop
    async def test_a_handler_that_takes_too_long_is_cancelled_and_its_job_fails(self, server: Server) -> None:
        queue_id = fresh_id()
        cancelled, failed = asyncio.Event(), asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({}, timeout_ms=30)
            async with Worker(queue_id, handler, url=server.url, callbacks=Callbacks(on_failed=lambda _: failed.set())):
                await failed.wait()
            record = await job.record()

        assert cancelled.is_set()
        assert record.failed_reason == "timed out after 0.03 s"

    @in_loop
    async def test_a_handler_that_cancels_itself_has_failed(self, valkey: Server) -> None:
        queue_id = fresh_id()
        failed = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            raise asyncio.CancelledError

        async with QueueClient(valkey.url) as client:
            job = await client.queue(queue_id).add({})
            async with Worker(queue_id, handler, url=valkey.url, callbacks=Callbacks(on_failed=lambda _: failed.set())):
                await failed.wait()
            record = await job.record()

        assert record.failed_reason == "cancelled"

    @in_loop
    async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(self, valkey: Server) -> None:
        queue_id = fresh_id()
        done = asyncio.Event()
        loop = asyncio.get_running_loop()
        ticks = 0

        def handler(job: Job[Any]) -> None:
            time.sleep(0.05)
            if job.payload == 3:
                loop.call_soon_threadsafe(done.set)

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        async with QueueClient(valkey.url) as client:
            await client.queue(queue_id).add_many([1, 2, 3])
            async with Worker(queue_id, handler, url=valkey.url, concurrency=1):
                await done.wait()
        ticking.cancel()

        assert ticks > 10


class TestCallbacks:
    @in_loop
    async def test_every_stage_is_told_and_a_callback_that_raises_disturbs_nobody(self, valkey: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        told: list[str] = []
        done = asyncio.Event()

        def started(_: Any) -> None:
            told.append("started")
            raise RuntimeError("a listener with a fault")

        def completed(one: Any) -> None:
            told.append(f"completed {one.job.payload}")
            done.set()

        callbacks = Callbacks(
            on_started=started,
            on_completed=completed,
            on_worker_error=lambda one: told.append(f"{one.kind}: {one.error}"),
            on_state=told.append,
        )
        handler = Recorder()
        async with QueueClient(valkey.url) as client:
            await client.queue(queue).add(7)
            async with Worker(queue, handler, url=valkey.url, callbacks=callbacks):
                await done.wait()

        assert told == [
            "running",
            "started",
            "callback: a listener with a fault",
            "completed 7",
            "draining",
            "stopped",
        ]
