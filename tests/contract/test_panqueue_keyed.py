"""Keyed concurrency and mode metadata, clause by clause of the spec's keyed section."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import BackoffRule, Job, Limit, Mode, Queue, QueueClient, Worker, WorkerSettings
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import BadQueue, KeyRequired, ModeMismatch
from queueyard.panqueue.records import Finish, JobOptions
from queueyard.panqueue.store import QueueStore
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.panqueue.store import Turn

__all__ = ["server", "valkey"]

AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)


class Bench:
    """One keyed queue, worked by hand: every call is one script."""

    def __init__(self, server: Server, mode: Mode = Mode.KEYED, per_key: int = 1) -> None:
        self.line = Line(parse_address(server.url))
        self.store = QueueStore(fresh_id())
        self.redis = raw_redis(server, decode_responses=True)
        self._calls = 0
        self.line.ask(self.store.declare_mode(mode, per_key))
        self._builder = self.store.turn_builder(lease_ms=60_000, worker="w", keep=None, keyed=True)

    def add(self, *jobs: tuple[str, str]) -> None:
        words: list[str | bytes | int] = []
        for job_id, key in jobs:
            words += [job_id, b"{}", key]
        self.line.ask(self.store.add(words, JobOptions(), keyed=True))

    def turn(self, claim: int = 0, finish: tuple[tuple[str, str, str], ...] = ()) -> tuple[str, Turn]:
        """(token, what came of it); `finish` is (id, token, key) of each."""
        self._calls += 1
        token = f"t{self._calls}"
        done = [(job_id, held_by, key, b"") for job_id, held_by, key in finish]
        return token, self.line.ask(self._builder.build(done, claim=claim, token=token))

    def claim(self, count: int) -> list[str]:
        _, turn = self.turn(claim=count)
        return [job.id for job in turn.claimed]

    def key(self, name: str) -> str:
        return self.store.keys[name]

    def ready(self) -> list[str]:
        found: list[str] = self.redis.zrange(self.key("k_ready"), 0, -1)
        return found

    def active(self) -> dict[str, str]:
        found: dict[str, str] = self.redis.hgetall(self.key("k_active"))
        return found

    def waiting(self, key: str) -> list[str]:
        found: list[str] = self.redis.lrange(self.key("k_lists") + key, 0, -1)
        return found

    def close(self) -> None:
        self.line.close()
        self.redis.close()


@pytest.fixture
def bench(server: Server) -> Iterator[Bench]:
    made = Bench(server)
    yield made
    made.close()


class TestTheLayout:
    """spec: Redis Data Structures (Keyed Mode)."""

    def test_jobs_stand_in_lists_per_key_and_the_metadata_says_so(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"), ("b1", "b"))

        assert bench.waiting("a") == ["a1", "a2"]
        assert bench.waiting("b") == ["b1"]
        assert bench.ready() == ["a", "b"]
        assert bench.redis.hgetall(bench.key("meta")) == {"mode": "keyed", "keyConcurrency": "1", "seq": "2"}
        assert bench.redis.hget(bench.store.keys.job("a1"), "concurrencyKey") == "a"
        assert bench.redis.exists(bench.key("waiting")) == 0

    def test_all_keys_share_the_tag(self, bench: Bench) -> None:
        bench.add(("a1", "a"))
        bench.claim(1)

        for key in bench.redis.scan_iter(f"*{bench.store.queue_id}*", count=10_000):
            assert key.startswith(f"{bench.store.keys.tag}:")


class TestClaiming:
    """spec: Job Claiming (Keyed Mode)."""

    def test_a_claim_counts_and_a_key_at_its_limit_is_not_ready(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))

        assert bench.claim(5) == ["a1"]
        assert bench.active() == {"a": "1"}
        assert bench.ready() == []
        assert bench.waiting("a") == ["a2"]

    def test_keys_take_turns(self, server: Server) -> None:
        bench = Bench(server, per_key=10)
        bench.add(*[(f"a{n}", "a") for n in range(3)], *[(f"b{n}", "b") for n in range(3)], ("c0", "c"))

        assert bench.claim(7) == ["a0", "b0", "c0", "a1", "b1", "a2", "b2"]
        bench.close()

    def test_a_key_that_is_put_back_goes_behind_the_others(self, server: Server) -> None:
        bench = Bench(server, per_key=10)
        bench.add(("a0", "a"), ("a1", "a"), ("b0", "b"))

        assert bench.claim(1) == ["a0"]
        assert bench.ready() == ["b", "a"]
        bench.close()

    def test_one_call_for_many_serves_keys_as_many_calls_for_one_do(self, server: Server) -> None:
        jobs = [(f"{key}{number}", key) for key, count in (("a", 5), ("b", 2), ("c", 4)) for number in range(count)]
        one_by_one, at_once = Bench(server, per_key=3), Bench(server, per_key=3)
        one_by_one.add(*jobs)
        at_once.add(*jobs)

        singles = [job for _ in jobs for job in one_by_one.claim(1)]

        assert at_once.claim(len(jobs)) == singles
        assert at_once.ready() == one_by_one.ready()
        assert at_once.active() == one_by_one.active()
        one_by_one.close()
        at_once.close()

    def test_the_common_limit_holds_over_all_keys(self, bench: Bench) -> None:
        bench.line.ask(bench.store.declare_limit(2, 1))
        bench.add(("a1", "a"), ("b1", "b"), ("c1", "c"))

        assert bench.claim(5) == ["a1", "b1"]
        assert bench.claim(5) == []
        assert bench.ready() == ["c"]


class TestFinishing:
    """spec: Job Completion; Readiness Invariant."""

    def test_a_finish_makes_the_next_job_of_the_key_ready(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        token, _ = bench.turn(claim=1)

        _, turn = bench.turn(finish=(("a1", token, "a"),))

        assert turn.refused == []
        assert bench.active() == {}
        assert bench.ready() == ["a"]

    def test_a_finish_and_a_claim_in_one_turn_go_on_with_the_same_key(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        token, _ = bench.turn(claim=1)

        _, turn = bench.turn(claim=1, finish=(("a1", token, "a"),))

        assert [job.id for job in turn.claimed] == ["a2"]
        assert bench.active() == {"a": "1"}

    def test_a_failure_releases_the_key_too(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        token, _ = bench.turn(claim=1)

        codes = bench.line.ask(bench.store.fail([("a1", token, "no", -1)], worker="w", keep=None))

        assert codes == [Finish.FAILED]
        assert bench.active() == {}
        assert bench.ready() == ["a"]

    def test_a_retry_goes_to_the_back_of_its_key(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        bench.redis.hset(bench.store.keys.job("a1"), "maxRetries", 1)
        token, _ = bench.turn(claim=1)

        codes = bench.line.ask(bench.store.fail([("a1", token, "no", 0)], worker="w", keep=None))

        assert codes == [Finish.DONE]
        assert bench.waiting("a") == ["a2", "a1"]

    def test_a_delayed_retry_frees_its_key_meanwhile_and_comes_back_when_it_is_due(self, bench: Bench) -> None:
        bench.add(("a1", "a"))
        bench.redis.hset(bench.store.keys.job("a1"), "maxRetries", 1)
        token, _ = bench.turn(claim=1)
        bench.line.ask(bench.store.fail([("a1", token, "no", 60_000)], worker="w", keep=None))
        assert bench.active() == {}
        bench.redis.zadd(bench.key("delayed"), {"a1": 1})

        assert bench.claim(1) == ["a1"]

    def test_a_stale_finish_changes_no_count(self, bench: Bench) -> None:
        bench.add(("a1", "a"))
        bench.turn(claim=1)

        _, turn = bench.turn(finish=(("a1", "not-the-token", "a"),))

        assert turn.refused == [(0, Finish.STALE)]
        assert bench.active() == {"a": "1"}


class TestRecovery:
    """spec: Stalled Job Recovery; Key Lifecycle."""

    def test_a_stalled_job_returns_to_the_front_of_its_key(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        bench.claim(1)
        bench.redis.zadd(bench.key("active"), {"a1": 1})

        swept = bench.line.ask(bench.store.recover(actor="s", most=10, keep=None))

        assert [one.job.id for one in swept] == ["a1"]
        assert bench.waiting("a") == ["a1", "a2"]
        assert bench.active() == {}
        assert bench.ready() == ["a"]

    def test_a_job_that_is_handed_back_returns_to_the_front_of_its_key(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        token, _ = bench.turn(claim=1)

        codes = bench.line.ask(bench.store.hand_back([("a1", token)], worker="w", why="shutdown"))

        assert codes == [Finish.DONE]
        assert bench.waiting("a") == ["a1", "a2"]
        assert bench.ready() == ["a"]

    def test_a_count_that_somebody_broke_by_deleting_a_job_is_mended(self, bench: Bench) -> None:
        bench.add(("a1", "a"), ("a2", "a"))
        bench.claim(1)
        bench.redis.delete(bench.store.keys.job("a1"))
        bench.redis.zadd(bench.key("active"), {"a1": 1})
        swept = bench.line.ask(bench.store.recover(actor="s", most=10, keep=None))
        assert [one.outcome for one in swept] == [Finish.CORRUPT]
        assert bench.line.ask(bench.store.mend(most=100, really=False))[-1] == 1
        assert bench.ready() == []

        bench.line.ask(bench.store.mend(most=100, really=True))

        assert bench.active() == {}
        assert bench.ready() == ["a"]
        assert bench.line.ask(bench.store.mend(most=100, really=False)) == [0] * 9

    def test_nothing_is_left_of_a_key_without_jobs(self, bench: Bench) -> None:
        bench.add(("a1", "a"))
        token, _ = bench.turn(claim=1)
        bench.turn(finish=(("a1", token, "a"),))

        left = {key.removeprefix(bench.store.keys.tag) for key in bench.redis.scan_iter(f"{bench.store.keys.tag}*")}

        assert left == {":meta"}

    def test_removing_the_last_waiting_job_takes_its_key_out_of_the_ready_set(self, bench: Bench) -> None:
        bench.add(("a1", "a"))

        bench.line.ask(bench.store.remove(["a1"]))

        assert bench.ready() == []
        assert bench.waiting("a") == []


class TestDynamicLimits:
    @pytest.fixture
    def dynamic(self, server: Server) -> Iterator[Bench]:
        made = Bench(server, mode=Mode.DYNAMIC, per_key=1)
        yield made
        made.close()

    def limit(self, bench: Bench, key: str, limit: int | None) -> None:
        bench.line.ask(bench.store.key_limit(key, limit))

    def test_a_key_may_have_more_than_the_others(self, dynamic: Bench) -> None:
        self.limit(dynamic, "big", 2)
        dynamic.add(*[(f"big{n}", "big") for n in range(3)], *[(f"small{n}", "small") for n in range(3)])

        assert sorted(dynamic.claim(10)) == ["big0", "big1", "small0"]

    def test_raising_a_limit_makes_a_full_key_ready_at_once(self, dynamic: Bench) -> None:
        dynamic.add(("a1", "a"), ("a2", "a"))
        dynamic.claim(2)

        self.limit(dynamic, "a", 2)

        assert dynamic.ready() == ["a"]

    def test_zero_stops_a_key_and_none_gives_it_the_limit_of_the_queue(self, dynamic: Bench) -> None:
        dynamic.add(("a1", "a"), ("b1", "b"))
        self.limit(dynamic, "a", 0)
        assert dynamic.claim(5) == ["b1"]
        assert dynamic.line.ask(dynamic.store.counts()).waiting == 1

        self.limit(dynamic, "a", None)

        assert dynamic.claim(5) == ["a1"]

    def test_only_a_dynamic_queue_has_limits_per_key(self, bench: Bench) -> None:
        with pytest.raises(ModeMismatch, match="not in dynamic mode"):
            self.limit(bench, "a", 2)


class TestModes:
    """spec: Mode Validation."""

    @staticmethod
    async def handler(_job: Job[Any]) -> None: ...

    @in_loop
    async def test_a_worker_of_another_mode_refuses_to_start(self, server: Server) -> None:
        queue_id = fresh_id()
        async with Worker(Queue(queue_id, mode="keyed", key_concurrency=2), self.handler, url=server.url):
            pass

        for queue in (Queue(queue_id), Queue(queue_id, mode="dynamic")):
            with pytest.raises(ModeMismatch, match="keyed mode"):
                await Worker(queue, self.handler, url=server.url).start()

    @in_loop
    async def test_a_worker_with_another_limit_per_key_refuses_to_start(self, server: Server) -> None:
        queue_id = fresh_id()
        async with Worker(Queue(queue_id, mode="keyed", key_concurrency=2), self.handler, url=server.url):
            pass

        with pytest.raises(ModeMismatch, match="lets 2 jobs per key"):
            await Worker(Queue(queue_id, mode="keyed", key_concurrency=3), self.handler, url=server.url).start()
        async with Worker(Queue(queue_id, mode="keyed"), self.handler, url=server.url) as worker:
            assert worker.state == "running"

    @in_loop
    async def test_a_queue_with_global_jobs_does_not_become_keyed(self, server: Server) -> None:
        queue_id = fresh_id()
        async with QueueClient(server.url) as client:
            await client.queue(queue_id).add({})

        with pytest.raises(ModeMismatch, match="global mode"):
            await Worker(Queue(queue_id, mode="keyed"), self.handler, url=server.url).start()

    @in_loop
    async def test_a_client_takes_the_stored_mode(self, server: Server) -> None:
        queue_id = fresh_id()
        async with (
            Worker(Queue(queue_id, mode="keyed"), self.handler, url=server.url),
            QueueClient(server.url) as client,
        ):
            with pytest.raises(KeyRequired, match="every job needs"):
                await client.queue(queue_id).add({})
            job = await client.queue(queue_id).add({}, key="a")

        assert job.id

    @in_loop
    async def test_a_client_of_another_mode_is_refused(self, server: Server) -> None:
        queue_id = fresh_id()
        async with (
            Worker(Queue(queue_id, mode="keyed"), self.handler, url=server.url),
            QueueClient(server.url) as client,
        ):
            with pytest.raises(ModeMismatch, match="keyed mode"):
                await client.queue(Queue(queue_id, mode="global")).add({})
            counts = await client.queue(queue_id).counts()

        assert counts.waiting == 0

    @in_loop
    async def test_two_declarations_of_one_queue_must_agree(self, valkey: Server) -> None:
        queue_id = fresh_id()
        async with QueueClient(valkey.url) as client:
            client.queue(queue_id)
            await client.queue(Queue(queue_id, mode="keyed")).add({}, key="a")
            with pytest.raises(ModeMismatch, match="declared in keyed mode before"):
                client.queue(Queue(queue_id, mode="dynamic"))

    @in_loop
    async def test_a_mode_that_changes_behind_a_clients_back_is_noticed_by_the_script(self, server: Server) -> None:
        queue_id = fresh_id()
        async with QueueClient(server.url) as client:
            queue = client.queue(queue_id)
            job = await queue.add({})
            await queue.remove(job.id)
            async with Worker(Queue(queue_id, mode="keyed"), self.handler, url=server.url):
                with pytest.raises(ModeMismatch, match="keyed mode"):
                    await queue.add({})

    @in_loop
    async def test_a_client_may_come_first_if_it_is_told_the_mode(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed", key_concurrency=4)
        async with QueueClient(server.url) as client:
            await client.queue(queue).add({}, key="a")
            counts = await client.queue(queue).counts()

        assert (counts.mode, counts.key_concurrency, counts.waiting) == (Mode.KEYED, 4, 1)

    @in_loop
    async def test_a_key_in_global_mode_is_refused(self, server: Server) -> None:
        async with QueueClient(server.url) as client:
            with pytest.raises(KeyRequired, match="global mode"):
                await client.queue(fresh_id()).add({}, key="a")

    @pytest.mark.parametrize("key", ["", "x" * 513])
    @in_loop
    async def test_a_key_must_have_a_usable_length(self, valkey: Server, key: str) -> None:
        async with QueueClient(valkey.url) as client:
            with pytest.raises(BadQueue, match="not a concurrency key"):
                await client.queue(Queue(fresh_id(), mode="keyed")).add({}, key=key)


class TestAWholeKeyedQueue:
    @in_loop
    async def test_no_key_ever_runs_more_than_its_limit_and_each_key_runs_in_order(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed", key_concurrency=1)
        running: Counter[str] = Counter()
        most: Counter[str] = Counter()
        order: dict[str, list[int]] = defaultdict(list)
        done = asyncio.Event()
        keys, per_key = 12, 15

        async def handler(job: Job[Any]) -> None:
            assert job.key is not None
            running[job.key] += 1
            most[job.key] = max(most[job.key], running[job.key])
            order[job.key].append(job.payload)
            await asyncio.sleep(0.001)
            running[job.key] -= 1
            if sum(map(len, order.values())) == keys * per_key:
                done.set()

        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            for number in range(per_key):
                for key in range(keys):
                    handle.add(number, key=f"k{key}")
            settings = WorkerSettings(concurrency=8)
            async with (
                Worker(queue, handler, url=server.url, settings=settings),
                Worker(queue, handler, url=server.url, settings=settings),
            ):
                await done.wait()
            await eventually(lambda: running.total() == 0)
            left = await handle.counts()

        assert set(most.values()) == {1}
        assert all(numbers == list(range(per_key)) for numbers in order.values())
        assert (left.waiting, left.active, left.keys) == (0, 0, 0)

    @in_loop
    async def test_limit_per_key_and_common_limit_hold_together(self, valkey: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode="keyed", key_concurrency=2)
        running = most = count = 0
        done = asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            nonlocal running, most, count
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.001)
            running -= 1
            count += 1
            if count == 60:
                done.set()

        async with QueueClient(valkey.url) as client:
            await client.queue(queue).add_many(range(60), key=lambda number: f"k{number % 6}")
            async with Worker(queue, handler, url=valkey.url, limit=Limit(5), concurrency=20):
                await done.wait()

        assert most == 5
