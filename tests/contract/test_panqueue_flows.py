"""Flows through the public API, on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path
import signal
import sys
from typing import Any

import pytest

from queueyard.panqueue import (
    BackoffRule,
    FlowJob,
    Job,
    Keep,
    Queue,
    QueueClient,
    SyncQueueClient,
    Worker,
    WorkerSettings,
    chain,
    group,
)
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.doctor import examine_queue
from queueyard.panqueue.errors import BadFlow, JobFailed
from queueyard.panqueue.family import add_flow
from queueyard.panqueue.flows import planned
from queueyard.panqueue.store import QueueStore
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey

__all__ = ["server", "valkey"]

QUICK = WorkerSettings(sweep_ms=100, lease_ms=400)


def pair(mode: str = "global") -> tuple[Queue[Any, Any], Queue[Any, Any]]:
    """A queue of parents, whose results are kept, and one of children, of which nothing is kept."""
    parents: Queue[Any, Any] = Queue(fresh_id("parents"), mode=mode, keep_completed=Keep())
    return parents, Queue(fresh_id("children"), mode=mode, backoff=BackoffRule(base_ms=0, cap_ms=0))


async def add_up(job: Job[Any]) -> Any:
    """A parent: what its children returned, and why those failed that did."""
    found = await job.children()
    return {name: one.result if one.ok else f"failed: {one.reason}" for name, one in found.items()}


async def double(job: Job[Any]) -> Any:
    if job.payload == "bad":
        raise ValueError("a bad child")
    return job.payload * 2


class TestFlows:
    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_a_parent_waits_for_its_children_and_reads_their_results(self, server: Server, mode: str) -> None:
        parents, kids = pair(mode)
        key = "k" if mode == "keyed" else None
        async with (
            QueueClient(server.url) as client,
            Worker(parents, add_up, url=server.url),
            Worker(kids, double, url=server.url),
        ):
            if mode == "keyed":
                await client.queue(parents).counts()
            flow = FlowJob(parents, None, key=key, children=[FlowJob(kids, n, name=f"n{n}", key=key) for n in range(5)])
            result = await (await client.add_flow(flow)).result(timeout_s=30)
            counts = await client.queue(kids).counts()

        assert result == {f"n{n}": n * 2 for n in range(5)}
        assert (counts.waiting, counts.active, counts.failed) == (0, 0, 0)
        assert not raw_redis(server).exists(f"{{q:{kids.id}}}:children")

    @in_loop
    async def test_a_parent_is_held_until_the_last_child_has_ended(self, server: Server) -> None:
        parents, kids = pair()
        async with QueueClient(server.url) as client:
            handle = client.queue(parents)
            async with Worker(parents, add_up, url=server.url):
                root = await client.add_flow(group([FlowJob(kids, 1), FlowJob(kids, 2)], then=FlowJob(parents, None)))
                held = await handle.counts()
                listed = await handle.jobs("held")
                async with Worker(kids, double, url=server.url):
                    result = await root.result(timeout_s=30)

        assert (held.held, held.waiting) == (1, 0)
        assert [job.id for job in listed] == [root.id]
        assert result == {"0": 2, "1": 4}

    @in_loop
    async def test_a_chain_hands_results_on(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())

        async def handler(job: Job[Any]) -> Any:
            before = await job.children()
            return [*(before["before"].result if before else []), job.payload]

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            flow = chain(*(FlowJob(queue, n, name="before") for n in range(4)))
            result = await (await client.add_flow(flow)).result(timeout_s=30)

        assert result == [0, 1, 2, 3]

    def test_the_blocking_client_adds_flows(self, server: Server) -> None:
        parents, kids = pair()
        with SyncQueueClient(server.url) as client:
            root = client.add_flow(FlowJob(parents, 1, children=[FlowJob(kids, 2)]))

            assert root.record().status == "held"
            assert client.queue(kids).counts().waiting == 1

    @pytest.mark.parametrize(
        ("policy", "result"),
        [("ignore", {"bad": "failed: a bad child", "good": 4}), ("continue", {"bad": "failed: a bad child"})],
    )
    @in_loop
    async def test_a_failed_child_is_ignored_or_ends_the_waiting(
        self, server: Server, policy: str, result: Any
    ) -> None:
        parents, kids = pair()
        never: Queue[Any, Any] = Queue(fresh_id("never"))
        good = FlowJob(kids if policy == "ignore" else never, 2, name="good")
        bad = FlowJob(kids, "bad", name="bad", on_failure=policy, retries=1)
        async with (
            QueueClient(server.url) as client,
            Worker(parents, add_up, url=server.url),
            Worker(kids, double, url=server.url),
        ):
            root = await client.add_flow(FlowJob(parents, None, children=[bad, good]))
            found = await root.result(timeout_s=30)

        assert found == result

    @in_loop
    async def test_a_failure_goes_up_through_all_who_wait(self, server: Server) -> None:
        parents, kids = pair()
        middle = FlowJob(parents, None, name="middle", children=[FlowJob(kids, "bad", name="low")])
        async with (
            QueueClient(server.url) as client,
            Worker(parents, add_up, url=server.url),
            Worker(kids, double, url=server.url),
        ):
            root = await client.add_flow(FlowJob(parents, None, children=[middle]))
            with pytest.raises(JobFailed, match="child middle failed: child low failed: a bad child"):
                await root.result(timeout_s=30)
            record = await root.record()

        assert record.failure_kind == "child"

    @in_loop
    async def test_a_child_whose_result_json_cannot_hold_has_failed(self, server: Server) -> None:
        parents, kids = pair()

        async def child(_job: Job[Any]) -> Any:
            return object()

        async with QueueClient(server.url) as client, Worker(kids, child, url=server.url):
            root = await client.add_flow(FlowJob(parents, None, children=[FlowJob(kids, 1, name="odd")]))
            with pytest.raises(JobFailed, match="child odd failed: result"):
                await root.result(timeout_s=30)

    @in_loop
    async def test_a_child_that_is_canceled_counts_as_failed(self, server: Server) -> None:
        parents, kids = pair()
        async with QueueClient(server.url) as client:
            root = await client.add_flow(FlowJob(parents, None, children=[FlowJob(kids, 1)]))
            [child] = await client.queue(kids).jobs("waiting")
            await client.queue(kids).cancel(child.id, why="not this one")
            async with Worker(kids, double, url=server.url, settings=QUICK):
                with pytest.raises(JobFailed, match="not this one"):
                    await root.result(timeout_s=30)


class TestDeath:
    """Whoever dies, the flow completes."""

    @pytest.mark.parametrize("step", range(1, 8))
    @in_loop
    async def test_an_adder_may_die_after_any_call(
        self, server: Server, step: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("queueyard.panqueue.family.PLANT_AFTER_MS", -5_000)
        parents, kids = pair()
        flow = planned(
            FlowJob(
                parents,
                None,
                children=[FlowJob(kids, 1), FlowJob(parents, None, name="sub", children=[FlowJob(kids, 2)])],
            )
        )
        line = Line(parse_address(server.url))
        talk = add_flow(flow)
        answer: Any = None
        for _ in range(step):
            try:
                answer = line.ask(talk.send(answer))
            except StopIteration:
                break
        line.close()
        talk.close()

        async with (
            QueueClient(server.url) as client,
            Worker(parents, add_up, url=server.url, settings=QUICK),
            Worker(kids, double, url=server.url, settings=QUICK),
        ):
            result = await client.queue(parents).result(flow.id, timeout_s=60)

        assert result == {"0": 2, "sub": {"0": 4}}

    @in_loop
    async def test_a_worker_that_dies_before_it_tells_the_parent_is_stood_in_for(self, server: Server) -> None:
        """The child's end is recorded, its worker is gone, and the parent does not know yet."""
        parents, kids = pair()
        store = QueueStore(kids.id)
        async with QueueClient(server.url) as client:
            root = await client.add_flow(FlowJob(parents, None, children=[FlowJob(kids, 4)]))
            line = Line(parse_address(server.url))
            turn = line.ask(store.turn_builder(lease_ms=60_000, worker="w", keep=None).build([], claim=1, token="t"))
            child = turn.claimed[0].id
            from queueyard.panqueue.family import child_ended

            line.ask(child_ended(store, child, "t", b"8"))
            line.ask(
                store.turn_builder(lease_ms=60_000, worker="w", keep=None).build(
                    [(child, "t", None, b"")], claim=0, token="u"
                )
            )
            line.close()
            async with (
                Worker(parents, add_up, url=server.url),
                Worker(kids, double, url=server.url, settings=QUICK),
            ):
                result = await root.result(timeout_s=30)

        assert result == {"0": 8}

    @in_loop
    async def test_a_parent_whose_worker_dies_runs_again_with_the_same_children(self, server: Server) -> None:
        parents, kids = pair()
        seen: list[Any] = []

        async def handler(job: Job[Any]) -> Any:
            seen.append(await add_up(job))
            if job.attempt == 1:
                # Its lease is taken away, as if the worker had been killed and the sweep had come.
                raw_redis(server).zadd(f"{{q:{parents.id}}}:active", {job.id: 1})
                await asyncio.Event().wait()
            return seen

        async with (
            QueueClient(server.url) as client,
            Worker(parents, handler, url=server.url, settings=WorkerSettings(sweep_ms=100, lease_ms=60_000)),
            Worker(kids, double, url=server.url),
        ):
            root = await client.add_flow(FlowJob(parents, None, children=[FlowJob(kids, 3)]))
            await eventually(lambda: len(seen) >= 2)
            result = await root.result(timeout_s=30)

        assert result == [{"0": 6}, {"0": 6}]

    @in_loop
    async def test_every_worker_of_a_flow_is_killed_in_the_middle_of_it_and_it_completes(self, server: Server) -> None:
        """Kill -9 of the process that runs a child or the parent, once for each job of the flow."""
        parents, kids = fresh_id("parents"), fresh_id("children")
        program = Path(__file__).with_name("panqueue_flow_worker.py")
        deaths = 0
        async with QueueClient(server.url) as client:
            queue = client.queue(Queue(parents, keep_completed=Keep()))
            root = await client.add_flow(
                FlowJob(Queue(parents, keep_completed=Keep()), 100, children=[FlowJob(kids, n) for n in range(3)])
            )
            over = asyncio.ensure_future(queue.result(root.id, timeout_s=90))
            while not over.done():
                process = await asyncio.create_subprocess_exec(
                    sys.executable, str(program), server.url, parents, kids, stderr=asyncio.subprocess.DEVNULL
                )
                ended = asyncio.ensure_future(process.wait())
                await asyncio.wait([over, ended], return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    process.kill()
                deaths += await ended == -signal.SIGKILL and not over.done()
            result = await over

        assert result == 100 + 0 + 2 + 4
        # Three children and a parent.
        assert deaths == 4


class TestBadFlows:
    def test_a_circle_is_refused_with_its_path(self) -> None:
        a, b = FlowJob("q", 1, name="a"), FlowJob("q", 1, name="b")
        a.children.append(b)
        b.children.append(a)

        with pytest.raises(BadFlow, match="a > b > a"):
            planned(a)

    def test_one_job_at_two_places_is_refused(self) -> None:
        shared = FlowJob("q", 1, name="shared")

        with pytest.raises(BadFlow, match="root > left > shared and root > right > shared"):
            planned(
                FlowJob(
                    "q",
                    1,
                    name="root",
                    children=[
                        FlowJob("q", 1, name="left", children=[shared]),
                        FlowJob("q", 1, name="right", children=[shared]),
                    ],
                )
            )

    def test_two_children_of_one_name_are_refused(self) -> None:
        with pytest.raises(BadFlow, match="two children called x"):
            planned(FlowJob("q", 1, children=[FlowJob("q", 1, name="x"), FlowJob("q", 2, name="x")]))

    def test_a_flow_without_an_end_is_refused(self) -> None:
        with pytest.raises(BadFlow, match="deeper than 50"):
            planned(chain(*(FlowJob("q", n) for n in range(60))))

    def test_a_delay_in_a_flow_is_refused(self) -> None:
        with pytest.raises(BadFlow, match="waits for its children"):
            FlowJob("q", 1, delay_ms=5)


class TestDoctor:
    """What only workers of a queue can do, and none has done."""

    def findings(self, server: Server, queue_id: str) -> dict[str, str]:
        line = Line(parse_address(server.url))
        found = {one.check: one.problem for one in examine_queue(line, queue_id, fix=False)}
        line.close()
        return found

    def test_slots_expiry_and_flows_that_nobody_looks_after_are_told(self, server: Server) -> None:
        queue = fresh_id()
        raw = raw_redis(server)
        for name in ("schedules", "expiry", "unplanted"):
            raw.zadd(f"{{q:{queue}}}:{name}", {"j": 1})
        raw.hset(f"{{q:{queue}}}:job:j", mapping={"id": "j", "payload": "1"})

        found = self.findings(server, queue)

        assert set(found) == {"schedules", "expiry", "unplanted"}
        assert "no worker looks after it" in found["schedules"]

    def test_jobs_that_wait_by_priority_in_a_queue_without_the_rule_are_told(self, server: Server) -> None:
        queue = fresh_id()
        raw = raw_redis(server)
        raw.zadd(f"{{q:{queue}}}:ranked", {"j": 1})
        raw.hset(f"{{q:{queue}}}:job:j", mapping={"id": "j", "payload": "1"})

        assert "lost the rule" in self.findings(server, queue)["priorities"]

    def test_held_and_ranked_ids_without_a_job_are_mended(self, server: Server) -> None:
        queue = fresh_id()
        raw = raw_redis(server)
        for name in ("ranked", "held"):
            raw.zadd(f"{{q:{queue}}}:{name}", {"gone": 1})
        line = Line(parse_address(server.url))

        found = [one for one in examine_queue(line, queue, fix=True) if one.check == "lost jobs"]
        line.close()

        assert len(found) == 2
        assert not raw.exists(f"{{q:{queue}}}:ranked", f"{{q:{queue}}}:held")
