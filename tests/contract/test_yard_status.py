"""`queueyard status`, `add`, `remove` and `list` over real systems."""

from __future__ import annotations

import json
import signal
import socket
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from scripts import finish, run_script, start_script
from servers import Server, fresh_id, own_server, valkey, wait_until
from unit.ops.support.running import running_server
from yards import YardFolder

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository


pytest_plugins = ("jj_fixtures",)
__all__ = ["valkey"]


@pytest.fixture
def yard(tmp_path: Path) -> YardFolder:
    return YardFolder(tmp_path / "yard")


class TestTheList:
    def test_places_come_and_go_and_are_told(self, yard: YardFolder) -> None:
        (yard.root / "lab" / ".runforge").mkdir(parents=True)

        assert yard.ok("add", "runforge", "lab") == f"runforge {yard.root}/lab: added\n"
        assert yard.ok("add", "runforge", "lab") == f"runforge {yard.root}/lab: is listed already\n"
        told = yard.queueyard("list", "--json", cwd=yard.root / "lab").json
        assert told == {
            "root": str(yard.root),
            "places": [{"system": "runforge", "at": f"{yard.root}/lab", "listed": True}],
        }
        assert yard.ok("remove", "runforge", "lab") == f"runforge {yard.root}/lab: removed\n"
        assert yard.json("list")["places"] == []

    def test_what_is_no_place_is_refused_with_what_to_type(self, yard: YardFolder) -> None:
        answer = yard.queueyard("add", "queen", ".", "--json")

        assert answer.code == 1
        assert answer.fault["kind"] == "BadPlace"
        assert "mkdir .beads" in answer.fault["hint"]

    def test_a_yard_without_places_says_how_to_get_some(self, yard: YardFolder) -> None:
        answer = yard.queueyard("status")

        assert (answer.code, answer.stdout) == (0, "")
        assert "queueyard add" in answer.stderr
        assert yard.json("status") == []


class TestTheTable:
    def test_queen(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1")
        yard.queen("ana", "claim", "qy-1")
        yard.queen("ana", "msg", "send", "ben", "hello")

        told = yard.glance("queen")

        assert (told["waiting"], told["running"], told["failed"]) == (1, 1, 0)
        assert (told["health"], told["is_well"], told["problem"]) == ("1 agent", True, None)
        assert told["oldest_wait_s"] >= 0

    def test_a_glance_writes_nothing(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1")
        yard.queen("ana", "msg", "send", "ben", "hello")
        yard.add_sweep("one", "true", [1])
        before = {path: path.stat().st_mtime_ns for path in yard.root.rglob("*") if path.is_file()}

        yard.ok("status")

        after = {path: path.stat().st_mtime_ns for path in yard.root.rglob("*") if path.is_file()}
        assert after == before

    def test_runforge(self, yard: YardFolder) -> None:
        group = yard.add_sweep("one", 'test "$NUMBER" = 1', [1, 2])
        queued = yard.glance("runforge")

        daemon = start_script("runforge-cli", "daemon", cwd=yard.root / "lab")
        yard.runforge("wait", group, "--timeout", "100s")
        served = yard.glance("runforge")
        daemon.send_signal(signal.SIGTERM)
        finish(daemon)

        assert (queued["waiting"], queued["health"], queued["is_well"]) == (2, "no daemon", False)
        assert (served["waiting"], served["failed"], served["health"]) == (0, 1, "daemon running")
        assert served["is_well"]
        assert yard.glance("runforge")["is_well"]

    def test_panqueue(self, yard: YardFolder) -> None:
        with own_server() as server:
            yard.add_server(server)
            yard.panqueue(server, "enqueue", fresh_id("mails"), '{"to": "ana"}')

            told = yard.glance("panqueue")

        assert (told["waiting"], told["running"], told["failed"]) == (1, 0, 0)
        assert (told["health"], told["is_well"]) == ("no workers", False)
        assert told["oldest_wait_s"] >= 0

    def test_jjq(self, yard: YardFolder, repository: Repository) -> None:
        repository.push("good")
        repository.push("bad", {"bad": "x"})
        yard.ok("add", "jjq", str(repository.root))
        queued = yard.glance("jjq")

        repository.jjq("run", "--all")

        told = yard.glance("jjq")
        assert (queued["waiting"], queued["health"], queued["is_well"]) == (2, "no runner", False)
        assert queued["oldest_wait_s"] >= 0
        assert (told["waiting"], told["failed"], told["is_well"]) == (0, 1, True)

    def test_ops_by_its_server_and_by_a_clients_home(self, yard: YardFolder, tmp_path: Path) -> None:
        notes = yard.root / "notes"
        notes.mkdir()
        (notes / "a.md").write_text("a\n", encoding="utf-8")
        home = {"JOLLI_HOME": str(yard.root / "jolli")}
        with running_server(tmp_path / "server") as server:
            run_script("jolli-ops", "plan", "--server", server.url, cwd=notes, **home)
            yard.ok("add", "ops", server.url)
            yard.ok("add", "ops", "jolli")
            up, client = yard.json("status")
        down, _ = yard.json("status")

        assert (up["health"], up["is_well"], up["waiting"]) == ("server up", True, 0)
        assert (client["waiting"], client["health"]) == (1, "1 folder")
        assert (down["health"], down["is_well"]) == ("not reachable", False)
        assert "no answer" in down["problem"]


class TestBadPlaces:
    def test_they_are_told_and_keep_nobody_waiting(self, yard: YardFolder) -> None:
        yard.add_queen("qy-1")
        (yard.root / "gone" / ".runforge").mkdir(parents=True)
        yard.ok("add", "runforge", "gone")
        (yard.root / "gone" / ".runforge").rmdir()
        (yard.root / "gone").rmdir()
        with own_server() as server:
            yard.add_server(server)
            server.freeze()

            told = {one["system"]: one for one in yard.json("status")}

        assert "queueyard remove runforge" in told["runforge"]["problem"]
        assert told["panqueue"]["health"] == "not reachable"
        assert "no answer" in told["panqueue"]["problem"]
        assert told["queen"]["is_well"]

    def test_who_speaks_something_else_is_told_so(self, yard: YardFolder) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            Thread(target=_answer_as_a_web_server, args=(listener,), daemon=True).start()
            yard.ok("add", "panqueue", f"redis://127.0.0.1:{listener.getsockname()[1]}")

            told = yard.glance("panqueue")

        assert "does not speak as a Redis does" in told["problem"]

    def test_a_password_is_in_no_output(self, yard: YardFolder, valkey: Server) -> None:
        yard.ok("add", "panqueue", f"redis://ana:hunter2@127.0.0.1:{valkey.port}")

        answers = [yard.queueyard(*words) for words in (("list",), ("status",), ("status", "--json"), ("events",))]

        assert all("hunter2" not in answer.stdout + answer.stderr for answer in answers)


def test_watch_shows_changes_until_it_is_interrupted(yard: YardFolder) -> None:
    yard.add_queen("qy-1")
    watching = yard.start("status", "--watch", "--interval", "100ms", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())

    yard.queen("ana", "claim", "qy-1")

    seen = [first[0]["running"]]
    wait_until(lambda: _next_running(watching.stdout, seen) == 1, "the change is not shown", 60.0)
    watching.send_signal(signal.SIGINT)
    answer = finish(watching)
    assert first[0]["running"] == 0
    assert (answer.code, answer.stderr) == (0, "")


def _answer_as_a_web_server(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(1_000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def _next_running(stream: object, seen: list[int]) -> int:
    seen.append(json.loads(stream.readline())[0]["running"])  # type: ignore[attr-defined]
    return seen[-1]
