"""Retention, getters, operations and the event stream, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.events import Kind
from queueyard.panqueue import (
    BackoffRule,
    Callbacks,
    Job,
    JobState,
    Keep,
    Queue,
    QueueClient,
    SyncQueueClient,
    Worker,
    WorkerSettings,
)
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import JobActive, PanqueueError, UnknownJob
from queueyard.panqueue.store import QueueStore
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey

if TYPE_CHECKING:
    from queueyard.panqueue import QueueHandle

__all__ = ["server", "valkey"]


async def work_off(server: Server, queue: Queue[Any, Any], count: int, **options: Any) -> None:
    """Run `count` jobs; those whose payload says so fail."""
    ended = 0
    done = asyncio.Event()

    async def handler(job: Job[Any]) -> Any:
        if job.payload == "fail":
            raise ValueError("as it was told")
        return job.payload

    def count_one(_: Any) -> None:
        nonlocal ended
        ended += 1
        if ended == count:
            done.set()

    callbacks = Callbacks(on_completed=count_one, on_failed=count_one)
    async with Worker(queue, handler, url=server.url, callbacks=callbacks, **options):
        await done.wait()


class TestRetention:
    @in_loop
    async def test_completed_jobs_are_kept_up_to_a_number_the_newest_ones(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep(count=3))
        async with QueueClient(server.url) as client:
            for number in range(10):
                # Within one millisecond the id decides.
                await client.queue(queue).add(number, job_id=f"job-{number}")
            await work_off(server, queue, 10, concurrency=1)
            kept = await client.queue(queue).jobs("completed")

        assert [job.id for job in kept] == ["job-9", "job-8", "job-7"]

    @in_loop
    async def test_failed_jobs_are_kept_up_to_an_age_also_on_a_queue_where_nothing_happens(
        self, server: Server
    ) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_failed=Keep(age_s=3_600))
        raw = raw_redis(server)

        async def handler(_job: Job[Any]) -> None: ...

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.add_many(["fail"] * 5)
            await work_off(server, queue, 5)
            assert (await handle.counts()).failed == 5
            for job_id in raw.zrange(f"{{q:{queue.id}}}:failed", 0, 3):
                raw.zadd(f"{{q:{queue.id}}}:failed", {job_id: 1})
            async with Worker(queue, handler, url=server.url, settings=WorkerSettings(sweep_ms=20)):

                async def is_trimmed() -> bool:
                    return (await handle.counts()).failed == 1

                await eventually(is_trimmed)
        keys = list(raw.scan_iter(f"{{q:{queue.id}}}:job:*", count=10_000))
        raw.close()

        assert len(keys) == 1

    @in_loop
    async def test_nothing_is_kept_of_a_failed_job_if_that_is_wanted(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_failed=None)
        raw = raw_redis(server)
        async with QueueClient(server.url) as client:
            await client.queue(queue).add("fail")
            await work_off(server, queue, 1)
        left = list(raw.scan_iter(f"{{q:{queue.id}}}*", count=10_000))
        raw.close()

        assert left == []


class TestLooking:
    @in_loop
    async def test_counts_and_lists_tell_every_state(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())
        hold = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            if job.payload == "hold":
                await hold.wait()
            if job.payload == "later":
                raise ValueError("not yet")

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.add_many([1, "fail"])
            await work_off(server, queue, 2)
            await handle.add("later", retries=1, backoff=BackoffRule(base_ms=60_000, jitter=0))
            await handle.add_many(["hold", "waits 1", "waits 2"])
            async with Worker(queue, handler, url=server.url, concurrency=1):

                async def is_held() -> bool:
                    found = await handle.jobs("active")
                    return [job.payload for job in found] == ['"hold"']

                await eventually(is_held)
                counts = await handle.counts()
                listed = {state: [job.payload for job in await handle.jobs(state)] for state in JobState}
                hold.set()

        assert (counts.waiting, counts.active, counts.completed, counts.failed, counts.delayed) == (2, 1, 1, 1, 1)
        assert listed == {
            "waiting": ['"waits 1"', '"waits 2"'],
            "held": [],
            "delayed": ['"later"'],
            "active": ['"hold"'],
            "completed": ["1"],
            "failed": ['"fail"'],
        }

    @in_loop
    async def test_a_list_can_be_leafed_through(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            handle = client.queue(fresh_id())
            await handle.add_many(range(7))

            pages = [await handle.jobs("waiting", skip=skip, most=3) for skip in (0, 3, 6, 9)]

        assert [[int(job.payload) for job in page] for page in pages] == [[0, 1, 2], [3, 4, 5], [6], []]

    @in_loop
    async def test_a_keyed_queue_can_be_leafed_through_too(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            handle = client.queue(Queue(fresh_id(), mode="keyed"))
            await handle.add_many(range(7), key=lambda number: f"k{number % 2}")

            pages = [await handle.jobs("waiting", skip=skip, most=3) for skip in (0, 3, 6, 9)]
            counts = await handle.counts()

        assert [[int(job.payload) for job in page] for page in pages] == [[0, 2, 4], [6, 1, 3], [5], []]
        assert (counts.waiting, counts.keys) == (7, 2)

    @in_loop
    async def test_a_job_that_is_not_there_is_named(self, valkey: Server) -> None:
        async with QueueClient(valkey.url) as client:
            with pytest.raises(UnknownJob, match="has no job nope"):
                await client.queue(fresh_id()).job("nope")


class TestChanging:
    @staticmethod
    async def failed_jobs(server: Server, handle: QueueHandle[Any, Any], queue: Queue[Any, Any], count: int) -> None:
        await handle.add_many(["fail"] * count)
        await work_off(server, queue, count)

    @in_loop
    async def test_a_failed_job_can_be_run_again_with_its_failures_forgotten(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await self.failed_jobs(server, handle, queue, 2)
            first, second = await handle.jobs("failed")

            count = await handle.retry(first.id)
            record = await handle.job(first.id)

            assert count == 1
            assert (record.status, record.failures, record.finished_at) == ("waiting", 0, None)
            assert [job.id for job in await handle.jobs("failed")] == [second.id]
            with pytest.raises(UnknownJob, match="has not failed"):
                await handle.retry(first.id)
            with pytest.raises(UnknownJob, match="has no job"):
                await handle.retry("nope")

    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_all_failed_jobs_can_be_run_again(self, server: Server, mode: str) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            key = None if mode == "global" else lambda _: "k"
            await handle.add_many(["fail"] * 25, key=key)
            await work_off(server, queue, 25)

            assert await handle.retry_all() == 25
            counts = await handle.counts()

        assert (counts.failed, counts.waiting) == (0, 25)

    @in_loop
    async def test_jobs_are_removed_from_any_state_but_active(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())
        raw = raw_redis(server)
        started, hold = asyncio.Event(), asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await hold.wait()

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            done = await handle.add_many([1, "fail"])
            await work_off(server, queue, 2)
            active = await handle.add("active")
            async with Worker(queue, handler, url=server.url, concurrency=1):
                await started.wait()
                waiting = await handle.add("waiting")
                removed = await handle.remove(*(job.id for job in done), waiting.id)
                with pytest.raises(JobActive, match="is running"):
                    await handle.remove(active.id)
                with pytest.raises(UnknownJob):
                    await handle.remove(waiting.id)
                hold.set()
            await handle.remove(active.id)
        left = list(raw.scan_iter(f"{{q:{queue.id}}}*", count=10_000))
        raw.close()

        assert removed == 3
        assert left == []

    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_a_drain_removes_what_waits_and_only_on_demand_what_is_delayed(
        self, server: Server, mode: str
    ) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode)
        key = None if mode == "global" else lambda number: f"k{number % 3}"
        raw = raw_redis(server)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.add_many(range(2_500), key=key)
            raw.zadd(f"{{q:{queue.id}}}:delayed", {"later": 9e12})
            raw.hset(f"{{q:{queue.id}}}:job:later", mapping={"id": "later", "concurrencyKey": "k"})

            first = await handle.drain()
            second = await handle.drain(delayed=True)
        left = [key.decode() for key in raw.scan_iter(f"{{q:{queue.id}}}*", count=10_000)]
        raw.close()

        assert (first, second) == (2_500, 1)
        assert [key for key in left if not key.endswith(":meta")] == []

    @in_loop
    async def test_clean_removes_finished_jobs_beyond_a_number(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.add_many(range(10))
            await work_off(server, queue, 10)

            assert await handle.clean("completed", Keep(count=4)) == 6
            assert await handle.clean("completed", Keep(count=0)) == 4
            with pytest.raises(PanqueueError, match="only completed and failed"):
                await handle.clean("waiting", Keep(count=0))

    @in_loop
    async def test_a_paused_queue_gives_nothing_and_goes_on_when_it_is_resumed(self, server: Server) -> None:
        queue_id = fresh_id()
        done = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            done.set()

        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, settings=WorkerSettings(poll_ms=20)) as worker,
        ):
            handle = client.queue(queue_id)
            assert await handle.pause()
            assert not await handle.pause()
            await handle.add(1)
            line = Line(parse_address(server.url))
            store = QueueStore(queue_id)
            turn = line.ask(store.turn_builder(lease_ms=1_000, worker="w", keep=None).build([], claim=1, token="t"))
            line.close()
            assert turn.claimed == []
            assert worker.active == 0

            assert await handle.resume()
            await done.wait()

    def test_any_number_of_ids_without_a_job_is_mended(self, server: Server) -> None:
        line, store = Line(parse_address(server.url)), QueueStore(fresh_id())
        members = [word for number in range(9_000) for word in (number, f"j{number}")]
        line.call("ZADD", store.keys["completed"], *members)

        found = line.ask(store.mend(most=10_000, really=True))

        left = line.call("EXISTS", store.keys["completed"])
        line.close()
        assert found == [0, 0, 9_000, 0, 0, 0, 0, 0, 0]
        assert left == 0

    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_obliterate_needs_the_id_and_leaves_nothing(self, server: Server, mode: str) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode)
        key = None if mode == "global" else lambda number: f"k{number % 3}"
        raw = raw_redis(server)
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            await handle.switch_events(100)
            await handle.add_many(range(1_500), key=key)
            with pytest.raises(PanqueueError, match="confirmation says ''"):
                await handle.obliterate(confirm="")
            raw.zadd(f"{{q:{queue.id}}}:active", {"held": 9e12})
            with pytest.raises(JobActive):
                await handle.obliterate(confirm=queue.id)

            gone = await handle.obliterate(confirm=queue.id, force=True)
        left = list(raw.scan_iter(f"{{q:{queue.id}}}*", count=10_000))
        raw.close()

        assert gone == 1_501
        assert left == []


class TestEvents:
    @in_loop
    async def test_every_transition_is_told_in_order_as_the_shared_event(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id())
        async with QueueClient(server.url, name="tester") as client:
            handle = client.queue(queue)
            assert await handle.switch_events(1_000)
            good = await handle.add(1)
            bad = await handle.add("fail", retries=1, backoff=BackoffRule(base_ms=0, cap_ms=0))
            await work_off(server, queue, 2, concurrency=1, name="w1")
            await handle.retry(bad.id)
            await handle.remove(bad.id)
            await handle.pause()
            told = [event async for _, event in handle.events()]
            again = [event async for _, event in handle.events()]

        assert [(one.kind, one.item, one.attempt, one.actor) for one in told] == [
            (Kind.QUEUED, good.id, 1, "tester"),
            (Kind.QUEUED, bad.id, 1, "tester"),
            (Kind.STARTED, good.id, 1, "w1"),
            (Kind.SUCCEEDED, good.id, 1, "w1"),
            (Kind.STARTED, bad.id, 1, "w1"),
            (Kind.RETRIED, bad.id, 2, "w1"),
            (Kind.STARTED, bad.id, 2, "w1"),
            (Kind.FAILED, bad.id, 2, "w1"),
            (Kind.QUEUED, bad.id, 2, "tester"),
            (Kind.CANCELED, bad.id, 1, "tester"),
            (Kind.PAUSED, "", 1, "tester"),
        ]
        assert told[5].reason == "as it was told"
        assert {one.queue for one in told} == {queue.id}
        assert [one.id for one in again] == [one.id for one in told]

    @in_loop
    async def test_the_stream_is_bounded_and_off_by_default(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            silent, loud = client.queue(fresh_id()), client.queue(fresh_id())
            await loud.switch_events(100)
            await silent.add_many(range(1_000))
            await loud.add_many(range(5_000))
            quiet, told = await silent.counts(), await loud.counts()
            await loud.switch_events(None)
            await loud.add_many(range(10))
            after = await loud.counts()

        assert (quiet.events, quiet.events_kept) == (0, None)
        # The bound is approximate: whole nodes of a hundred entries are cut.
        assert 100 <= told.events < 400
        assert (after.events, after.events_kept) == (told.events, None)

    @in_loop
    async def test_stalls_and_hand_backs_are_told(self, server: Server) -> None:
        queue_id = fresh_id()
        started = asyncio.Event()
        raw = raw_redis(server)

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        async with QueueClient(server.url) as client:
            handle = client.queue(queue_id)
            await handle.switch_events(100)
            job = await handle.add({})
            raw.rpop(f"{{q:{queue_id}}}:waiting")
            raw.zadd(f"{{q:{queue_id}}}:active", {job.id: 1})
            worker = Worker(queue_id, handler, url=server.url)
            await worker.start()
            await started.wait()
            await worker.stop(drain=False)
            kinds = [event.kind async for _, event in handle.events()]
        raw.close()

        assert kinds == [Kind.QUEUED, Kind.STALLED, Kind.STARTED, Kind.RELEASED]


class TestTheSyncClient:
    def test_it_has_the_same_verbs(self, server: Server) -> None:
        with SyncQueueClient(server.url) as client:
            handle = client.queue(fresh_id(), retries=2)
            one = handle.add({"n": 1})
            many = handle.add_many({"n": number} for number in range(5))
            assert handle.counts().waiting == 6
            assert one.record().max_retries == 2
            assert [job.id for job in handle.jobs("waiting")] == [one.id, *(job.id for job in many)]
            assert handle.pause()
            assert handle.resume()
            assert handle.remove(one.id) == 1
            assert handle.switch_events()
            handle.add({})
            assert [event.kind for _, event in handle.events()] == [Kind.QUEUED]
            assert handle.drain() == 6
            assert handle.retry_all() == 0
            assert handle.clean("failed", Keep(count=0)) == 0
            assert handle.obliterate(confirm=handle.queue.id) == 0

    def test_the_async_and_the_sync_client_have_the_same_public_names(self) -> None:
        from queueyard.panqueue.client import QueueHandle
        from queueyard.panqueue.sync import SyncQueueHandle

        def names(kind: type) -> set[str]:
            return {name for name in vars(kind) if not name.startswith("_")}

        assert names(QueueHandle) == names(SyncQueueHandle)
        assert names(QueueClient) == names(SyncQueueClient)
