"""Kill -9 at the calls to jj that matter most. Every call of every command is killed in chaos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jj_repositories import KILLED
from jjq_scenarios import NEXT, SCENARIOS, broken_promises, die

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

BEFORE, AFTER = False, True


@pytest.mark.parametrize(
    ("name", "call", "after", "verb"),
    [
        ("first push", "bookmark create jjq/_/_", AFTER, "status"),
        ("push", "squash", AFTER, "run"),
        ("push", "bookmark create jjq/queue/", AFTER, "push"),
        ("config", "squash", BEFORE, "config"),
        ("retry", "bookmark create jjq/queue/", AFTER, "status"),
        ("run, landing", "workspace add", AFTER, "run"),
        ("run, landing", "bookmark move", BEFORE, "push"),
        ("run, landing", "bookmark move", AFTER, "status"),
        ("run, landing", "bookmark delete jjq/queue/", AFTER, "run"),
        ("run, failing", "bookmark create jjq/failed/", BEFORE, "run"),
        ("run, failing", "bookmark create jjq/failed/", AFTER, "delete"),
        ("run --jobs", "bookmark move", AFTER, "run"),
        ("run --batch", "bookmark move", AFTER, "config"),
    ],
)
def test_the_next_command_mends_what_died(
    name: str, call: str, after: bool, verb: str, prepared_scenario: Callable[[str], Path], tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]

    repository, killed = die(scenario, prepared_scenario(name), tmp_path / "home", at=call, after=after)
    assert killed.code == KILLED
    NEXT[verb](repository)

    assert broken_promises(scenario, repository) == []


def test_a_run_that_is_killed_during_a_check_leaves_its_item_queued(repository: Repository) -> None:
    repository.ok("config", "check_command", "kill -9 $PPID")
    repository.push("wanted")
    assert repository.jjq("run").code == KILLED

    repository.ok("config", "check_command", "true")
    assert repository.violations() == []
    repository.ok("run")

    assert repository.files() == ["base.txt", "wanted.txt"]
    assert [event["kind"] for event in repository.json("log")][:2] == ["succeeded", "started"]
    assert "stalled" in [event["kind"] for event in repository.json("log")]


def test_a_crash_is_told_once(repository: Repository) -> None:
    repository.push("wanted")
    assert repository.kill("run", at="bookmark move", after=True).code == KILLED

    first, second = repository.jjq("status"), repository.jjq("status")

    assert "a run had died; what it left behind is put in order; it had landed 1" in first.stderr
    assert second.stderr == ""
    assert repository.json("status", "1")["state"] == "landed"
