"""Systems that work together: runs on panqueue workers, news of jjq through queen, reservations before a push."""

from __future__ import annotations

from contextlib import contextmanager
import json
from pathlib import Path
import signal
from typing import TYPE_CHECKING, Any

import pytest

from scripts import finish, run_script, start_script
from servers import Server, durable_server, own_server, wait_until
from yards import YardFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    import subprocess

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)
PATIENCE_S = 120.0
_WORKER = "queueyard.yard.bridges.runs:worker"


@pytest.fixture
def yard(tmp_path: Path) -> YardFolder:
    return YardFolder(tmp_path / "yard")


@pytest.fixture
def server(yard: YardFolder) -> Iterator[Server]:
    with own_server() as server:
        yard.add_server(server)
        yield server


@contextmanager
def worker(yard: YardFolder, server: Server) -> Iterator[subprocess.Popen[str]]:
    running = start_script("panqueue", "worker", _WORKER, "--url", server.url, cwd=yard.root)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        finish(running)


@contextmanager
def daemon(yard: YardFolder) -> Iterator[subprocess.Popen[str]]:
    running = start_script("runforge-cli", "daemon", "--executor", "panqueue", cwd=yard.root / "lab")
    try:
        yield running
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        finish(running)


def run_folder(yard: YardFolder, number: int) -> Path:
    return sorted((yard.root / "lab" / ".ml" / "runs").iterdir())[number]


def looks_after(yard: YardFolder, pid: int) -> int:
    """How many runs the daemon with this pid has."""
    told = json.loads((yard.root / "lab" / ".runforge" / "queue" / "daemon.json").read_bytes())
    return int(told["active_jobs"]) if told["pid"] == pid else 0


def result(folder: Path) -> Any:
    return json.loads((folder / "result.json").read_bytes())


class TestRunsOnWorkers:
    def test_files_and_states_are_those_of_a_local_run(self, yard: YardFolder, server: Server) -> None:
        group = yard.add_sweep("rates", 'echo "number $NUMBER of $RUNFORGE_RUN_ID"; exit $NUMBER', [0, 3])
        with worker(yard, server), daemon(yard):
            yard.runforge("wait", group, "--timeout", "100s")

        good, bad = run_folder(yard, 0), run_folder(yard, 1)
        assert [result(one)["status"] for one in (good, bad)] == ["succeeded", "failed"]
        assert result(bad)["queueyard"]["exit_code"] == 3
        assert result(bad)["effective_config"]["command"][0] == "sh"
        assert (good / "logs.txt").read_text().splitlines() == [
            "[RF:STAGE=STARTING]",
            f"number 0 of {good.name}",
            "[RF:STAGE=COMPLETED]",
        ]

    def test_a_run_outlives_its_daemon_and_is_adopted_by_the_next(self, yard: YardFolder, server: Server) -> None:
        group = yard.add_sweep("one", "echo once >> ran; while ! test -e go; do sleep 0.1; done", [1])
        lab = yard.root / "lab"
        with worker(yard, server):
            with daemon(yard) as first:
                wait_until((lab / "ran").exists, "the run did not start", PATIENCE_S)
                first.send_signal(signal.SIGKILL)
            with daemon(yard) as second:
                wait_until(lambda: looks_after(yard, second.pid) == 1, "the run was not adopted", PATIENCE_S)
                (lab / "go").touch()
                done = yard.runforge("wait", group, "--timeout", "100s")

        assert done.code == 0, done
        assert (lab / "ran").read_text() == "once\n"
        assert result(run_folder(yard, 0))["status"] == "succeeded"

    def test_a_run_that_is_canceled_ends_where_it_runs(self, yard: YardFolder, server: Server) -> None:
        group = yard.add_sweep("one", "echo $$ > pid; exec sleep 600", [1])
        lab = yard.root / "lab"
        with worker(yard, server), daemon(yard):
            wait_until(lambda: (lab / "pid").exists() and (lab / "pid").read_text() != "", "no start", PATIENCE_S)
            yard.runforge("cancel-group", "--group-id", group, "--running")
            yard.runforge("wait", group, "--timeout", "100s")

            pid = (lab / "pid").read_text().strip()
            wait_until(lambda: not Path("/proc", pid).exists(), "it still runs", PATIENCE_S)
        assert result(run_folder(yard, 0))["status"] == "cancelled"

    def test_a_worker_that_stops_hands_its_run_to_another(self, yard: YardFolder, server: Server) -> None:
        group = yard.add_sweep("one", "echo start >> ran; while ! test -e go; do sleep 0.1; done", [1])
        lab = yard.root / "lab"
        with daemon(yard):
            with worker(yard, server) as first:
                wait_until((lab / "ran").exists, "the run did not start", PATIENCE_S)
                # Twice: what runs is not waited for.
                first.send_signal(signal.SIGTERM)
                first.send_signal(signal.SIGTERM)
                first.wait(PATIENCE_S)
            with worker(yard, server):
                wait_until(lambda: (lab / "ran").read_text() == "start\nstart\n", "nobody took it over", PATIENCE_S)
                (lab / "go").touch()
                done = yard.runforge("wait", group, "--timeout", "100s")

        assert done.code == 0, done
        assert result(run_folder(yard, 0))["queueyard"]["attempt"] == 1

    def test_a_run_outlives_its_server(self, yard: YardFolder, tmp_path: Path) -> None:
        (tmp_path / "valkey").mkdir()
        group = yard.add_sweep("one", "echo once >> ran; while ! test -e go; do sleep 0.1; done", [1])
        lab = yard.root / "lab"
        with durable_server(tmp_path / "valkey") as server:
            yard.add_server(server)
            with worker(yard, server), daemon(yard):
                wait_until((lab / "ran").exists, "the run did not start", PATIENCE_S)
                server.kill()
                server.start()
                (lab / "go").touch()
                done = yard.runforge("wait", group, "--timeout", "100s")

        assert done.code == 0, done
        assert (lab / "ran").read_text() == "once\n"

    def test_without_a_server_the_run_fails_and_says_why(self, yard: YardFolder) -> None:
        group = yard.add_sweep("one", "true", [1])
        with daemon(yard):
            yard.runforge("wait", group, "--timeout", "100s")

        assert "queueyard add panqueue" in (run_folder(yard, 0) / "logs.txt").read_text()
        assert result(run_folder(yard, 0))["status"] == "failed"

    def test_a_person_who_types_it_is_told_what_it_is_for(self, yard: YardFolder) -> None:
        answer = yard.queueyard("bridge", "executor", "panqueue", "--", "true")

        assert answer.code == 1
        assert "runforge-cli daemon --executor panqueue" in answer.stderr


class TestJjqAndQueen:
    @pytest.fixture
    def agents(self, repository: Repository) -> Repository:
        """A repository whose agents talk through queen; .beads is in no change."""
        (repository.root / ".beads").mkdir()
        (repository.root / ".beads" / ".gitignore").write_text("*\n", encoding="utf-8")
        (repository.root / ".beads" / "issues.jsonl").write_text('{"id":"qy-1","status":"open"}\n', encoding="utf-8")
        repository.environment["QUEEN_AGENT"] = "ana"
        return repository

    def queen(self, repository: Repository, *words: str) -> Any:
        answer = run_script("queen", *words, "--json", cwd=repository.root, QUEEN_AGENT="ana")
        assert answer.code == 0, answer
        return answer.json

    def test_an_agent_is_told_what_became_of_its_change(self, agents: Repository) -> None:
        self.queen(agents, "claim", "qy-1")
        agents.push("qy-1: a button")
        agents.push("qy-1: a bad one", {"bad": "x"})
        agents.push("for nobody")

        agents.jjq("run", "--all", JJQ_AFTER_ITEM="queueyard bridge notify")

        told = self.queen(agents, "msg", "inbox")
        assert [(one["from"], one["subject"], one["issue_id"], one["importance"]) for one in told] == [
            ("queen", "failed: qy-1: a bad one", "qy-1", "high"),
            ("queen", "landed: qy-1: a button", "qy-1", "normal"),
        ]
        assert "jjq status 2" in told[0]["body"]

    def test_news_that_nobody_takes_change_nothing(self, agents: Repository) -> None:
        agents.push("good")

        answer = agents.jjq("run", JJQ_AFTER_ITEM="no-such-program")

        assert answer.code == 0
        assert "nobody was told about item 1" in answer.stderr

    def test_a_push_needs_a_reservation_where_that_is_wanted(self, agents: Repository) -> None:
        agents.environment["JJQ_BEFORE_PUSH"] = "queueyard bridge guard"
        agents.change("a button", {"src/button.txt": "x\n", "src/theme.txt": "y\n"})

        refused = agents.jjq("push", "@")
        self.queen(agents, "reserve", "src/button.txt")
        half = agents.jjq("push", "@")
        self.queen(agents, "reserve", "src/**")
        allowed = agents.jjq("push", "@")

        assert (refused.code, half.code, allowed.code) == (1, 1, 0)
        assert "ana has not reserved src/button.txt, src/theme.txt" in refused.stderr
        assert "ana has not reserved src/theme.txt" in half.stderr
        assert [item["id"] for item in agents.json("status")["queue"]] == [1]

    def test_without_the_setting_nobody_is_asked_and_nobody_told(self, agents: Repository) -> None:
        self.queen(agents, "claim", "qy-1")
        agents.push("qy-1: a button")
        agents.ok("run")

        assert self.queen(agents, "msg", "inbox") == []
