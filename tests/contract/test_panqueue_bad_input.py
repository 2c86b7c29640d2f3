"""What is refused, with words that help: payloads, foreign keys, servers that are gone, full, or not ours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import BackoffRule, Callbacks, Job, Queue, QueueClient, SyncQueueClient, Worker, WorkerSettings
from queueyard.panqueue.errors import (
    AccessDenied,
    BadAddress,
    BadQueue,
    ForeignData,
    NotSerializable,
    PayloadTooLarge,
    ServerFull,
    ServerUnreachable,
)
from servers import Server, eventually, free_port, fresh_id, in_loop, own_server, raw_redis, server, valkey

if TYPE_CHECKING:
    from queueyard.panqueue.jobs import WorkerError

__all__ = ["server", "valkey"]


class TestPayloads:
    @pytest.mark.parametrize(
        ("payload", "path"),
        [
            ({"a": [1, {"b": object()}]}, "payload.a[1].b"),
            ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "payload.when"),
            ({"price": math.nan}, "payload.price"),
            ([1.0, -math.inf], "payload[1]"),
            ({"two words": {1: "x"}}, "payload['two words'][1]"),
            ({"set": {1, 2}}, "payload.set"),
            (b"bytes", "payload"),
            ({"f": print}, "payload.f"),
        ],
    )
    @in_loop
    async def test_what_json_cannot_hold_is_named_by_its_path_and_nothing_is_added(
        self, valkey: Server, payload: Any, path: str
    ) -> None:
        async with QueueClient(valkey.url) as client:
            handle = client.queue(fresh_id())
            with pytest.raises(NotSerializable) as caught:
                await handle.add(payload)
            with pytest.raises(NotSerializable):
                await handle.add_many([1, payload])
            counts = await handle.counts()

        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path}: ")
        assert counts.waiting == 0

    @in_loop
    async def test_nesting_has_an_end(self, valkey: Server) -> None:
        deep: Any = 1
        for _ in range(65):
            deep = [deep]

        async with QueueClient(valkey.url) as client:
            with pytest.raises(NotSerializable, match="deeper than 64"):
                await client.queue(fresh_id()).add(deep)
            await client.queue(fresh_id()).add(deep[0])

    @in_loop
    async def test_a_payload_that_is_too_large_is_refused(self, valkey: Server) -> None:
        async with QueueClient(valkey.url) as client:
            with pytest.raises(PayloadTooLarge, match="1,000,002 bytes"):
                await client.queue(fresh_id()).add("x" * 1_000_000)
            with pytest.raises(PayloadTooLarge, match="takes 10 at most"):
                await client.queue(Queue(fresh_id(), max_payload_bytes=10)).add("x" * 10)

    @pytest.mark.parametrize("payload", ["{not json", '{"n": "text"}', "", "[1,2]", b'"\xff\xfe"'])
    @in_loop
    async def test_a_stored_payload_that_cannot_be_understood_fails_at_once_with_the_reason(
        self, server: Server, payload: str | bytes
    ) -> None:
        queue = Queue(fresh_id(), dict[str, int])
        raw = raw_redis(server)
        failed = asyncio.Event()

        async def never(_job: Job[Any]) -> None:
            pytest.fail("the job was given to a handler")

        async with QueueClient(server.url) as client:
            fields = {"id": "a", "queueId": queue.id, "payload": payload, "status": "waiting", "maxRetries": "9"}
            raw.hset(f"{{q:{queue.id}}}:job:a", mapping=fields)
            raw.lpush(f"{{q:{queue.id}}}:waiting", "a")
            async with Worker(queue, never, url=server.url, callbacks=Callbacks(on_failed=lambda _: failed.set())):
                await failed.wait()
            record = await client.queue(queue).job("a")
        raw.close()

        assert (record.status, record.runs, record.stalls) == ("failed", 1, 0)
        assert "payload cannot be understood" in (record.failed_reason or "")


class TestForeignData:
    @pytest.mark.parametrize("name", ["waiting", "meta"])
    @in_loop
    async def test_an_add_onto_somebody_elses_data_is_refused_and_writes_nothing(
        self, server: Server, name: str
    ) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        raw.set(f"{{q:{queue_id}}}:{name}", "somebody else's")

        async with QueueClient(server.url) as client:
            with pytest.raises(ForeignData, match="somebody else's data"):
                await client.queue(Queue(queue_id, mode="global")).add({})
        left = list(raw.scan_iter(f"{{q:{queue_id}}}*", count=10_000))
        raw.close()

        assert left == [f"{{q:{queue_id}}}:{name}".encode()]

    @pytest.mark.parametrize("name", ["active", "delayed", "concurrency"])
    @in_loop
    async def test_a_worker_that_meets_somebody_elses_data_says_so_and_loses_no_job(
        self, server: Server, name: str
    ) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        told: list[WorkerError] = []
        done = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            done.set()

        async with QueueClient(server.url) as client:
            await client.queue(queue_id).add({})
            raw.set(f"{{q:{queue_id}}}:{name}", "somebody else's")
            callbacks = Callbacks(on_worker_error=told.append)
            async with Worker(
                queue_id, handler, url=server.url, callbacks=callbacks, settings=WorkerSettings(poll_ms=20)
            ):
                await eventually(lambda: any(isinstance(one.error, ForeignData) for one in told))
                waiting = raw.llen(f"{{q:{queue_id}}}:waiting")
                raw.delete(f"{{q:{queue_id}}}:{name}")
                await done.wait()
        raw.close()

        assert waiting == 1

    @in_loop
    async def test_an_id_without_a_job_and_a_job_that_is_no_hash_are_passed_over(self, server: Server) -> None:
        queue_id = fresh_id()
        raw = raw_redis(server)
        raw.set(f"{{q:{queue_id}}}:job:text", "somebody else's")
        raw.lpush(f"{{q:{queue_id}}}:waiting", "missing", "text")
        seen: asyncio.Queue[Job[Any]] = asyncio.Queue()
        told: list[WorkerError] = []

        async with QueueClient(server.url) as client:
            job = await client.queue(queue_id).add(1)
            async with Worker(queue_id, seen.put, url=server.url, callbacks=Callbacks(on_worker_error=told.append)):
                got = await seen.get()
        raw.close()

        assert got.id == job.id
        assert sorted((one.kind, str(one.error).split()[1]) for one in told) == [
            ("corrupt", "missing"),
            ("corrupt", "text"),
        ]


class TestServers:
    @in_loop
    async def test_a_refused_connection_is_told_within_three_seconds(self) -> None:
        url = f"redis://127.0.0.1:{free_port()}"
        began = time.monotonic()

        async with QueueClient(url) as client:
            with pytest.raises(ServerUnreachable, match="no answer from"):
                await client.queue("q").add({})
            with pytest.raises(ServerUnreachable):
                await client.connect()
        with pytest.raises(ServerUnreachable):
            await Worker("q", print, url=url).start()
        with SyncQueueClient(url) as sync, pytest.raises(ServerUnreachable):
            sync.queue("q").add({})

        assert time.monotonic() - began < 3

    @in_loop
    async def test_a_wrong_password_is_told_and_not_repeated(self) -> None:
        with own_server("--requirepass", "right") as guarded:
            for login in ("", ":wrong@", "nobody:wrong@"):
                url = f"redis://{login}127.0.0.1:{guarded.port}"
                async with QueueClient(url) as client:
                    with pytest.raises(AccessDenied, match=r"password|NOAUTH") as caught:
                        await client.queue("q").add({})
                with SyncQueueClient(url) as sync, pytest.raises(AccessDenied):
                    sync.queue("q").add({})
                assert "wrong" not in str(caught.value)
            async with QueueClient(f"redis://:right@127.0.0.1:{guarded.port}") as client:
                assert (await client.queue("q").add({})).id

    @in_loop
    async def test_a_full_server_takes_no_jobs_but_its_workers_go_on(self) -> None:
        with own_server("--maxmemory-policy", "noeviction") as small:
            done = asyncio.Event()
            left = 50

            async def handler(_job: Job[Any]) -> None:
                nonlocal left
                left -= 1
                if not left:
                    done.set()

            async with QueueClient(small.url) as client:
                handle = client.queue("q")
                await handle.add_many(range(50))
                small.call("CONFIG", "SET", "maxmemory", 1)
                with pytest.raises(ServerFull, match="out of memory"):
                    await handle.add({})
                async with Worker("q", handler, url=small.url):
                    await done.wait()

    @in_loop
    async def test_an_eviction_policy_that_may_drop_jobs_is_warned_about(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with own_server("--maxmemory-policy", "allkeys-lru") as careless:
            async with Worker("q", print, url=careless.url):
                pass

        assert "maxmemory-policy is allkeys-lru" in caplog.text

    @pytest.mark.parametrize(
        "url",
        [
            "http://localhost",
            "localhost:6379",
            "redis://localhost:port",
            "redis://localhost:0",
            "redis://localhost/one",
            "redis://localhost?speed=11",
            "unix://",
            "redis+sentinel://localhost",
            "redis+cluster://localhost/3",
        ],
    )
    def test_an_address_that_makes_no_sense_is_refused(self, url: str) -> None:
        with pytest.raises(BadAddress):
            QueueClient(url)

    @pytest.mark.parametrize("queue_id", ["", "a{b", "a}b", "a\nb", "x" * 513])
    def test_a_queue_id_that_would_break_the_hash_tag_is_refused(self, queue_id: str) -> None:
        with pytest.raises(BadQueue, match="not a queue id"):
            Queue(queue_id)

    @pytest.mark.parametrize(
        "settings",
        [
            {"retries": -1},
            {"max_stalls": -1},
            {"timeout_ms": 0},
            {"backoff": BackoffRule(factor=0.5)},
            {"backoff": BackoffRule(jitter=2)},
            {"mode": "keyed", "key_concurrency": 0},
            {"key_concurrency": 2},
            {"mode": "sideways"},
        ],
    )
    def test_settings_that_make_no_sense_are_refused(self, settings: Any) -> None:
        with pytest.raises(BadQueue):
            Queue("q", **settings)
