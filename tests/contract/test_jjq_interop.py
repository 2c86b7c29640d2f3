"""State that another tool of the format made, by raw jj commands exactly as the spec says, and what we leave for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts import finish

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


@pytest.fixture
def by_hand(fresh: Repository) -> Repository:
    """Initialized with raw jj; the metadata branch is a chain of revisions, as the public tool makes it."""
    fresh.jj("new", "--quiet", "--no-edit", "root()", "-m", "jjq init")
    first = fresh.one('description(substring:"jjq init")')
    fresh.jj("bookmark", "create", "jjq/_/_", "-r", first)
    write_metadata(fresh, {"last_id": "0\n"})
    write_metadata(fresh, {"config/check_command": "test ! -e bad\n", "config/other_tool.key": "theirs\n"})
    write_metadata(fresh, {"last_id": "2\n"})
    return fresh


def write_metadata(repository: Repository, files: dict[str, str]) -> None:
    """One more revision on the metadata branch."""
    folder = repository.home / "metadata"
    repository.jj("workspace", "add", "--quiet", "--name", "jjq4711", "-r", "jjq/_/_", str(folder))
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    repository.jj("describe", "--quiet", "-m", "update", cwd=folder)
    repository.jj("bookmark", "set", "--quiet", "jjq/_/_", "-r", "@", cwd=folder)
    repository.jj("workspace", "forget", "jjq4711")
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_items_that_were_queued_by_hand_are_shown_and_landed_in_order(by_hand: Repository) -> None:
    changes = [by_hand.change(name) for name in ("second", "first")]
    by_hand.jj("bookmark", "create", "jjq/queue/000002", "-r", changes[0])
    by_hand.jj("bookmark", "create", "jjq/queue/000001", "-r", changes[1])

    assert [item["id"] for item in by_hand.json("status")["queue"]] == [1, 2]
    by_hand.ok("run")
    assert by_hand.files() == ["base.txt", "first.txt"]
    by_hand.ok("run")
    assert by_hand.files() == ["base.txt", "first.txt", "second.txt"]
    assert by_hand.violations() == []


def test_counting_goes_on_and_the_configuration_of_others_stays(by_hand: Repository) -> None:
    by_hand.push("third")
    by_hand.ok("config", "max_failures", "5")

    assert "jjq/queue/000003" in by_hand.bookmarks()
    assert by_hand.file("last_id", "jjq/_/_").strip() == "3"
    assert by_hand.file("config/other_tool.key", "jjq/_/_") == "theirs\n"
    assert by_hand.ok("config", "check_command") == "test ! -e bad\n"
    assert set(by_hand.many("root() & ::jjq/_/_")) == {"0" * 40}


def test_an_item_that_another_tool_failed_can_be_retried(by_hand: Repository) -> None:
    change = by_hand.change("theirs")
    by_hand.jj("new", "--quiet", "--no-edit", "main", change, "-m", "Failed: merge 1 (check)")
    merge = by_hand.one('description(substring:"Failed: merge 1")')
    by_hand.jj("bookmark", "create", "jjq/failed/000001", "-r", merge)

    assert by_hand.json("status")["failed"][0]["id"] == 1
    by_hand.ok("retry", "1")

    assert by_hand.bookmarks("glob:jjq/queue/*") == {"jjq/queue/000003": by_hand.one(f"change_id({change})")}
    assert by_hand.bookmarks("glob:jjq/failed/*") == {}


def test_an_item_that_the_public_tool_failed_while_rebasing_is_found_by_its_trailer(by_hand: Repository) -> None:
    change = by_hand.change("theirs")
    message = f"Failed: merge 1 (check)\n\njjq-candidate: {change}\njjq-strategy: rebase"
    by_hand.jj("new", "--quiet", "--no-edit", "main", "-m", message)
    by_hand.jj("bookmark", "create", "jjq/failed/000001", "-r", by_hand.one('description(substring:"Failed: merge 1")'))

    by_hand.ok("retry", "1")

    assert by_hand.bookmarks("glob:jjq/queue/*") == {"jjq/queue/000003": by_hand.one(f"change_id({change})")}


def test_a_merge_that_we_failed_carries_what_the_public_tool_looks_for(repository: Repository) -> None:
    change = repository.push("broken", {"bad": "x\n"})
    repository.jjq("run")

    description = repository.one("jjq/failed/000001", "description").splitlines()

    assert f"jjq-candidate: {change}" in description
    assert f"jjq-candidate-commit: {repository.one(f'change_id({change})')}" in description
    assert f"jjq-trunk: {repository.one('main')}" in description
    assert repository.one("jjq/failed/000001", "parents.len()") == "2"


def test_a_merge_that_landed_carries_its_sequence_number(repository: Repository) -> None:
    repository.push("good")
    repository.ok("run")

    assert "jjq-sequence: 1" in repository.one("main", "description").splitlines()


def test_every_bookmark_that_we_make_has_three_parts_and_a_known_scope(repository: Repository) -> None:
    repository.push("good")
    repository.push("broken", {"bad": "x\n"})
    repository.jjq("run", "--all")
    repository.push("queued")

    names = [name.split("/") for name in repository.bookmarks("glob:jjq*")]

    assert all(len(parts) == 3 for parts in names)
    assert {parts[1] for parts in names} == {"_", "queue", "failed"}
    assert all(len(parts[2]) == 6 and parts[2].isdigit() for parts in names if parts[1] != "_")


def test_names_below_jjq_that_the_format_does_not_know_are_left_alone(by_hand: Repository) -> None:
    for name in ("jjq/queue/7", "jjq/queue/0000001", "jjq/queue/000000", "jjq/notes/mine"):
        by_hand.jj("bookmark", "create", name, "-r", "main")

    assert by_hand.json("status")["queue"] == []
    assert by_hand.jjq("run").stdout == "jjq: queue is empty\n"
    assert "jjq/queue/0000001" in by_hand.bookmarks()


def test_a_queue_without_a_metadata_branch_is_still_run(fresh: Repository) -> None:
    change = fresh.change("lonely")
    fresh.jj("bookmark", "create", "jjq/queue/000001", "-r", change)

    answer = fresh.jjq("run")

    assert answer.code == 1  # the default check fails everything
    assert {"jjq/_/_", "jjq/failed/000001"} <= set(fresh.bookmarks())


def test_an_item_that_another_tool_landed_ends_a_wait(by_hand: Repository) -> None:
    change = by_hand.change("theirs")
    by_hand.jj("bookmark", "create", "jjq/queue/000001", "-r", change)
    waiting = by_hand.start_jjq("wait", "1")
    assert waiting.stderr is not None
    assert "nobody runs the queue" in waiting.stderr.readline()

    by_hand.jj("bookmark", "set", "main", "-r", change)
    by_hand.jj("bookmark", "delete", "jjq/queue/000001")

    assert finish(waiting).code == 0
