"""v0.1 of the spec, clause by clause: the core lifecycle and the inline executor's concurrency."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.errors import BadSettings
from queueyard.panqueue import (
    BackoffRule,
    Callbacks,
    Job,
    Queue,
    QueueClient,
    Unrecoverable,
    Worker,
    WorkerPool,
    WorkerSettings,
)
from queueyard.panqueue.errors import BadQueue, Closed
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.panqueue.jobs import JobErrored, JobLost

__all__ = ["server", "valkey"]

AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)


class Recorder:
    """A handler that notes what it got, and callbacks that note what was told."""

    def __init__(self, wanted: int = 1) -> None:
        self.jobs: list[Job[Any]] = []
        self.running = 0
        self.most = 0
        self.done = asyncio.Event()
        #: what a test puts here is done for each job
        self.work: Callable[[Job[Any]], Awaitable[None]] = self._nothing
        self._wanted = wanted

    async def __call__(self, job: Job[Any]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.work(job)
        finally:
            self.running -= 1
            self.jobs.append(job)
            if len(self.jobs) >= self._wanted:
                self.done.set()

    async def _nothing(self, job: Job[Any]) -> None: ...


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


class TestLeases:
    """spec: Locks and Execution; Stalled Job Sweep Atomicity."""

    @in_loop
    async def test_a_job_that_takes_longer_than_its_lease_is_renewed_and_runs_once(self, server: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder()

        async def work(_job: Job[Any]) -> None:
            await asyncio.sleep(1.0)

        handler.work = work
        quick = WorkerSettings(lease_ms=200, sweep_ms=50)
        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            await queue.add({})
            async with (
                Worker(queue_id, handler, url=server.url, settings=quick),
                Worker(queue_id, handler, url=server.url, settings=quick),
            ):
                await handler.done.wait()
            left = await queue.counts()

        assert [job.attempt for job in handler.jobs] == [1]
        assert (left.waiting, left.active) == (0, 0)

    @in_loop
    async def test_an_event_loop_that_is_blocked_for_three_leases_keeps_its_job(self, server: Server) -> None:
        queue_id = fresh_id()
        attempts: list[int] = []
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            attempts.append(job.attempt)
            time.sleep(0.9)  # noqa: ASYNC251  blocking is what this is about
            done.set()

        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            await queue.add({})
            async with Worker(queue_id, handler, url=server.url, settings=WorkerSettings(lease_ms=300, sweep_ms=50)):
                await done.wait()
            left = await queue.counts()

        assert attempts == [1]
        assert (left.waiting, left.active, left.failed) == (0, 0, 0)

    @in_loop
    async def test_a_handler_is_told_and_cancelled_when_its_lease_is_lost(self, server: Server) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        started, cancelled = asyncio.Event(), asyncio.Event()
        told: list[JobLost] = []
        seen: list[bool] = []

        async def handler(job: Job[Any]) -> None:
            if job.attempt > 1:
                return
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append(job.lost)
                cancelled.set()
                raise

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({})
            async with Worker(
                queue_id,
                handler,
                url=server.url,
                settings=WorkerSettings(lease_ms=300, sweep_ms=0),
                callbacks=Callbacks(on_lost=told.append),
            ):
                await started.wait()
                raw.hset(f"{{q:{queue_id}}}:job:{job.id}", "lockToken", "somebody-else")
                await cancelled.wait()
            record = await job.record()
        raw.close()

        assert seen == [True]
        assert [(one.job.id, one.phase) for one in told] == [(job.id, "renewal")]
        assert (record.status, record.failures) == ("active", 0)

    @in_loop
    async def test_a_late_finish_is_refused_and_changes_nothing(self, server: Server) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        started, go_on, lost = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await go_on.wait()

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({})
            async with Worker(queue_id, handler, url=server.url, callbacks=Callbacks(on_lost=lambda _: lost.set())):
                await started.wait()
                raw.hset(f"{{q:{queue_id}}}:job:{job.id}", "lockToken", "somebody-else")
                go_on.set()
                await lost.wait()
            record = await job.record()
        raw.close()

        assert (record.status, record.finished_at) == ("active", None)

    @in_loop
    async def test_concurrent_sweeps_take_each_job_back_once(self, server: Server) -> None:
        from queueyard.panqueue.link import Port
        from queueyard.panqueue.records import JobOptions
        from queueyard.panqueue.store import QueueStore

        store = QueueStore(fresh_id())
        from queueyard.panqueue.address import parse_address

        ports = [Port(parse_address(server.url)) for _ in range(8)]
        words = [word for number in range(40) for word in (f"j{number}", b"{}")]
        await ports[0].ask(store.add(words, JobOptions(), keyed=False))
        turn = store.turn_builder(lease_ms=1, worker="dead", keep=None)
        await ports[0].ask(turn.build([], claim=40, token="t"))
        await asyncio.sleep(0.01)

        swept = await asyncio.gather(*(port.ask(store.recover(actor="s", most=10, keep=None)) for port in ports))

        ids = [one.job.id for batch in swept for one in batch]
        counts = await ports[0].ask(store.counts())
        for port in ports:
            port.close()
        assert sorted(ids) == sorted(f"j{number}" for number in range(40))
        assert (counts.waiting, counts.active) == (40, 0)

    @in_loop
    async def test_a_stalled_job_is_given_to_another_worker_and_counts_a_stall(self, server: Server) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        handler = Recorder()
        stalled: list[str] = []

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({})
            raw.rpop(f"{{q:{queue_id}}}:waiting")
            raw.hset(f"{{q:{queue_id}}}:job:{job.id}", mapping={"status": "active", "runs": 1, "lockToken": "dead"})
            raw.zadd(f"{{q:{queue_id}}}:active", {job.id: 1})
            callbacks = Callbacks(on_stalled=lambda one: stalled.append(one.record.id))
            async with Worker(queue_id, handler, url=server.url, callbacks=callbacks):
                await handler.done.wait()
        raw.close()

        assert stalled == [job.id]
        assert handler.jobs[0].attempt == 2


class TestStopping:
    """spec: Shutdown Semantics."""

    @in_loop
    async def test_a_drain_claims_nothing_more_and_waits_for_what_runs(self, server: Server) -> None:
        queue_id = fresh_id()
        started, go_on = asyncio.Event(), asyncio.Event()
        finished: list[int] = []

        async def handler(job: Job[Any]) -> None:
            started.set()
            await go_on.wait()
            finished.append(job.payload)

        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            await queue.add_many([1, 2, 3])
            worker = Worker(queue_id, handler, url=server.url, concurrency=1)
            await worker.start()
            await started.wait()
            stopping = asyncio.ensure_future(worker.stop())
            await eventually(lambda: worker.state == "draining")
            go_on.set()
            stopped = await stopping
            left = await queue.counts()

        assert finished == [1]
        assert (stopped.handed_back, stopped.unknown, stopped.timed_out) == (0, 0, False)
        assert (left.waiting, left.active) == (2, 0)

    @in_loop
    async def test_leases_are_renewed_while_it_drains(self, valkey: Server) -> None:
        queue_id = fresh_id()
        started = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await asyncio.sleep(0.8)

        async with QueueClient(valkey.url) as client:
            queue = client.queue(queue_id)
            await queue.add({})
            worker = Worker(queue_id, handler, url=valkey.url, settings=WorkerSettings(lease_ms=200, sweep_ms=50))
            await worker.start()
            await started.wait()
            stopped = await worker.stop()
            left = await queue.counts()

        assert stopped.handed_back == 0
        assert (left.waiting, left.active) == (0, 0)

    @in_loop
    async def test_after_the_time_to_drain_the_job_is_handed_back_without_spending_a_retry(
        self, server: Server
    ) -> None:
        queue_id = fresh_id()
        started = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add({}, retries=3)
            worker = Worker(queue_id, handler, url=server.url)
            await worker.start()
            await started.wait()
            stopped = await worker.stop(timeout_ms=50)
            record = await job.record()

        assert (stopped.handed_back, stopped.timed_out) == (1, True)
        assert (record.status, record.failures, record.stalls) == ("waiting", 0, 0)
        assert record.last_requeue_reason == "shutdown-timeout"

    @in_loop
    async def test_a_handler_that_ignores_its_cancellation_does_not_hold_up_the_stop(self, valkey: Server) -> None:
        queue_id = fresh_id()
        started, let_go = asyncio.Event(), asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

        async with QueueClient(valkey.url) as client:
            job = await client.queue(queue_id).add({})
            worker = Worker(queue_id, handler, url=valkey.url, settings=WorkerSettings(cancel_grace_ms=50))
            await worker.start()
            await started.wait()
            stopped = await worker.stop(drain=False)
            record = await job.record()
            let_go.set()

        assert stopped.handed_back == 1
        assert record.status == "waiting"

    @in_loop
    async def test_a_worker_is_used_once(self, valkey: Server) -> None:
        async def handler(_job: Job[Any]) -> None: ...

        worker = Worker(fresh_id(), handler, url=valkey.url)
        await worker.start()
        await worker.stop()

        with pytest.raises(Closed, match="used once"):
            await worker.start()

    @in_loop
    async def test_a_paused_worker_claims_nothing_until_it_is_resumed(self, valkey: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder()

        async with QueueClient(valkey.url) as client, Worker(queue_id, handler, url=valkey.url) as worker:
            worker.pause()
            await client.queue(queue_id).add(1)
            other = Recorder()
            async with Worker(fresh_id(), other, url=valkey.url):
                waiting = (await client.queue(queue_id).counts()).waiting
            worker.resume()
            await handler.done.wait()

        assert waiting == 1


class TestPools:
    @in_loop
    async def test_a_pool_runs_several_queues_and_stops_them_together(self, server: Server) -> None:
        first, second = fresh_id("a"), fresh_id("b")
        one, two = Recorder(), Recorder()

        async with QueueClient(server.url) as client:
            await client.queue(first).add(1)
            await client.queue(second).add(2)
            workers: list[Worker] = [
                Worker(first, one, url=server.url),
                Worker(second, two, url=server.url),
            ]
            async with WorkerPool(workers):
                await one.done.wait()
                await two.done.wait()

        assert [worker.state for worker in workers] == ["stopped", "stopped"]

    def test_two_workers_of_one_queue_are_refused(self) -> None:
        async def handler(_job: Job[Any]) -> None: ...

        with pytest.raises(BadQueue, match="emails"):
            WorkerPool([Worker("emails", handler), Worker("emails", handler)])

    def test_wrong_settings_are_all_told_at_once(self) -> None:
        with pytest.raises(BadSettings) as caught:
            WorkerSettings(concurrency=0, lease_ms=1, poll_ms=0)

        assert all(name in str(caught.value) for name in ("concurrency", "lease_ms", "poll_ms"))


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
