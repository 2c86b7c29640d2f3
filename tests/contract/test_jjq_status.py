"""jjq status, log, stats and tail: what they show, and that looking changes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


def test_before_the_first_use_it_is_not_initialized_and_nothing_is_made(fresh: Repository) -> None:
    answer = fresh.jjq("status")

    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout.startswith("jjq: not initialized")
    assert fresh.bookmarks() == {}
    assert not fresh.private.exists()


def test_an_initialized_queue_without_items_is_empty(repository: Repository) -> None:
    answer = repository.jjq("status")

    assert (answer.code, answer.stdout) == (0, "jjq: queue is empty\n")


def test_queued_items_are_listed_ascending_with_id_change_and_first_line(repository: Repository) -> None:
    changes = [repository.push(name) for name in ("one", "two", "three")]

    lines = repository.ok("status").splitlines()

    assert [line.split(None, 2) for line in lines[1:]] == [
        [str(number), change[:12], name]
        for number, change, name in zip((1, 2, 3), changes, ("one", "two", "three"), strict=True)
    ]


def test_failed_items_are_listed_descending_and_no_more_than_max_failures(repository: Repository) -> None:
    for name in ("a", "b", "c", "d"):
        repository.push(name, {f"{name}.txt": name, "bad": "x"})
    repository.jjq("run", "--all")

    assert [item["id"] for item in repository.json("status")["failed"]] == [4, 3, 2]
    repository.ok("config", "max_failures", "1")
    assert [item["id"] for item in repository.json("status")["failed"]] == [4]
    repository.ok("config", "max_failures", "0")
    assert repository.json("status")["failed"] == []


def test_looking_adds_nothing_to_the_operation_log(repository: Repository) -> None:
    repository.push("one")
    before = repository.jj("op", "log", "--ignore-working-copy", "--no-graph", "-T", 'id.short() ++ "\\n"')

    for words in (("status",), ("status", "1"), ("log",), ("stats",), ("config", "max_failures")):
        repository.ok(*words)

    after = repository.jj("op", "log", "--ignore-working-copy", "--no-graph", "-T", 'id.short() ++ "\\n"')
    assert after == before


def test_an_item_is_shown_wherever_it_is(repository: Repository) -> None:
    repository.push("lands")
    repository.push("fails", {"bad": "x"})
    repository.push("waits")
    repository.push("goes")
    repository.ok("run")
    repository.jjq("run")
    repository.ok("delete", "4")

    views = {number: repository.json("status", str(number)) for number in (1, 2, 3, 4)}

    assert [views[number]["state"] for number in (1, 2, 3, 4)] == ["landed", "failed", "queued", "deleted"]
    assert views[1]["merge_commit_id"] == repository.one("main")
    assert views[2]["failed"]["failure_reason"] == "check"
    assert views[2]["failed"]["workspace_path"].startswith(str(repository.home / "tmp"))
    assert views[3]["position"] == 1


@pytest.mark.parametrize("text", ["9", "000009", "999999"])
def test_an_item_that_nobody_knows_is_refused(repository: Repository, text: str) -> None:
    answer = repository.jjq("status", text)

    assert answer.code == 1
    assert "nothing is known of item" in answer.stderr


def test_the_journal_is_shown_newest_first_and_as_many_as_asked(repository: Repository) -> None:
    repository.push("one")
    repository.ok("run")

    entries = repository.json("log")

    assert [(entry["item"], entry["kind"]) for entry in entries] == [
        ("000001", "succeeded"),
        ("000001", "started"),
        ("000001", "queued"),
    ]
    assert repository.json("log", "1") == entries[:1]
    assert repository.json("log", "0") == []
    assert {entry["queue"] for entry in entries} == {"main"}


@pytest.mark.parametrize("limit", ["-1", "many", "1.5"])
def test_a_limit_that_is_no_number_is_a_usage_error(repository: Repository, limit: str) -> None:
    assert repository.jjq("log", "--", limit).code == 2


def test_a_torn_journal_is_told_and_the_rest_is_shown(repository: Repository) -> None:
    repository.push("one")
    journal = repository.private / "journal.jsonl"
    journal.write_bytes(journal.read_bytes() + b'{"id":"torn')

    answer = repository.jjq("log", "--json")

    assert [entry["kind"] for entry in json.loads(answer.stdout)] == ["queued"]
    assert "torn last line" in answer.stderr


def test_the_output_of_an_items_checks_is_kept_beside_the_shared_repository(repository: Repository) -> None:
    agent = repository.add_workspace("agent")
    repository.ok("config", "check_command", "echo hello from the check")
    repository.push("one")
    agent.ok("run")

    for words in (("log", "--item", "1"), ("log", "000001"), ("tail", "--no-follow"), ("tail", "1")):
        assert "hello from the check" in repository.ok(*words)
    assert repository.jjq("log", "--item", "2").code == 1


def test_the_numbers_come_out_of_the_journal(repository: Repository) -> None:
    repository.push("lands")
    repository.push("fails", {"bad": "x"})
    repository.jjq("run", "--all")

    stats = repository.json("stats")

    assert (stats["landed"], stats["failed"], stats["failure_rate"], stats["checks"]) == (1, 1, 0.5, 2)
    assert stats["time_to_land_p50_s"] > 0
    assert sum(stats["landed_per_day"].values()) == 1
    assert repository.json("stats", "--since", "2000-01-01") == stats


def test_a_description_cannot_write_to_the_terminal(repository: Repository) -> None:
    repository.push("red \x1b[31m alert", {"x.txt": "x"})

    assert "\x1b" not in repository.ok("status") + repository.ok("status", "1")
