"""The locks of the spec: signs that other tools can see, and ours that exclude."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
import time
from typing import TYPE_CHECKING

import pytest

from jj_repositories import KILLED, copy_of
from scripts import finish

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


@pytest.fixture(scope="session")
def waiting_template(failed_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a failed item and one that waits."""
    repository = copy_of(failed_template, tmp_path_factory.mktemp("waiting") / "home")
    repository.push("waiting")
    return repository.home


def lock(repository: Repository, name: str) -> None:
    """Take a lock as another tool of the format does."""
    repository.jj("bookmark", "create", f"jjq/lock/{name}", "-r", "jjq/_/_")


def wait_until_locked(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not is_locked(path):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_locked(path: Path) -> bool:
    with path.open("rb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("id", ("push", "@")),
        ("id", ("retry", "1")),
        ("config", ("config", "max_failures", "5")),
        ("config", ("config",)),
        ("config", ("config", "max_failures")),
        ("config", ("status",)),
        ("config", ("run",)),
        ("run", ("run",)),
        ("run", ("run", "--all")),
    ],
)
def test_a_lock_that_another_tool_holds_makes_the_command_fail(
    waiting_template: Path, tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    repository = copy_of(waiting_template, tmp_path / "home")
    lock(repository, name)
    before = repository.bookmarks()

    answer = repository.jjq(*words, "--no-wait")

    assert answer.code == 1
    assert f"the {name} lock is held" in answer.stderr
    assert f"jj bookmark delete jjq/lock/{name}" in answer.stderr
    assert repository.bookmarks() == before


def test_our_processes_wait_for_a_lock_that_is_given_back(repository: Repository) -> None:
    change = repository.change("patient")
    lock(repository, "id")

    waiting = repository.start_jjq("push", change, JJQ_LOCK_TIMEOUT_S="50")
    wait_until_locked(repository.private / "locks" / "id.lock")
    assert waiting.poll() is None
    repository.jj("bookmark", "delete", "jjq/lock/id")

    assert finish(waiting).code == 0


def test_delete_needs_no_lock(repository: Repository) -> None:
    repository.push("unwanted")
    for name in ("id", "run"):
        lock(repository, name)

    repository.ok("delete", "1", "--no-wait")


def test_the_lock_files_of_the_public_tool_are_respected(repository: Repository) -> None:
    repository.push("waiting")
    path = repository.root / ".jj" / "jjq-locks" / "run.lock"
    path.parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    refused = repository.jjq("run")
    os.close(descriptor)

    assert refused.code == 1
    assert "the run lock is held by another process" in refused.stderr
    repository.ok("run")


def test_while_a_run_is_under_way_others_see_its_sign_and_a_second_one_is_refused(repository: Repository) -> None:
    go = repository.home / "go"
    os.mkfifo(go)
    repository.ok("config", "check_command", f"cat {go}")
    repository.push("slow")
    running = repository.start_jjq("run")

    with go.open("w"):
        marks, status = repository.bookmarks(), repository.json("status")
        second = repository.jjq("run")
        workspaces = repository.workspaces()

    assert finish(running).code == 0
    assert "jjq/lock/run" in marks
    assert status["running"] is True
    assert (second.code, second.stdout) == (1, "")
    assert "the run lock is held by another process: " in second.stderr
    assert "jjq/run/000001" in workspaces
    assert repository.violations() == []


def test_a_sign_that_a_process_of_ours_left_when_it_died_is_recovered_with_a_note(repository: Repository) -> None:
    change = repository.change("after the crash")
    killed = repository.kill("push", change, at="bookmark create jjq/lock/id", after=True)
    assert (killed.code, "jjq/lock/id" in repository.bookmarks()) == (KILLED, True)

    answer = repository.jjq("push", change)

    assert answer.code == 0
    assert "jjq: recovered the id lock of a process that died" in answer.stderr
    assert repository.violations() == []


def test_locks_are_released_when_a_command_fails(repository: Repository) -> None:
    repository.push("broken", {"bad": "x\n"})

    assert repository.jjq("run").code == 1

    assert repository.bookmarks("glob:jjq/lock/*") == {}


def test_ids_differ_when_several_workspaces_push_at_once(repository: Repository) -> None:
    agents = [repository.add_workspace(f"agent-{number}") for number in range(3)]
    for number, agent in enumerate(agents):
        (agent.root / f"{number}.txt").write_text("x\n", encoding="utf-8")

    for running in [agent.start_jjq("push", "@") for agent in agents]:
        assert finish(running).code == 0

    assert sorted(repository.bookmarks("glob:jjq/queue/*")) == [f"jjq/queue/00000{number}" for number in (1, 2, 3)]
    assert repository.violations() == []


def test_all_workspaces_share_one_lock_folder(repository: Repository) -> None:
    agent = repository.add_workspace("agent")

    agent.ok("push", "main")

    assert not Path(agent.root / ".jj" / "jjq-locks").exists()
    assert (repository.root / ".jj" / "jjq-locks" / "id.lock").exists()
