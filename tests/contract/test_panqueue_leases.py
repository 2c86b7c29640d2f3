"""v0.1 of the spec, clause by clause: leases, sweeps, and the ways in which workers and pools end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.errors import BadSettings
from queueyard.panqueue import (
    Callbacks,
    Job,
    QueueClient,
    Worker,
    WorkerPool,
    WorkerSettings,
)
from queueyard.panqueue.errors import BadQueue, Closed
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey
from unit.panqueue.recorder import Recorder

if TYPE_CHECKING:
    from queueyard.panqueue.jobs import JobLost

__all__ = ["server", "valkey"]

#: long enough that a busy machine does not lose it between two renewals
LEASE_MS = 900


async def outlive_the_lease(server: Server, job: Job[Any]) -> None:
    """Returns when the lease that the job has now is over by the server's clock, unless somebody renews it."""
    with raw_redis(server) as raw:
        deadline = raw.zscore(f"{{q:{job.queue_id}}}:active", job.id)

        def is_over() -> bool:
            seconds, micros = raw.time()
            return bool(seconds * 1_000 + micros / 1_000 > deadline)

        await eventually(is_over)


class TestLeases:
    """spec: Locks and Execution; Stalled Job Sweep Atomicity."""

    @in_loop
    async def test_a_job_that_takes_longer_than_its_lease_is_renewed_and_runs_once(self, server: Server) -> None:
        queue_id = fresh_id()
        handler = Recorder()

        async def work(job: Job[Any]) -> None:
            await outlive_the_lease(server, job)

        handler.work = work
        quick = WorkerSettings(lease_ms=LEASE_MS, sweep_ms=50)
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
            time.sleep(3 * LEASE_MS / 1_000)  # noqa: ASYNC251  blocking is what this is about
            done.set()

        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            await queue.add({})
            async with Worker(
                queue_id, handler, url=server.url, settings=WorkerSettings(lease_ms=LEASE_MS, sweep_ms=50)
            ):
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

        async def handler(job: Job[Any]) -> None:
            started.set()
            await outlive_the_lease(valkey, job)

        async with QueueClient(valkey.url) as client:
            queue = client.queue(queue_id)
            await queue.add({})
            worker = Worker(queue_id, handler, url=valkey.url, settings=WorkerSettings(lease_ms=LEASE_MS, sweep_ms=50))
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
