"""Running jobs through the public API, on a real server: cancel, expiry, progress, logs, steps, dead letters."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import (
    BackoffRule,
    Callbacks,
    Job,
    Keep,
    LeaseLost,
    Queue,
    QueueClient,
    SyncQueueClient,
    Worker,
    WorkerSettings,
)
from queueyard.panqueue.errors import BadQueue, JobFailed, JobOver, NotSerializable, UnknownJob
from scripts import run_script
from servers import Server, eventually, fresh_id, in_loop, raw_redis, server, valkey
from unit.panqueue.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.panqueue.jobs import JobLost

__all__ = ["server", "valkey"]

AT_ONCE = BackoffRule(base_ms=0, cap_ms=0)
#: renewal would notice a lost lease only after minutes
SLOW_RENEWAL = WorkerSettings(lease_ms=600_000, sweep_ms=200)
QUICK_SWEEP = WorkerSettings(sweep_ms=100)


class TestCancel:
    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_a_running_handler_is_really_cancelled_and_its_job_has_failed(
        self, server: Server, mode: str
    ) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode, retries=5)
        started, ended = asyncio.Event(), asyncio.Event()
        lost: list[JobLost] = []

        async def handler(job: Job[Any]) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        callbacks = Callbacks(on_lost=lost.append)
        async with (
            QueueClient(server.url) as client,
            Worker(queue, handler, url=server.url, settings=SLOW_RENEWAL, callbacks=callbacks) as worker,
        ):
            job = await client.queue(queue).add(1, key="k" if mode == "keyed" else None)
            await started.wait()
            await job.cancel(why="not wanted")
            await ended.wait()
            await eventually(lambda: worker.active == 0)
            record = await job.record()
            counts = await client.queue(queue).counts()

        assert (record.status, record.failure_kind, record.failed_reason) == ("failed", "canceled", "not wanted")
        assert [one.phase for one in lost] == ["canceled"]
        assert (counts.active, counts.failed, counts.waiting) == (0, 1, 0)

    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_waiting_and_delayed_jobs_never_run_once_canceled(self, server: Server, mode: str) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode)
        key = "k" if mode == "keyed" else None
        handler = Recorder()
        async with QueueClient(server.url) as client:
            handle = client.queue(queue)
            waiting = await handle.add("waiting", key=key)
            delayed = await handle.add("delayed", key=key, delay_ms=50)
            canceled = await handle.cancel(waiting.id, delayed.id)
            await handle.add("stays", key=key)
            async with Worker(queue, handler, url=server.url):
                await handler.done.wait()
            with pytest.raises(JobFailed, match="canceled"):
                await waiting.result(timeout_s=5)
            with pytest.raises(JobOver, match="already over"):
                await handle.cancel(waiting.id)
            with pytest.raises(UnknownJob):
                await handle.cancel("nobody")

        assert canceled == 2
        assert [job.payload for job in handler.jobs] == ["stays"]

    @in_loop
    async def test_a_handler_in_a_thread_is_told(self, server: Server) -> None:
        queue_id = fresh_id()
        started, told = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> None:
            started.set()
            while True:
                try:
                    job.check()
                except LeaseLost:
                    told.set()
                    return

        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, settings=SLOW_RENEWAL),
        ):
            job = await client.queue(queue_id).add(1)
            await asyncio.to_thread(started.wait)
            await job.cancel()
            await asyncio.to_thread(told.wait)

        assert told.is_set()

    def test_the_command_line_cancels_what_a_blocking_client_added(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()
        with SyncQueueClient(server.url) as client:
            job = client.queue(queue).add(1)
            other = client.queue(queue).add(2)

            told = run_script("panqueue", "cancel", queue, job.id[:12], cwd=tmp_path, REDIS_URL=server.url)
            again = run_script("panqueue", "cancel", queue, job.id, cwd=tmp_path, REDIS_URL=server.url)
            other.cancel(why="too late")

            assert (told.code, told.stdout) == (0, "1 job canceled\n")
            assert (again.code, "already over" in again.stderr) == (1, True)
            assert other.record().failed_reason == "too late"


class TestExpiry:
    @in_loop
    async def test_a_job_that_does_not_start_in_time_fails_and_one_that_started_does_not(self, server: Server) -> None:
        queue_id = fresh_id()
        started, release = asyncio.Event(), asyncio.Event()

        async def handler(_job: Job[Any]) -> None:
            started.set()
            await release.wait()

        async with (
            QueueClient(server.url) as client,
            Worker(queue_id, handler, url=server.url, concurrency=1, settings=QUICK_SWEEP),
        ):
            handle = client.queue(queue_id)
            await handle.add("starts", expires_ms=60_000)
            await started.wait()
            late = await handle.add("late", expires_ms=50)
            with pytest.raises(JobFailed, match="expired before it started"):
                await late.result(timeout_s=30)
            active = (await handle.counts()).active
            record = await late.record()
            release.set()

        assert (active, record.failure_kind) == (1, "expired")


class TestProgressAndLogs:
    @in_loop
    async def test_the_last_word_of_a_handler_is_written_before_its_end(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), keep_completed=Keep())

        async def handler(job: Job[Any]) -> None:
            for number in range(101):
                job.progress({"done": number})
            job.log("all done")

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            handle = client.queue(queue)
            await handle.switch_events()
            job = await handle.add(1)
            await job.result(timeout_s=30)
            record = await job.record()
            lines = await handle.logs(job.id)
            told = [event async for _, event in handle.events() if event.kind == "progressed"]

        assert record.progress == '{"done":100}'
        assert [line.text for line in lines] == ["all done"]
        # A hundred words, and a few of them written down.
        assert 1 <= len(told) <= 3
        assert told[-1].reason == '{"done":100}'

    @in_loop
    async def test_a_failed_attempt_leaves_its_log_and_threads_may_speak(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), retries=1, backoff=AT_ONCE, keep_completed=Keep())

        def handler(job: Job[Any]) -> None:
            job.progress(job.attempt)
            job.log(f"attempt {job.attempt}")
            if job.attempt == 1:
                raise ValueError("once")

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            job = await client.queue(queue).add(1)
            await job.result(timeout_s=30)
            lines = await client.queue(queue).logs(job.id)
            record = await job.record()

        assert [line.text for line in lines] == ["attempt 1", "attempt 2"]
        assert record.progress == "2"

    @in_loop
    async def test_progress_that_json_cannot_hold_fails_the_handler_with_its_path(self, server: Server) -> None:
        queue_id = fresh_id()
        faults: list[BaseException] = []

        async def handler(job: Job[Any]) -> None:
            try:
                job.progress({"a": float("nan")})
            except NotSerializable as fault:
                faults.append(fault)

        async with QueueClient(server.url) as client, Worker(queue_id, handler, url=server.url):
            await client.queue(queue_id).add(1)
            await eventually(lambda: len(faults) == 1)

        assert "progress.a" in str(faults[0])

    def test_logs_on_the_command_line(self, server: Server, tmp_path: Path) -> None:
        queue = fresh_id()
        raw_redis(server).rpush(f"{{q:{queue}}}:logs:j1", "1794722994030 hello")

        told = run_script("panqueue", "logs", queue, "j1", "--json", cwd=tmp_path, REDIS_URL=server.url)

        assert told.json == [{"at_ms": 1794722994030, "text": "hello"}]


class TestSteps:
    @in_loop
    async def test_a_retried_handler_skips_what_is_done(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), retries=3, backoff=AT_ONCE, keep_completed=Keep())
        done: list[str] = []

        async def charge() -> dict[str, int]:
            done.append("charge")
            return {"receipt": 7}

        async def ship() -> None:
            done.append("ship")

        async def handler(job: Job[Any]) -> Any:
            receipt = await job.step("charge", charge)
            if job.attempt < 3:
                raise ValueError("the parcel service is away")
            await job.step("ship", ship)
            return receipt

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            result = await (await client.queue(queue).add(1)).result(timeout_s=30)

        assert (result, done) == ({"receipt": 7}, ["charge", "ship"])

    @in_loop
    async def test_a_plain_function_has_steps_too(self, server: Server) -> None:
        queue: Queue[Any, Any] = Queue(fresh_id(), retries=1, backoff=AT_ONCE, keep_completed=Keep())
        done: list[int] = []

        def work() -> int:
            done.append(1)
            return 41

        def handler(job: Job[Any]) -> Any:
            value = job.step_in_thread("once", work)
            if job.attempt == 1:
                raise ValueError("again")
            return value

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url):
            result = await (await client.queue(queue).add(1)).result(timeout_s=30)

        assert (result, done) == (41, [1])

    @in_loop
    async def test_whoever_lost_his_lease_writes_down_no_step(self, server: Server) -> None:
        queue_id = fresh_id()
        faults: list[BaseException] = []

        async def work() -> int:
            raw_redis(server).hset(f"{{q:{queue_id}}}:job:j1", "lockToken", "somebody else's")
            return 1

        async def handler(job: Job[Any]) -> None:
            try:
                await job.step("s", work)
            except LeaseLost as fault:
                faults.append(fault)

        async with QueueClient(server.url) as client, Worker(queue_id, handler, url=server.url):
            await client.queue(queue_id).add(1, job_id="j1")
            await eventually(lambda: len(faults) == 1)

        assert not raw_redis(server).hexists(f"{{q:{queue_id}}}:job:j1", "step:s")


class TestDeadLetters:
    @pytest.mark.parametrize("mode", ["global", "keyed"])
    @in_loop
    async def test_what_failed_for_good_waits_in_a_queue_of_its_own_and_can_be_sent_back(
        self, server: Server, mode: str
    ) -> None:
        dead = fresh_id("dead")
        queue: Queue[Any, Any] = Queue(fresh_id(), mode=mode, dead_letters=dead, retries=1, backoff=AT_ONCE)
        is_well = asyncio.Event()
        handled = Recorder(wanted=1)

        async def handler(job: Job[Any]) -> None:
            if not is_well.is_set():
                raise ValueError("no luck")
            await handled(job)

        async with QueueClient(server.url) as client, Worker(queue, handler, url=server.url, settings=SLOW_RENEWAL):
            handle, letters = client.queue(queue), client.queue(dead)
            job = await handle.add({"n": 1}, key="k" if mode == "keyed" else None)

            async def has_arrived() -> bool:
                return (await letters.counts()).waiting == 1

            await eventually(has_arrived)
            [letter] = await letters.jobs("waiting")
            with pytest.raises(JobFailed, match="no luck"):
                await job.result(timeout_s=5)
            is_well.set()
            redriven = await letters.redrive()
            await handled.done.wait()
            left = await letters.counts()

        assert letter.id == f"{queue.id}:{job.id}"
        assert letter.payload == '{"n":1}'
        assert '"reason":"no luck"' in (letter.origin or "")
        assert (redriven, left.waiting) == (1, 0)
        assert [(one.id, one.payload) for one in handled.jobs] == [(job.id, {"n": 1})]

    @in_loop
    async def test_a_letter_whose_job_is_gone_is_added_anew(self, server: Server) -> None:
        dead = fresh_id("dead")
        queue: Queue[Any, Any] = Queue(fresh_id(), dead_letters=dead)

        async def handler(_job: Job[Any]) -> None:
            raise ValueError("no luck")

        async with QueueClient(server.url) as client:
            handle, letters = client.queue(queue), client.queue(dead)
            async with Worker(queue, handler, url=server.url, settings=SLOW_RENEWAL):
                job = await handle.add(5, timeout_ms=60_000)

                async def has_arrived() -> bool:
                    return (await letters.counts()).waiting == 1

                await eventually(has_arrived)
            await handle.remove(job.id)
            await letters.redrive(f"{queue.id}:{job.id}")
            record = await job.record()
            with pytest.raises(UnknownJob, match="no dead letter"):
                await letters.redrive("something")

        assert (record.status, record.payload, record.opts) == ("waiting", "5", '{"timeoutMs":60000}')

    def test_redrive_on_the_command_line(self, server: Server, tmp_path: Path) -> None:
        answer = run_script("panqueue", "redrive", fresh_id(), "--all", "--json", cwd=tmp_path, REDIS_URL=server.url)

        assert answer.json["redriven"] == 0

    @pytest.mark.parametrize(
        ("settings", "about"),
        [({"dead_letters": "a"}, "its own"), ({"dead_letters": "b", "keep_failed": None}, "keeps no failed jobs")],
    )
    def test_a_queue_that_cannot_have_dead_letters_is_refused(self, settings: Any, about: str) -> None:
        with pytest.raises(BadQueue, match=about):
            Queue("a", **settings)
