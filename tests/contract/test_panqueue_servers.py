"""Every kind of server: cluster, sentinels, TLS, users with rights of their own, sockets, and forgotten scripts."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import (
    Dedup,
    FlowJob,
    Job,
    Keep,
    Queue,
    QueueClient,
    Rate,
    SyncQueueClient,
    Worker,
    WorkerPool,
    WorkerSettings,
)
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import lines_to_all
from queueyard.panqueue.errors import AccessDenied, ServerUnreachable
from queueyard.panqueue.service import queues
from servers import (
    Server,
    answers,
    cluster,
    eventually,
    find_binary,
    free_port,
    fresh_id,
    in_loop,
    own_server,
    server,
    shared_server,
    tls_in_front_of,
    valkey,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["server", "valkey"]


async def go_through(url: str, queue: Queue[Any, Any] | None = None, jobs: int = 30) -> None:
    """Add, work off, fail and look, all through one URL."""
    queue = queue or Queue(fresh_id(), int, int)
    key = None if queue.mode is None else lambda number: f"k{number % 3}"

    async def handler(job: Job[Any]) -> int:
        if job.payload == 7:
            raise ValueError("seven")
        return int(job.payload) * 2

    async with QueueClient(url) as client, Worker(queue, handler, url=url):
        added = await client.queue(queue).add_many(range(jobs), key=key)
        results = await asyncio.gather(*(job.result(timeout_s=30) for job in added), return_exceptions=True)
        counts = await client.queue(queue).counts()

    assert [one for one in results if not isinstance(one, BaseException)] == [n * 2 for n in range(jobs) if n != 7]
    assert (counts.completed, counts.failed, counts.waiting, counts.active) == (jobs - 1, 1, 0, 0)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Server]]:
    with cluster(3) as made:
        yield made


class TestACluster:
    @in_loop
    async def test_queues_on_every_node_work_through_a_cluster_url(self, nodes: list[Server]) -> None:
        url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

        # Ids that hash to all three nodes, as far as chance allows.
        for number in range(8):
            await go_through(url, Queue(f"cluster-{number}", int, int))

        used = [node for node in nodes if node.call("DBSIZE")]
        assert len(used) == 3

    @in_loop
    async def test_keyed_queues_work_too(self, nodes: list[Server]) -> None:
        url = f"redis+cluster://127.0.0.1:{nodes[1].port}"

        for number in range(3):
            await go_through(url, Queue(f"keyed-{number}", int, int, mode="keyed"))

    @in_loop
    async def test_the_plain_url_of_any_node_is_enough(self, nodes: list[Server]) -> None:
        for number, node in enumerate(nodes):
            await go_through(node.url, Queue(f"plain-{number}", int, int))

    def test_code_without_a_loop_finds_its_node(self, nodes: list[Server]) -> None:
        with SyncQueueClient(nodes[0].url) as client:
            for number in range(6):
                handle = client.queue(f"sync-{number}")
                handle.add({})
                assert handle.counts().waiting == 1

    def test_every_script_touches_one_slot_only(self, nodes: list[Server]) -> None:
        """A cluster refuses a script that leaves its slot, so running each verb once is the test."""
        with SyncQueueClient(nodes[2].url) as client:
            handle = client.queue(Queue("every-verb", mode="dynamic"))
            handle.add_many(range(5), key=str)
            handle.set_key_limit("1", 3)
            handle.switch_events(10)
            handle.jobs("waiting")
            handle.pause()
            handle.resume()
            handle.retry_all()
            handle.remove(handle.jobs("waiting")[0].id)
            assert handle.drain() == 4
            handle.obliterate(confirm="every-verb")

    def test_every_script_of_the_features_touches_one_slot_only(self, nodes: list[Server]) -> None:
        with SyncQueueClient(nodes[1].url) as client:
            handle = client.queue(Queue("features", mode="keyed", key_concurrency=1))
            delayed = handle.add(1, key="k", delay_ms=60_000, expires_ms=60_000, dedup=Dedup("d"))
            handle.schedule("s", 1, every_ms=60_000, key="k")
            handle.pause_schedule("s")
            handle.set_rate(Rate(5), per_key=True)
            handle.cancel(delayed.id)
            assert handle.logs(delayed.id) == []
            handle.obliterate(confirm="features")

    @in_loop
    async def test_flows_and_dead_letters_go_from_node_to_node(self, nodes: list[Server]) -> None:
        url = nodes[0].url
        # Ids that hash to all three nodes, as far as chance allows.
        kids: list[Queue[int, int]] = [
            Queue(f"flow-kids-{number}", int, int, dead_letters=f"flow-dead-{number}") for number in range(6)
        ]
        parents: Queue[Any, Any] = Queue("flow-parents", keep_completed=Keep())

        async def double(job: Job[int]) -> int:
            if job.payload < 0:
                raise ValueError("below zero")
            return job.payload * 2

        async def add_up(job: Job[Any]) -> int:
            return sum(one.result for one in (await job.children()).values())

        async with QueueClient(url) as client:
            pool = WorkerPool([Worker(parents, add_up, url=url), *(Worker(one, double, url=url) for one in kids)])
            await pool.start()
            try:
                flow = FlowJob(parents, None, children=[FlowJob(one, place) for place, one in enumerate(kids)])
                total = await (await client.add_flow(flow)).result(timeout_s=60)
                for one in kids:
                    await client.queue(one).add(-1)

                async def all_are_dead() -> bool:
                    counts = [await client.queue(f"flow-dead-{number}").counts() for number in range(6)]
                    return all(one.waiting == 1 for one in counts)

                await eventually(all_are_dead)
            finally:
                await pool.stop()
            redriven = [await client.queue(f"flow-dead-{number}").redrive() for number in range(6)]

        assert total == sum(range(6)) * 2
        assert redriven == [1] * 6

    def test_all_queues_of_all_nodes_are_found(self, nodes: list[Server]) -> None:
        with SyncQueueClient(nodes[0].url) as client:
            for number in range(6):
                client.queue(f"found-{number}").add({})

        lines = lines_to_all(parse_address(nodes[0].url))
        found = {one for line in lines for one in line.hold(queues())}
        for line in lines:
            line.close()

        assert len(lines) == 3
        assert {f"found-{number}" for number in range(6)} <= found


@contextmanager
def sentinel_of(master: Server, folder: Path) -> Iterator[int]:
    """The port of a sentinel that watches `master` under the name of `mymaster`."""
    port = free_port()
    config = folder / "sentinel.conf"
    config.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
    )
    process = subprocess.Popen(
        [find_binary("valkey"), str(config), "--sentinel"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: answers(port), "the sentinel does not answer")
        yield port
    finally:
        process.kill()
        process.wait()


class TestSentinels:
    @in_loop
    async def test_the_master_is_asked_for_and_a_dead_sentinel_is_passed_over(
        self, valkey: Server, tmp_path: Path
    ) -> None:
        with sentinel_of(valkey, tmp_path) as port:
            await go_through(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/mymaster/0")

    @in_loop
    async def test_an_unknown_service_is_named(self, valkey: Server, tmp_path: Path) -> None:
        with sentinel_of(valkey, tmp_path) as port:
            async with QueueClient(f"redis+sentinel://127.0.0.1:{port}/other") as client:
                with pytest.raises(ServerUnreachable, match="knows no 'other'"):
                    await client.queue("q").add({})


class TestTls:
    @in_loop
    async def test_a_server_behind_tls_works_and_a_stranger_is_refused(self, valkey: Server, tmp_path: Path) -> None:
        with tls_in_front_of(valkey, tmp_path) as (port, authority):
            await go_through(f"rediss://localhost:{port}?ssl_ca_certs={authority}")
            await go_through(f"rediss://localhost:{port}?ssl_cert_reqs=none")
            async with QueueClient(f"rediss://localhost:{port}") as client:
                with pytest.raises(ServerUnreachable, match="certificate verify failed"):
                    await client.queue("q").add({})


class TestUsers:
    @in_loop
    async def test_a_user_with_the_rights_that_the_doctor_names_can_do_everything(self) -> None:
        with own_server() as guarded:
            rules = ("on", ">secret", "~{q:*", "&{q:*", "+@all", "-@dangerous", "+info", "+keys")
            guarded.call("ACL", "SETUSER", "panq", *rules)
            guarded.call("ACL", "SETUSER", "default", "off")

            await go_through(f"redis://panq:secret@127.0.0.1:{guarded.port}")

    @in_loop
    async def test_a_user_of_one_queue_is_kept_out_of_another(self) -> None:
        with own_server() as guarded:
            rules = ("on", ">secret", "~{q:mine}*", "&{q:mine}*", "+@all")
            guarded.call("ACL", "SETUSER", "panq", *rules)
            url = f"redis://panq:secret@127.0.0.1:{guarded.port}"

            await go_through(url, Queue("mine", int, int))
            async with QueueClient(url) as client:
                with pytest.raises(AccessDenied, match="does not permit"):
                    await client.queue("theirs").add({})


class TestConnections:
    @in_loop
    async def test_a_socket_and_a_database_work(self, server: Server) -> None:
        await go_through(server.unix_url)
        await go_through(f"{server.unix_url}?db=3")
        await go_through(f"{server.url}/4")

    @in_loop
    async def test_scripts_that_the_server_forgot_are_sent_again(self, server: Server) -> None:
        queue = Queue(fresh_id(), int, int)

        async def handler(job: Job[int]) -> int:
            server.call("SCRIPT", "FLUSH")
            return job.payload

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url, concurrency=3):
            added = await client.queue(queue).add_many(range(10))
            server.call("SCRIPT", "FLUSH")
            results = await asyncio.gather(*(job.result(timeout_s=30) for job in added))

        assert results == list(range(10))

    @in_loop
    async def test_connections_that_are_cut_are_made_anew(self, server: Server) -> None:
        queue = Queue(fresh_id(), int, int)
        cuts = 0

        async def handler(job: Job[int]) -> int:
            nonlocal cuts
            if job.payload % 5 == 0 and cuts < 3:
                cuts += 1
                server.call("CLIENT", "KILL", "TYPE", "normal")
                server.call("CLIENT", "KILL", "TYPE", "pubsub")
            return job.payload

        # What was claimed by a call whose reply was cut off comes back when its lease is over.
        settings = WorkerSettings(concurrency=3, lease_ms=300, sweep_ms=50)
        async with QueueClient(server.url) as client:
            added = await client.queue(queue).add_many(range(15))
            async with Worker(queue, handler, url=server.url, settings=settings):
                results = await asyncio.gather(*(job.result(timeout_s=30) for job in added))

        assert cuts == 3
        assert results == list(range(15))

    def test_without_hiredis_everything_works_only_slower(self, valkey: Server) -> None:
        program = f"""
import sys
sys.modules["hiredis"] = None
import asyncio
from queueyard.panqueue import Queue, QueueClient, Worker, wire
assert wire.packed is wire.pack
queue = Queue({fresh_id()!r}, int, int)
async def handler(job):
    return job.payload * 2
async def main():
    async with QueueClient({shared_server().url!r}) as client, Worker(queue, handler, url={shared_server().url!r}):
        added = await client.queue(queue).add_many(range(50))
        print(sum(await asyncio.gather(*(job.result(timeout_s=30) for job in added))))
asyncio.run(main())
"""
        import sys

        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

        assert (done.stdout, done.stderr) == ("2450\n", "")
