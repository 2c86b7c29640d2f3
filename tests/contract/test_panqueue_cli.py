"""The console script `panqueue`, started as a user does, on a shared server and on its embedded one."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue import Queue, SyncQueueClient
from scripts import Answer, finish, run_script, start_script
from servers import Server, fresh_id, own_server, valkey, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["valkey"]

APP = """
from queueyard.panqueue import Callbacks, Queue, Tasks, Worker, WorkerSettings

tasks = Tasks()

@tasks.task("{queue}", retries=0)
async def greet(name: str) -> str:
    if name == "nobody":
        raise ValueError("who?")
    return f"hello {{name}}"

async def sleep(job):
    import asyncio
    print("started", flush=True)
    await asyncio.sleep(600)

def sleepy():
    return Worker("{queue}", sleep, settings=WorkerSettings(drain_timeout_ms=600_000))

nothing = 7
"""


class Console:
    """`panqueue` with a server and a folder."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.folder = folder
        self._environment = {} if url is None else {"REDIS_URL": url}

    def run(self, *words: str, stdin: str = "") -> Answer:
        return run_script("panqueue", *words, cwd=self.folder, stdin=stdin, **self._environment)

    def start(self, *words: str) -> Any:
        return start_script("panqueue", *words, cwd=self.folder, **self._environment)

    def ok(self, *words: str, stdin: str = "") -> str:
        answer = self.run(*words, stdin=stdin)
        assert answer.code == 0, answer
        return answer.stdout

    def json(self, *words: str, stdin: str = "") -> Any:
        return json.loads(self.ok(*words, "--json", stdin=stdin))

    def json_of(self, answer: Answer) -> Any:
        return json.loads(answer.stdout)


@pytest.fixture
def console(valkey: Server, tmp_path: Path) -> Console:
    return Console(tmp_path, valkey.url)


@pytest.fixture
def queue() -> str:
    return fresh_id("greet")


class TestJobs:
    def test_enqueue_look_and_remove(self, console: Console, queue: str) -> None:
        job_id = console.ok("enqueue", queue, '{"name": "ada"}', "--retries", "2").strip()

        shown = console.json("job", queue, job_id)
        listed = console.ok("jobs", queue)

        assert (shown["payload"], shown["status"], shown["maxRetries"]) == ('{"name":"ada"}', "waiting", 2)
        assert job_id in listed
        assert console.ok("remove", queue, job_id) == "1 job removed\n"
        assert console.run("job", queue, job_id).code == 1

    def test_the_beginning_of_an_id_is_enough(self, console: Console, queue: str) -> None:
        job_id = console.json("enqueue", queue, "1")[0]

        assert f"id: {job_id}\n" in console.ok("job", queue, job_id[:8])

    def test_many_jobs_come_from_stdin_one_per_line(self, console: Console, queue: str) -> None:
        ids = console.json("enqueue", queue, "-", stdin='{"n":1}\n\n{"n":2}\n')

        [counts] = console.json("status", queue)

        assert len(ids) == 2
        assert counts["waiting"] == 2

    def test_what_is_not_json_is_refused(self, console: Console, queue: str) -> None:
        answer = console.run("enqueue", queue, "{oops")

        assert answer.code == 1
        assert answer.stderr.startswith("Error: payload 1 is not JSON")
        assert "Hint: Quote it for the shell" in answer.stderr

    def test_an_id_of_ones_own_is_refused_if_it_is_taken(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "1", "--id", "mine")

        answer = console.run("enqueue", queue, "2", "--id", "mine", "--json")

        assert answer.code == 1
        assert answer.fault["kind"] == "JobExists"


class TestWorking:
    def test_a_worker_runs_tasks_until_it_is_asked_to_stop(self, console: Console, queue: str, valkey: Server) -> None:
        (console.folder / "app.py").write_text(APP.format(queue=queue))
        running = console.start("worker", "app:tasks", "-c", "2")
        with SyncQueueClient(valkey.url) as client:
            handle = client.queue(Queue(queue, dict, str))
            assert handle.add({"name": "ada"}).result(timeout_s=30) == "hello ada"
            handle.add({"name": "nobody"})
            wait_until(lambda: handle.counts().failed == 1, "the job does not fail")

        running.send_signal(signal.SIGTERM)
        answer = finish(running)

        assert answer.code == 0
        assert f"working on {queue}; end with Ctrl-C" in answer.stderr
        assert answer.code == 0, answer
        assert "(REDIS_URL)" in answer.stderr
        assert console.ok("retry", queue, "--all") == "1 job retried\n"

    def test_a_second_signal_hands_back_what_runs(self, console: Console, queue: str, valkey: Server) -> None:
        (console.folder / "app.py").write_text(APP.format(queue=queue))
        console.ok("enqueue", queue, "1")
        running = console.start("worker", "app:sleepy")
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"

        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGTERM)
        answer = finish(running)

        assert answer.code == 0
        assert "1 jobs were handed back" in answer.stderr
        with SyncQueueClient(valkey.url) as client:
            assert client.queue(queue).counts().waiting == 1

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("app", "not MODULE:OBJECT"),
            ("nowhere:tasks", "no module nowhere here"),
            ("app:nobody", "app has no nobody"),
            ("app:nothing", "is a int, not a Worker"),
        ],
    )
    def test_a_target_that_is_none_is_named(self, console: Console, queue: str, target: str, said: str) -> None:
        (console.folder / "app.py").write_text(APP.format(queue=queue))

        answer = console.run("worker", target)

        assert answer.code == 2
        assert said in answer.stderr


class TestQueues:
    def test_status_shows_all_queues_and_which_server(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "1")

        answer = console.run("status")

        assert answer.code == 0, answer
        assert "(REDIS_URL)" in answer.stderr
        [row] = [line for line in answer.stdout.splitlines() if line.startswith(queue)]
        assert row.split()[1:6] == ["1", "0", "0", "0", "0"]

    def test_a_queue_with_foreign_data_does_not_hide_the_others(
        self, console: Console, valkey: Server, queue: str
    ) -> None:
        foreign = fresh_id("foreign")
        console.ok("enqueue", queue, "1")
        valkey.call("SET", f"{{q:{foreign}}}:waiting", "not a list")

        everything, one, metrics = console.run("status"), console.run("status", foreign), console.run("metrics")

        assert everything.code == 0
        assert queue in everything.stdout
        assert f"left out: {foreign} holds" in everything.stderr
        assert metrics.code == 0
        assert f'queue="{queue}"' in metrics.stdout
        assert one.code == 1
        assert "somebody else's data" in one.stderr

    def test_status_can_watch(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "1")
        running = console.start("status", queue, "--watch", "-i", "10ms", "--json")
        assert running.stdout is not None
        views = [json.loads(running.stdout.readline()) for _ in range(3)]
        running.send_signal(signal.SIGINT)

        assert finish(running).code == 0
        assert [view[0]["waiting"] for view in views] == [1, 1, 1]

    def test_pause_drain_clean_and_obliterate(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "-", stdin="1\n2\n3\n")

        assert console.ok("pause", queue) == f"{queue} is paused\n"
        assert console.ok("pause", queue) == f"{queue} is paused, as it was\n"
        assert "paused" in console.ok("status", queue)
        assert console.ok("resume", queue) == f"{queue} is running\n"
        assert console.ok("drain", queue) == "3 jobs removed\n"
        assert console.ok("clean", queue, "--state", "failed") == "0 jobs removed\n"
        assert console.run("obliterate", queue).code == 1
        assert console.ok("obliterate", queue, "--confirm", queue) == "0 jobs removed\n"

    def test_events_can_be_switched_on_and_read(self, console: Console, queue: str) -> None:
        console.ok("events", queue, "--on", "--kept", "50")
        job_id = console.ok("enqueue", queue, "1").strip()

        event = json.loads(console.ok("events", queue, "--json"))

        assert (event["kind"], event["item"], event["actor"]) == ("queued", job_id, "command line")
        assert f"queued     {job_id}  attempt 1" in console.ok("events", queue)
        assert console.ok("events", queue, "--off") == f"events of {queue} are off\n"

    def test_metrics_are_prometheus_text(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "1")

        lines = console.ok("metrics", queue).splitlines()

        assert f'panqueue_jobs{{queue="{queue}",state="waiting"}} 1' in lines
        assert "# TYPE panqueue_jobs gauge" in lines

    def test_a_key_limit_needs_a_dynamic_queue(self, console: Console, queue: str, valkey: Server) -> None:
        assert console.run("key-limit", queue, "a", "2").code == 1
        with SyncQueueClient(valkey.url) as client:
            client.queue(Queue(queue, mode="dynamic")).add({}, key="a")

        assert console.ok("key-limit", queue, "a", "2") == "a: 2\n"
        assert console.ok("key-limit", queue, "a", "none") == "a: as the queue\n"


class TestTheDoctor:
    def test_a_server_without_persistence_and_a_mended_queue_are_told(self, console: Console, queue: str) -> None:
        console.ok("enqueue", queue, "1", "--id", "a")
        with SyncQueueClient(console._environment["REDIS_URL"]) as client:
            client.queue(queue)._line.call("DEL", f"{{q:{queue}}}:job:a")

        first = console.run("doctor", queue)
        fixed = console.json_of(console.run("doctor", queue, "--fix", "--json"))
        after = console.json_of(console.run("doctor", queue, "--json"))

        assert first.code == 1
        assert "1 ids in waiting have no job" in first.stdout
        assert {one["check"]: one["fixed"] for one in fixed} == {"persistence": False, "lost jobs": True}
        assert [one["check"] for one in after] == ["persistence"]

    def test_eviction_foreign_data_and_missing_rights_are_told(self, tmp_path: Path) -> None:
        with own_server("--maxmemory-policy", "allkeys-lru", "--appendonly", "yes") as server:
            server.call("SET", "{q:emails}:waiting", "mine")
            server.call(
                "ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@read", "+@connection", "+eval", "+evalsha"
            )
            console = Console(tmp_path, server.url)
            weak = Console(tmp_path, f"redis://weak:pw@127.0.0.1:{server.port}")

            found = {one["check"]: one for one in console.json_of(console.run("doctor", "emails", "--json"))}
            denied = {one["check"]: one for one in weak.json_of(weak.run("doctor", "other", "--json"))}

        assert "allkeys-lru" in found["eviction"]["problem"]
        assert "is a string, not a list" in found["foreign data"]["problem"]
        assert "permissions" in denied
        assert "pw" not in json.dumps(denied["permissions"]["problem"])


class TestTheEmbeddedServer:
    @pytest.fixture
    def alone(self, tmp_path: Path) -> Iterator[Console]:
        console = Console(tmp_path, None)
        yield console
        console.run("serve", "--stop")

    def test_without_a_url_it_is_started_told_about_and_keeps_its_jobs_over_a_restart(self, alone: Console) -> None:
        first = alone.run("enqueue", "emails", "1")
        second = alone.run("enqueue", "emails", "2")
        stopped = alone.ok("serve", "--stop")
        third = alone.run("status", "--json")

        assert "Started an embedded Valkey in" in first.stderr
        assert "Started" not in second.stderr
        assert stopped.startswith("stopped the server in")
        assert "(embedded)" in third.stderr
        assert json.loads(third.stdout)[0]["waiting"] == 2

    def test_it_keeps_its_jobs_even_when_it_is_killed(self, alone: Console) -> None:
        import os

        served = alone.json("serve", "--background")
        alone.ok("enqueue", "emails", "1")
        os.kill(served["pid"], signal.SIGKILL)
        wait_until(lambda: "no server" in alone.ok("serve", "--stop"), "the server does not die")

        assert json.loads(alone.run("status", "--json").stdout)[0]["waiting"] == 1

    def test_it_serves_in_the_foreground_until_a_signal(self, alone: Console) -> None:
        running = alone.start("serve", "--dir", str(alone.folder / "data"), "--fsync", "always")
        assert running.stdout is not None
        line = running.stdout.readline()

        running.send_signal(signal.SIGTERM)
        answer = finish(running)

        assert line.startswith("serving at unix://")
        assert (answer.code, answer.stderr) == (0, "stopped\n")
        assert (alone.folder / "data" / "appendonlydir").is_dir()

    def test_its_folder_and_socket_are_closed_to_others(self, alone: Console) -> None:
        served = alone.json("serve", "--background", "--dir", str(alone.folder / "data"))
        from pathlib import Path

        socket = Path(served["url"].removeprefix("unix://"))

        assert (alone.folder / "data").stat().st_mode & 0o077 == 0
        assert socket.stat().st_mode & 0o077 == 0
        alone.ok("serve", "--stop", "--dir", str(alone.folder / "data"))

    def test_a_server_that_is_not_there_is_told_with_what_to_do(self, tmp_path: Path) -> None:
        answer = Console(tmp_path, "redis://127.0.0.1:1").run("status")

        assert answer.code == 1
        assert "Error: no answer from 127.0.0.1:1" in answer.stderr
        assert "Hint: Check REDIS_URL" in answer.stderr
