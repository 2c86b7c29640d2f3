"""Many agents at once: ids are unique, nothing is conflicted or divergent, and only one run is under way."""

from __future__ import annotations

from collections import Counter
import os
from queue import SimpleQueue
import threading
from typing import TYPE_CHECKING

from scripts import Answer, finish

if TYPE_CHECKING:
    import subprocess

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

WORKSPACES, PUSHES, RUNS = 6, 5, 12


class Agent(threading.Thread):
    """Works in a workspace of its own: changes, plain jj commands, and pushes, as fast as it can."""

    def __init__(self, repository: Repository, number: int) -> None:
        super().__init__()
        self.repository = repository
        self.number = number
        self.answers: list[Answer] = []

    def run(self) -> None:
        for count in range(PUSHES):
            change = self.repository.change(f"agent {self.number} push {count}")
            answer = self.repository.jjq("push", change, "--json", JJQ_LOCK_TIMEOUT_S="120")
            self.answers.append(answer)


class Bystander(threading.Thread):
    """A user who does nothing with jjq, but runs jj all the time."""

    def __init__(self, repository: Repository) -> None:
        super().__init__()
        self.repository = repository
        self.stop = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self.stop.is_set():
            (self.repository.root / "notes.txt").write_text(f"{self.count}\n", encoding="utf-8")
            self.repository.jj("describe", "--quiet", "-m", f"note {self.count}")
            self.count += 1


def test_thirty_pushes_from_six_workspaces_get_thirty_ids(repository: Repository) -> None:
    agents = [Agent(repository.add_workspace(f"agent-{number}"), number) for number in range(WORKSPACES)]
    bystander = Bystander(repository)

    bystander.start()
    for agent in agents:
        agent.start()
    for agent in agents:
        agent.join()
    bystander.stop.set()
    bystander.join()

    answers = [answer for agent in agents for answer in agent.answers]
    assert [answer.stderr for answer in answers if answer.code] == []
    told = {answer.json["id"]: answer.json["change_id"] for answer in answers}
    assert sorted(told) == list(range(1, WORKSPACES * PUSHES + 1))
    queued = repository.bookmarks("glob:jjq/queue/*")
    assert {name: repository.one(target, "change_id") for name, target in queued.items()} == {
        f"jjq/queue/{number:06}": change for number, change in told.items()
    }
    assert repository.file("last_id", "jjq/_/_") == str(WORKSPACES * PUSHES)
    assert repository.violations() == []
    assert bystander.count > 0


def test_of_twelve_runs_at_once_one_runs_and_eleven_refuse(repository: Repository) -> None:
    go = repository.home / "go"
    os.mkfifo(go)
    repository.ok("config", "check_command", f"cat {go}")
    repository.push("wanted")
    ended: SimpleQueue[Answer] = SimpleQueue()

    def collect(running: subprocess.Popen[str]) -> None:
        ended.put(finish(running))

    waiters = [threading.Thread(target=collect, args=(repository.start_jjq("run"),)) for _ in range(RUNS)]
    for waiter in waiters:
        waiter.start()
    refused = [ended.get(timeout=60) for _ in range(RUNS - 1)]
    with go.open("w"):
        pass
    landed = ended.get(timeout=60)
    for waiter in waiters:
        waiter.join()

    assert Counter(answer.code for answer in refused) == {1: RUNS - 1}
    assert all("the run lock is held by another process" in answer.stderr for answer in refused)
    assert landed.code == 0
    assert repository.files() == ["base.txt", "wanted.txt"]
    assert repository.violations() == []


def test_pushes_and_deletes_during_a_run_are_seen_by_it(repository: Repository) -> None:
    go = repository.home / "go"
    os.mkfifo(go)
    repository.ok("config", "check_command", f"test -e second.txt || cat {go}")
    repository.push("first")
    repository.push("unwanted")
    running = repository.start_jjq("run", "--all")

    with go.open("w"):
        repository.push("second")
        repository.ok("delete", "2")

    assert finish(running).code == 0
    assert repository.files() == ["base.txt", "first.txt", "second.txt"]
    assert repository.violations() == []
