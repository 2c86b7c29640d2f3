"""jjq push and the data model behind it, clause by clause, with raw jj looking at what is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


def test_the_first_push_initializes_and_gets_id_1(fresh: Repository) -> None:
    change = fresh.change("first")

    answer = fresh.jjq("push", change)

    assert (answer.code, answer.stderr) == (0, "")
    assert answer.stdout == f"jjq: revision {change[:12]} queued at 1\n"
    assert fresh.bookmarks() == {
        "jjq/_/_": fresh.one('bookmarks(exact:"jjq/_/_")'),
        "jjq/queue/000001": fresh.one(f"change_id({change})"),
    }
    assert fresh.file("last_id", "jjq/_/_") == "1"


def test_the_metadata_branch_stands_on_the_root_and_holds_nothing_of_the_user(fresh: Repository) -> None:
    fresh.push("one")
    fresh.push("two")

    assert set(fresh.many("::jjq/_/_ & ::(all() ~ jjq/_/_)")) == {"0" * 40}
    assert fresh.files("jjq/_/_") == ["last_id"]


def test_ids_count_up_and_the_same_revision_may_be_queued_twice(repository: Repository) -> None:
    change = repository.change("twice")

    repository.ok("push", change)
    repository.ok("push", change)

    commit = repository.one(f"change_id({change})")
    assert repository.bookmarks("glob:jjq/queue/*") == {"jjq/queue/000001": commit, "jjq/queue/000002": commit}
    assert repository.file("last_id", "jjq/_/_") == "2"


def test_what_was_edited_just_now_is_what_gets_queued(repository: Repository) -> None:
    repository.change("edited")
    (repository.root / "late.txt").write_text("late\n", encoding="utf-8")

    repository.ok("push", "@")

    assert "late.txt" in repository.files("jjq/queue/000001")


def test_a_queued_bookmark_follows_the_amended_revision(repository: Repository) -> None:
    change = repository.push("amended")

    (repository.root / "more.txt").write_text("more\n", encoding="utf-8")
    repository.jj("status")

    assert repository.bookmarks("glob:jjq/queue/*")["jjq/queue/000001"] == repository.one(f"change_id({change})")
    assert "more.txt" in repository.files("jjq/queue/000001")


@pytest.mark.parametrize(
    ("revset", "words"),
    [
        ("none()", "resolves to no revision"),
        ("main | root()", "resolves to several revisions"),
        ("all()", "resolves to several revisions"),
        ("no-such-thing", "does not resolve"),
        ("main &", "does not resolve"),
        ("root()", "root revision cannot be merged"),
    ],
)
def test_a_revset_that_is_not_one_revision_is_refused_with_exit_code_1(
    repository: Repository, revset: str, words: str
) -> None:
    before = repository.bookmarks()

    answer = repository.jjq("push", revset)

    assert (answer.code, answer.stdout) == (1, "")
    assert words in answer.stderr
    assert repository.bookmarks() == before


def test_exhausted_ids_are_refused_and_the_counter_stays(repository: Repository) -> None:
    change = repository.change("too late")
    set_last_id(repository, "999999")

    answer = repository.jjq("push", change)

    assert answer.code == 1
    assert "999999 are used" in answer.stderr
    assert repository.file("last_id", "jjq/_/_") == "999999"
    assert repository.violations() == []


def test_the_last_id_of_all_can_be_used(repository: Repository) -> None:
    change = repository.change("the last")
    set_last_id(repository, "999998")

    repository.ok("push", change)

    assert "jjq/queue/999999" in repository.bookmarks()


def test_a_counter_with_whitespace_around_it_is_read(repository: Repository) -> None:
    change = repository.change("spaces")
    set_last_id(repository, " 41\n")

    repository.ok("push", change)

    assert "jjq/queue/000042" in repository.bookmarks()


@pytest.mark.parametrize("text", ["", "seven", "-3", "1.5", "0x10"])
def test_a_counter_that_is_no_number_is_an_error_and_never_read_as_zero(repository: Repository, text: str) -> None:
    change = repository.change("corrupt")
    set_last_id(repository, text)

    answer = repository.jjq("push", change)

    assert answer.code == 1
    assert "last_id" in answer.stderr
    assert "jjq doctor --fix" in answer.stderr
    assert repository.bookmarks("glob:jjq/queue/*") == {}
    assert repository.violations() == []


def test_an_id_that_is_in_use_is_not_given_out_again(repository: Repository) -> None:
    first = repository.push("first")
    set_last_id(repository, "0")
    second = repository.change("second")

    repository.ok("push", second)

    queued = repository.bookmarks("glob:jjq/queue/*")
    assert queued["jjq/queue/000001"] == repository.one(f"change_id({first})")
    assert queued["jjq/queue/000002"] == repository.one(f"change_id({second})")


def test_push_works_from_a_subfolder_and_from_another_workspace(repository: Repository) -> None:
    agent = repository.add_workspace("agent")
    below = agent.root / "deep" / "down"
    below.mkdir(parents=True)
    (below / "x.txt").write_text("x\n", encoding="utf-8")

    agent.ok("push", "@", cwd=below)

    assert "deep/down/x.txt" in repository.files("jjq/queue/000001")
    assert repository.json("status")["queue"][0]["id"] == 1


def test_in_json_the_answer_names_id_change_and_commit(repository: Repository) -> None:
    change = repository.change("told")

    answer = repository.json("push", change)

    assert answer == {"id": 1, "change_id": change, "commit_id": repository.one(f"change_id({change})")}


def test_nothing_of_the_user_is_touched(repository: Repository) -> None:
    change = repository.change("mine")
    (repository.root / "untracked.bin").write_bytes(b"x" * 100)
    repository.jj("status")
    before = (repository.many("all() ~ ::jjq/_/_"), repository.bookmarks("glob:main"), repository.workspaces())

    repository.ok("push", change)

    assert (repository.many("all() ~ ::jjq/_/_"), repository.bookmarks("glob:main"), repository.workspaces()) == before


def set_last_id(repository: Repository, text: str) -> None:
    """Write the counter with raw jj."""
    folder = repository.home / "by-hand"
    repository.jj("workspace", "add", "--quiet", "--name", "by-hand", "-r", "jjq/_/_", str(folder))
    (folder / "last_id").write_text(text, encoding="utf-8")
    repository.jj("squash", "--quiet", "--use-destination-message", cwd=folder)
    repository.jj("workspace", "forget", "by-hand")
