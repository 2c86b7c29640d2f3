"""The public key layout in global mode, field by field against the golden dump, and sharing a queue with others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
import re
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import BackoffRule, Callbacks, Job, Keep, Limit, Queue, QueueClient, Worker, WorkerSettings
from queueyard.panqueue.errors import LimitConflict
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["server"]

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "panqueue" / "golden.json").read_text(encoding="utf-8")
)
AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)
MILLISECONDS = re.compile(r"1[6-9]\d{11}")
STRUCTURES = ("waiting", "active", "completed", "failed")


class Raw:
    """A queue as redis-py sees it: no code of ours."""

    def __init__(self, server: Server, queue_id: str) -> None:
        self.redis = raw_redis(server, decode_responses=True)
        self.tag = f"{{q:{queue_id}}}"
        self.queue_id = queue_id

    def keys(self) -> set[str]:
        return {key.removeprefix(self.tag) for key in self.redis.scan_iter(f"{self.tag}:*", count=10_000)}

    def job(self, job_id: str) -> dict[str, str]:
        found: dict[str, str] = self.redis.hgetall(f"{self.tag}:job:{job_id}")
        return found

    def ids(self, name: str) -> list[str]:
        key = f"{self.tag}:{name}"
        found: list[str] = self.redis.lrange(key, 0, -1) if name == "waiting" else self.redis.zrange(key, 0, -1)
        return found

    def push(self, job_id: str, **fields: str) -> None:
        """What a client of another make does: hash, list, channel."""
        whole = {"id": job_id, "queueId": self.queue_id, "payload": "{}", "status": "waiting"} | fields
        self.redis.hset(f"{self.tag}:job:{job_id}", mapping=whole)
        self.redis.lpush(f"{self.tag}:waiting", job_id)
        self.redis.publish(f"{self.tag}:notify", job_id)

    def claim(self, token: str, lease_ms: int) -> str:
        """What a worker of another make does: pop, hash, lease with a token of any kind."""
        job_id: str = self.redis.rpop(f"{self.tag}:waiting")
        seconds, micros = self.redis.time()
        deadline = seconds * 1000 + micros // 1000 + lease_ms
        fields = {"status": "active", "runs": "1", "lockToken": token, "leaseDeadline": str(deadline)}
        self.redis.hset(f"{self.tag}:job:{job_id}", mapping=fields)
        self.redis.zadd(f"{self.tag}:active", {job_id: deadline})
        return job_id


@pytest.fixture
def raw(server: Server) -> Iterator[Raw]:
    looked_at = Raw(server, fresh_id("emails"))
    yield looked_at
    looked_at.redis.close()


def normal(raw: Raw, golden: dict[str, Any]) -> dict[str, Any]:
    """The queue as the golden dump writes it: times and tokens replaced by what they are."""
    told: dict[str, Any] = {"step": golden["step"]}
    for name in STRUCTURES:
        if raw.ids(name):
            told[name] = raw.ids(name)
    concurrency = raw.redis.hgetall(f"{raw.tag}:concurrency")
    if concurrency:
        told["concurrency"] = concurrency
    told["jobs"] = {job_id: normal_job(raw, job_id) for job_id in golden["jobs"]}
    return told


def normal_job(raw: Raw, job_id: str) -> dict[str, str]:
    job = raw.job(job_id)
    for name, value in job.items():
        if MILLISECONDS.fullmatch(value):
            job[name] = "<ms>"
    if "lockToken" in job:
        job["lockToken"] = "<token>"
    job["queueId"] = job["queueId"].replace(raw.queue_id, "emails")
    return job


class TestTheGoldenDump:
    @in_loop
    async def test_every_step_leaves_the_fields_that_the_public_implementation_leaves(
        self, server: Server, raw: Raw
    ) -> None:
        queue: Queue[Any, Any] = Queue(raw.queue_id, keep_completed=Keep())
        proceed = asyncio.Event()
        boom = 0

        async def handler(job: Job[Any]) -> None:
            nonlocal boom
            await proceed.wait()
            if job.payload["kind"] == "boom":
                boom += 1
                if boom == 2:
                    proceed.clear()
                    await proceed.wait()
                raise ValueError(f"boom {boom}")

        async with QueueClient(server.url) as client:
            adds = client.queue(queue, retries=1)
            first = {"kind": "ok", "s": 'żółw "q"', "f": 1, "nul": None, "a": [1, 2.5, True]}
            await adds.add(first, job_id="A")
            await adds.add({"kind": "boom"}, job_id="B")
            assert normal(raw, GOLDEN[0]) == GOLDEN[0]

            settings = WorkerSettings(concurrency=1, lease_ms=3_000)
            async with Worker(
                Queue(raw.queue_id, keep_completed=Keep(), backoff=AT_ONCE),
                handler,
                url=server.url,
                settings=settings,
                limit=Limit(3),
            ):
                await eventually(lambda: raw.ids("active") == ["A"])
                assert normal(raw, GOLDEN[1]) == GOLDEN[1]

                proceed.set()
                await eventually(lambda: boom == 2 and raw.job("B")["runs"] == "2")
                assert normal(raw, GOLDEN[2]) == GOLDEN[2]

                proceed.set()
                await eventually(lambda: raw.ids("failed") == ["B"])
                assert normal(raw, GOLDEN[3]) == GOLDEN[3]

    @in_loop
    async def test_a_forced_shutdown_leaves_the_job_waiting_with_the_reason(self, server: Server, raw: Raw) -> None:
        started = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await asyncio.Event().wait()

        async with QueueClient(server.url) as client:
            await client.queue(raw.queue_id).add({"kind": "slow"}, job_id="C")
            worker = Worker(raw.queue_id, handler, url=server.url)
            await worker.start()
            await started.wait()
            stopped = await worker.stop(drain=False)

        assert stopped.handed_back == 1
        assert normal(raw, GOLDEN[4]) == GOLDEN[4]

    @in_loop
    async def test_a_job_whose_worker_died_too_often_is_failed_by_the_sweep(self, server: Server, raw: Raw) -> None:
        swept = asyncio.Event()

        async def never(_job: Job[Any]) -> None:
            pytest.fail("the job was given to a handler")

        async with QueueClient(server.url) as client:
            await client.queue(raw.queue_id).add({"kind": "slow"}, job_id="D", max_stalls=0)
            raw.claim("the-token-of-a-dead-worker", lease_ms=-1)
            raw.redis.hset(f"{raw.tag}:job:D", "lastStartedAt", raw.job("D")["createdAt"])
            seen = Callbacks(on_stalled=lambda _: swept.set())
            async with Worker(raw.queue_id, never, url=server.url, callbacks=seen):
                await swept.wait()

        assert normal(raw, GOLDEN[5]) == GOLDEN[5]

    @in_loop
    async def test_a_success_leaves_no_key_at_all(self, server: Server, raw: Raw) -> None:
        done = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            done.set()

        async with QueueClient(server.url) as client:
            await client.queue(raw.queue_id).add({})
            async with Worker(raw.queue_id, handler, url=server.url):
                await done.wait()

        assert raw.keys() == set()


class TestSharingAQueue:
    @in_loop
    async def test_jobs_of_another_client_run_here_with_any_id_and_without_counters(
        self, server: Server, raw: Raw
    ) -> None:
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()

        async with Worker(raw.queue_id, seen.put, url=server.url):
            raw.push("abc", payload='{"n":1}', priority="7", concurrencyKey="k", delay="5")
            job = await seen.get()

        assert (job.id, job.payload, job.attempt) == ("abc", {"n": 1}, 1)
        assert raw.keys() == set()

    @in_loop
    async def test_our_jobs_can_be_claimed_with_a_foreign_token_and_are_swept_when_that_worker_is_gone(
        self, server: Server, raw: Raw
    ) -> None:
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()

        async with QueueClient(server.url) as client:
            added = await client.queue(raw.queue_id).add({"n": 1})
            assert raw.claim("js-worker-1", lease_ms=-1) == added.id
            async with Worker(raw.queue_id, seen.put, url=server.url):
                job = await seen.get()

        assert (job.id, job.attempt) == (added.id, 2)
        assert raw.keys() == set()

    @in_loop
    async def test_a_job_that_a_foreign_worker_holds_is_left_alone(self, server: Server, raw: Raw) -> None:
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()
        raw.push("theirs")
        raw.claim("js-worker-1", lease_ms=60_000)

        async with Worker(raw.queue_id, seen.put, url=server.url):
            raw.push("ours")
            job = await seen.get()

        assert job.id == "ours"
        assert raw.ids("active") == ["theirs"]
        assert raw.job("theirs")["lockToken"] == "js-worker-1"

    @in_loop
    async def test_added_jobs_are_at_the_left_and_claimed_from_the_right(self, server: Server, raw: Raw) -> None:
        order: list[Any] = []
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            order.append(job.payload)
            if len(order) == 5:
                done.set()

        async with QueueClient(server.url) as client:
            added = await client.queue(raw.queue_id).add_many(range(5))
            waiting = raw.ids("waiting")
            async with Worker(raw.queue_id, handler, url=server.url, concurrency=1):
                await done.wait()

        assert waiting == [job.id for job in reversed(added)]
        assert order == [0, 1, 2, 3, 4]

    @in_loop
    async def test_an_id_of_ours_is_a_lowercase_uuid_of_version_4(self, server: Server, raw: Raw) -> None:
        async with QueueClient(server.url) as client:
            added = await client.queue(raw.queue_id).add({})

        assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", added.id)

    @in_loop
    async def test_an_enqueue_tells_the_channel_the_id(self, server: Server, raw: Raw) -> None:
        with raw.redis.pubsub() as listener:
            listener.subscribe(f"{raw.tag}:notify")
            listener.get_message(timeout=5)
            async with QueueClient(server.url) as client:
                added = await client.queue(raw.queue_id).add({})
            message = listener.get_message(timeout=5)

        assert message is not None
        assert message["data"] == added.id


class TestTheCommonLimit:
    @in_loop
    async def test_a_higher_version_wins_a_lower_one_is_ignored_and_a_contradiction_is_refused(
        self, server: Server, raw: Raw
    ) -> None:
        async def handler(_job: Job[Any]) -> None: ...

        async def declare(limit: Limit) -> dict[str, str]:
            async with Worker(raw.queue_id, handler, url=server.url, limit=limit):
                found: dict[str, str] = raw.redis.hgetall(f"{raw.tag}:concurrency")
                return found

        assert await declare(Limit(3, version=2)) == {"limit": "3", "version": "2"}
        assert await declare(Limit(3, version=2)) == {"limit": "3", "version": "2"}
        assert await declare(Limit(9, version=1)) == {"limit": "3", "version": "2"}
        with pytest.raises(LimitConflict, match="3 under the same version"):
            await declare(Limit(4, version=2))
        assert await declare(Limit(4, version=3)) == {"limit": "4", "version": "3"}

    @in_loop
    async def test_all_workers_together_never_hold_more_than_the_limit(self, server: Server, raw: Raw) -> None:
        running = most = done = 0
        finished = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            nonlocal running, most, done
            running += 1
            most = max(most, running, len(raw.ids("active")))
            await asyncio.sleep(0.001)
            running -= 1
            done += 1
            if done == 60:
                finished.set()

        async with QueueClient(server.url) as client:
            await client.queue(raw.queue_id).add_many(range(60))
            async with (
                Worker(raw.queue_id, handler, url=server.url, limit=Limit(3), concurrency=10),
                Worker(raw.queue_id, handler, url=server.url, concurrency=10),
            ):
                await finished.wait()

        assert most == 3
