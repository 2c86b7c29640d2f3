"""Workers whose queues have executors, on a real server: the parent claims and finishes what its children run."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from typing import TYPE_CHECKING, Any

import pytest

from executor_crews import need_a_sandbox, until_there
import executor_handlers as handlers
from queueyard.kernel.proc import identity_of, wait_for_exit
from queueyard.panqueue import BackoffRule, Queue, QueueClient, Tasks, Worker, WorkerPool, WorkerSettings
from queueyard.panqueue.errors import JobFailed
from queueyard.panqueue.executors import Policy, PoolSettings, Sandbox, Subprocess
from queueyard.panqueue.executors.errors import BadHandler, PolicyRefused
from queueyard.panqueue.executors.machine import Machine
from servers import Server, eventually, fresh_id, in_loop, valkey

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.panqueue.executors.crew import Executor

__all__ = ["valkey"]

AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)
#: can hold nothing
POOR = Machine(bubblewrap=None, trouble="nothing is here", landlock=0, seccomp=False, is_root=False)


@pytest.fixture(params=["subprocess", "sandbox"])
def executor(request: pytest.FixtureRequest, tmp_path: Path) -> Executor:
    settings = PoolSettings(cancel_grace_s=0.2, term_grace_s=0.1)
    if request.param == "subprocess":
        return Subprocess(settings)
    need_a_sandbox()
    return Sandbox(Policy(write=(str(tmp_path),)), settings)


@in_loop
async def test_jobs_run_in_children_and_their_results_are_kept(valkey: Server, executor: Executor) -> None:
    queue = Queue(fresh_id(), handlers.Sum, handlers.Total, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.add, url=valkey.url, concurrency=2):
        jobs = await client.queue(queue).add_many([handlers.Sum(a, 1) for a in range(20)])

        assert [await job.result(timeout_s=60) for job in jobs] == [handlers.Total(a + 1) for a in range(20)]


@in_loop
async def test_a_job_whose_child_dies_is_tried_again(valkey: Server, executor: Executor) -> None:
    queue = Queue(fresh_id(), str, int, retries=1, backoff=AT_ONCE, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.leave_at_first, url=valkey.url):
        job = await client.queue(queue).add("")

        assert await job.result(timeout_s=60) == 2
        assert "exit code 3" in ((await job.record()).last_error or "")


@in_loop
async def test_a_handler_that_ignores_its_time_out_is_killed(
    valkey: Server, executor: Executor, tmp_path: Path
) -> None:
    queue = Queue(fresh_id(), str, str, timeout_ms=500, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.ignore_cancellation, url=valkey.url) as worker:
        job = await client.queue(queue).add(str(tmp_path / "here"))

        with pytest.raises(JobFailed, match=r"timed out after 0\.5 s"):
            await job.result(timeout_s=60)
        await eventually(lambda: _pids(worker) == [])


@in_loop
async def test_a_canceled_job_ends_its_child(valkey: Server, executor: Executor, tmp_path: Path) -> None:
    queue = Queue(fresh_id(), str, str, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.ignore_cancellation, url=valkey.url) as worker:
        job = await client.queue(queue).add(str(tmp_path / "here"))
        await until_there(tmp_path / "here")

        await job.cancel()

        await eventually(lambda: _pids(worker) == [])
        with pytest.raises(JobFailed):
            await job.result(timeout_s=60)


@in_loop
async def test_a_stop_without_patience_ends_children_and_hands_their_jobs_back(
    valkey: Server, executor: Executor, tmp_path: Path
) -> None:
    queue = Queue(fresh_id(), str, str, executor=executor)
    async with QueueClient(valkey.url) as client:
        worker = Worker(queue, handlers.ignore_cancellation, url=valkey.url)
        await worker.start()
        job = await client.queue(queue).add(str(tmp_path / "here"))
        await until_there(tmp_path / "here")
        there = [found for pid in _pids(worker) if (found := identity_of(pid)) is not None]

        stopped = await worker.stop(drain=False)

        assert stopped.handed_back == 1
        assert there
        assert all(wait_for_exit(one, 0) for one in there)
        assert (await job.record()).status == "waiting"


@in_loop
async def test_a_drain_waits_for_the_child(valkey: Server, executor: Executor, tmp_path: Path) -> None:
    queue = Queue(fresh_id(), str, str, executor=executor)
    async with QueueClient(valkey.url) as client:
        worker = Worker(queue, handlers.wait_for_leave, url=valkey.url)
        await worker.start()
        job = await client.queue(queue).add(str(tmp_path / "here"))
        await until_there(tmp_path / "here")

        stopping = asyncio.ensure_future(worker.stop())
        await eventually(lambda: worker.state == "draining")
        (tmp_path / "here.leave").touch()
        stopped = await stopping

        assert (stopped.timed_out, stopped.handed_back) == (False, 0)
        assert await job.result(timeout_s=60) == "left"


@in_loop
async def test_a_drain_that_takes_too_long_asks_the_child_to_end_and_hands_its_job_back(
    valkey: Server, executor: Executor, tmp_path: Path
) -> None:
    queue = Queue(fresh_id(), str, str, executor=executor)
    async with QueueClient(valkey.url) as client:
        worker = Worker(queue, handlers.stay, url=valkey.url, settings=WorkerSettings(drain_timeout_ms=300))
        await worker.start()
        job = await client.queue(queue).add(str(tmp_path / "here"))
        await until_there(tmp_path / "here")

        stopped = await worker.stop()

        assert (stopped.timed_out, stopped.handed_back) == (True, 1)
        assert (await job.record()).status == "waiting"


@in_loop
async def test_what_a_handler_says_reaches_the_server(valkey: Server, executor: Executor) -> None:
    queue = Queue(fresh_id(), str, str, retries=1, backoff=AT_ONCE, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.speak, url=valkey.url):
        handle = client.queue(queue)
        job = await handle.add("")

        done = await job.result(timeout_s=60)

        assert done == (await job.record()).last_error, "the second attempt was given the first one's step"
        assert [line.text for line in await handle.logs(job.id)] == ["attempt 1", "attempt 2"]


@in_loop
async def test_a_plain_function_can_have_steps_and_a_log(valkey: Server, executor: Executor) -> None:
    queue = Queue(fresh_id(), str, int, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.speak_plainly, url=valkey.url):
        job = await client.queue(queue).add("")

        assert await job.result(timeout_s=60) == 7


@in_loop
async def test_children_that_are_killed_at_random_lose_no_job(valkey: Server, executor: Executor) -> None:
    chance = random.Random(11)
    queue = Queue(fresh_id(), handlers.Sum, handlers.Total, retries=100, backoff=AT_ONCE, executor=executor)
    async with QueueClient(valkey.url) as client, Worker(queue, handlers.add, url=valkey.url, concurrency=3) as worker:
        handle = client.queue(queue)
        killed = 0
        for batch in range(6):
            jobs = await handle.add_many([handlers.Sum(batch, one) for one in range(20)])
            await eventually(lambda: _pids(worker) != [])
            os.kill(chance.choice(_pids(worker)), signal.SIGKILL)
            killed += 1
            results = [await job.result(timeout_s=60) for job in jobs]

            assert results == [handlers.Total(batch + one) for one in range(20)]
        counts = await handle.counts()

    assert killed == 6
    assert (counts.failed, counts.waiting, counts.active) == (0, 0, 0)


@in_loop
async def test_a_task_has_an_executor_of_its_own(valkey: Server) -> None:
    tasks = Tasks(valkey.url)
    name = fresh_id()
    task = tasks.task(name, executor=Subprocess())(handlers.multiply.function)
    async with tasks, tasks.pool():
        job = await task.add(a=4, b=5)

        assert await job.result(timeout_s=60) == 20


@in_loop
async def test_a_worker_does_not_start_if_its_policy_cannot_be_enforced(valkey: Server) -> None:
    queue: Queue[Any, Any] = Queue(fresh_id(), executor=Sandbox(Policy(), machine=POOR))
    async with QueueClient(valkey.url) as client:
        job = await client.queue(queue).add(None)
        worker = Worker(queue, handlers.add, url=valkey.url)

        with pytest.raises(PolicyRefused, match="needs seccomp"):
            await worker.start()

        assert (await job.record()).status == "waiting"
        assert worker.state == "idle"


@in_loop
async def test_a_pool_of_workers_ends_the_others_if_one_cannot_start(valkey: Server) -> None:
    good = Worker(Queue(fresh_id(), executor=Subprocess()), handlers.pid, url=valkey.url)
    bad = Worker(Queue(fresh_id(), executor=Subprocess()), lambda _: None, url=valkey.url)

    with pytest.raises(BadHandler):
        await WorkerPool([good, bad]).start()

    assert (good.state, bad.state) == ("stopped", "stopped")


def _pids(worker: Worker) -> list[int]:
    runner = worker._runner
    assert runner is not None
    assert runner._crew is not None
    return runner._crew.pool.pids
