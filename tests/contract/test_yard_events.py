"""`queueyard events` and `queueyard trace` over real systems, while they work."""

from __future__ import annotations

import json
from queue import Empty, Queue
import signal
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import pytest

from scripts import finish, run_script
from servers import durable_server, fresh_id, own_server
from unit.ops.support.running import running_server
from yards import YardFolder

if TYPE_CHECKING:
    from pathlib import Path
    import subprocess

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)
PATIENCE_S = 90.0

Record = dict[str, Any]


@pytest.fixture
def yard(tmp_path: Path) -> YardFolder:
    return YardFolder(tmp_path / "yard")


class Follower:
    """`queueyard events --follow --json`, read as it comes."""

    def __init__(self, yard: YardFolder, *words: str) -> None:
        self._process = yard.start("events", "--follow", "--json", *words)
        self._lines: Queue[str] = Queue()
        self.seen: list[Record] = []
        assert self._process.stdout is not None
        Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)

    def until(self, **wanted: object) -> Record:
        """The next event with these fields."""
        while True:
            try:
                event: Record = json.loads(self._lines.get(timeout=PATIENCE_S))
            except Empty:
                pytest.fail(f"no event {wanted} came; seen: {self.seen}")
            self.seen.append(event)
            if all(event.get(name) == value for name, value in wanted.items()):
                return event

    def stop(self) -> subprocess.Popen[str]:
        self._process.send_signal(signal.SIGINT)
        return self._process


def events(yard: YardFolder, *words: str) -> list[Record]:
    return [json.loads(line) for line in yard.ok("events", "--json", *words).splitlines()]


class TestHistory:
    def test_events_of_all_places_come_in_the_order_of_time(self, yard: YardFolder, repository: Repository) -> None:
        yard.add_queen("qy-1")
        yard.queen("ana", "claim", "qy-1")
        repository.push("first")
        yard.ok("add", "jjq", str(repository.root))
        yard.add_sweep("rates", "true", [1])
        yard.queen("ana", "complete", "qy-1")

        told = events(yard)

        assert [(one["system"], one["kind"]) for one in told] == [
            ("queen", "started"),
            ("jjq", "queued"),
            ("runforge", "queued"),
            ("queen", "succeeded"),
        ]
        assert len({one["id"] for one in told}) == 4

    def test_only_what_is_wanted_is_shown(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1", "qy-2")
        yard.queen("ana", "claim", "qy-1")
        yard.queen("ana", "claim", "qy-2")
        yard.add_sweep("rates", "true", [1])

        assert [one["system"] for one in events(yard, "--system", "runforge")] == ["runforge"]
        assert [one["group"] for one in events(yard, "--system", "queen", "--limit", "1")] == ["qy-2"]
        assert events(yard, "--since", "2020-01-01") == events(yard)
        assert events(yard, "--since", "2099-01-01") == []
        assert yard.queueyard("events", "--since", "soon").code == 1

    def test_a_queue_that_records_nothing_and_a_place_that_is_gone_are_told(self, yard: YardFolder) -> None:
        with own_server() as server:
            yard.add_server(server)
            queue = fresh_id("mails")
            yard.panqueue(server, "enqueue", queue, "1")
            silent = yard.queueyard("events", "--json")
        gone = yard.queueyard("events", "--json")

        assert (silent.code, silent.stdout) == (0, "")
        assert f"panqueue events {queue} --on" in silent.warnings[0]
        assert (gone.code, gone.stdout) == (0, "")
        assert "no answer" in gone.warnings[0]


class TestFollowing:
    def test_files_are_told_as_they_grow_and_ctrl_c_ends_it_well(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1")
        yard.queen("ana", "claim", "qy-1")
        group = yard.add_sweep("rates", "true", [1])
        follower = Follower(yard)
        follower.until(system="runforge", kind="queued", group=group)

        yard.queen("ana", "msg", "send", "ben", "hello")
        follower.until(system="queen", kind="queued", actor="ana")
        yard.runforge("cancel-group", "--group-id", group)
        follower.until(system="runforge", kind="canceled", group=group)

        answer = finish(follower.stop())
        assert (answer.code, answer.stderr) == (0, "")
        ids = [event["id"] for event in follower.seen]
        assert len(ids) == len(set(ids))

    def test_a_redis_that_was_killed_is_read_on_when_it_is_back(self, yard: YardFolder, tmp_path: Path) -> None:
        folder = tmp_path / "valkey"
        folder.mkdir()
        with durable_server(folder) as server:
            queue = fresh_id("mails")
            yard.add_server(server)
            yard.panqueue(server, "events", queue, "--on")
            yard.panqueue(server, "enqueue", queue, "1", "--id", "one")
            follower = Follower(yard)
            follower.until(system="panqueue", queue=queue, item="one", kind="queued")

            server.kill()
            server.start()
            yard.panqueue(server, "enqueue", queue, "2", "--id", "two")

            follower.until(system="panqueue", queue=queue, item="two", kind="queued")
            finish(follower.stop())
        assert [event["item"] for event in follower.seen] == ["one", "two"]

    def test_the_feed_of_a_server_is_followed_and_read_on_after_a_restart(
        self, yard: YardFolder, tmp_path: Path
    ) -> None:
        notes = yard.root / "notes"
        notes.mkdir()
        home = {"JOLLI_HOME": str(tmp_path / "jolli")}
        with running_server(tmp_path / "server") as server:
            yard.ok("add", "ops", server.url)
            follower = Follower(yard)
            for number in (1, 2):
                (notes / f"{number}.md").write_text("text\n", encoding="utf-8")
                pushed = run_script("jolli-ops", "push", "--server", server.url, cwd=notes, **home)
                assert pushed.code == 0, pushed
                event = follower.until(system="ops", kind="succeeded")
                assert event["data"]["path"] == f"{number}.md"
                if number == 1:
                    server.kill()
                    server.start()
            finish(follower.stop())


class TestTrace:
    def test_one_issue_through_all_systems(self, yard: YardFolder, repository: Repository, tmp_path: Path) -> None:
        yard.add_queen("qy-1", "qy-2")
        yard.queen("ana", "claim", "qy-1")
        yard.queen("ben", "claim", "qy-2")
        group = yard.add_sweep("rates for qy-1", "true", [1, 2])
        repository.push("qy-1: a button")
        repository.push("qy-2: a door")
        repository.jjq("run", "--all")
        yard.ok("add", "jjq", str(repository.root))
        notes = yard.root / "notes"
        notes.mkdir()
        (notes / "a.md").write_text("a\n", encoding="utf-8")
        home = {"JOLLI_HOME": str(yard.root / "jolli")}
        with running_server(tmp_path / "server") as server, own_server() as redis:
            push = ("push", "--server", server.url, "-m", "docs of qy-1")
            assert run_script("jolli-ops", *push, cwd=notes, **home).code == 0
            yard.ok("add", "ops", server.url)
            yard.ok("add", "ops", "jolli")
            queue = fresh_id("mails")
            yard.add_server(redis)
            yard.panqueue(redis, "events", queue, "--on")
            yard.panqueue(redis, "enqueue", queue, '{"about": "qy-1"}', "--id", "mine")
            yard.panqueue(redis, "enqueue", queue, '{"about": "qy-2"}', "--id", "other")

            told = yard.json("trace", "qy-1")
            from_the_run = yard.json("trace", group)

        assert set(told["ids"]) == {"queen", "runforge", "jjq", "ops", "panqueue"}
        subjects = {one["data"].get("subject") for one in told["events"] if one["system"] == "jjq"}
        assert subjects == {"qy-1: a button", None}
        assert {one["item"] for one in told["events"] if one["system"] == "panqueue"} == {"mine"}
        assert [one["kind"] for one in told["events"] if one["system"] == "jjq"] == ["queued", "started", "succeeded"]
        assert from_the_run["events"] == told["events"]

    def test_what_nobody_knows_is_an_error(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1")

        answer = yard.queueyard("trace", "qy-99", "--json")

        assert (answer.code, answer.fault["kind"]) == (1, "UnknownWork")
