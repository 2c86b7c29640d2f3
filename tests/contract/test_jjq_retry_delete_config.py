"""jjq retry, requeue, delete and config, clause by clause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

WRONG_IDS = ["0", "000000", "-1", "+1", "1.0", "one", "", " 1", "1000000", "٣", "1e3", "0x1", "000001a"]


@pytest.fixture
def failed(failed_template: Path, tmp_path: Path) -> tuple[Repository, str]:
    """A repository whose item 1 has failed, and the change id of its candidate."""
    repository = copy_of(failed_template, tmp_path / "home")
    return repository, repository.one('description(exact:"broken\n")', "change_id")


class TestRetry:
    @pytest.mark.parametrize("typed", ["1", "000001", "01"])
    def test_the_original_candidate_goes_to_the_end_of_the_queue_under_a_new_id(
        self, failed: tuple[Repository, str], typed: str
    ) -> None:
        repository, change = failed

        answer = repository.jjq("retry", typed)

        assert answer.code == 0
        assert answer.stdout == f"jjq: item 1 requeued: revision {change[:12]} queued at 2\n"
        commit = repository.one(f"change_id({change})")
        assert repository.bookmarks("glob:jjq/queue/*") == {"jjq/queue/000002": commit}
        assert repository.bookmarks("glob:jjq/failed/*") == {}
        assert repository.file("last_id", "jjq/_/_") == "2"

    def test_a_candidate_that_was_mended_just_now_is_queued_as_it_is_now(self, failed: tuple[Repository, str]) -> None:
        repository, change = failed
        repository.jj("edit", "--quiet", change)
        (repository.root / "bad").unlink()

        repository.ok("retry", "1")
        repository.ok("run")

        assert repository.files() == ["base.txt", "work.txt"]

    def test_another_revision_can_be_named(self, failed: tuple[Repository, str]) -> None:
        repository, _ = failed
        other = repository.change("other")

        repository.ok("retry", "1", other)

        assert repository.bookmarks("glob:jjq/queue/*")["jjq/queue/000002"] == repository.one(f"change_id({other})")

    def test_a_bookmark_of_the_user_on_the_candidate_is_used(self, failed: tuple[Repository, str]) -> None:
        repository, change = failed
        repository.jj("bookmark", "create", "feature", "-r", change)

        repository.ok("retry", "1")

        assert repository.bookmarks("glob:jjq/queue/*")["jjq/queue/000002"] == repository.one("feature")

    @pytest.mark.parametrize("revset", ["none()", "all()", "no-such-thing"])
    def test_a_revset_that_is_not_one_revision_is_refused_and_the_failed_item_stays(
        self, failed: tuple[Repository, str], revset: str
    ) -> None:
        repository, _ = failed

        assert repository.jjq("retry", "1", revset).code == 1
        assert "jjq/failed/000001" in repository.bookmarks()
        assert repository.bookmarks("glob:jjq/queue/*") == {}

    def test_a_candidate_that_was_abandoned_is_refused_with_a_hint(self, failed: tuple[Repository, str]) -> None:
        repository, change = failed
        failed_at = repository.one("jjq/failed/000001")
        repository.jj("abandon", "--quiet", change)
        assert repository.one("jjq/failed/000001") != failed_at

        answer = repository.jjq("retry", "1")

        assert answer.code == 1
        assert "jjq retry 1 REVSET" in answer.stderr

    @pytest.mark.parametrize("typed", ["2", "999999"])
    def test_an_item_that_has_not_failed_is_refused(self, failed: tuple[Repository, str], typed: str) -> None:
        repository, _ = failed
        repository.push("queued only")

        assert repository.jjq("retry", typed).code == 1

    def test_requeue_is_the_same(self, failed: tuple[Repository, str]) -> None:
        repository, _ = failed

        repository.ok("requeue", "1")

        assert "jjq/queue/000002" in repository.bookmarks()


class TestDelete:
    @pytest.mark.parametrize("typed", ["1", "000001"])
    def test_a_queued_item_is_taken_out(self, repository: Repository, typed: str) -> None:
        repository.push("unwanted")

        answer = repository.jjq("delete", typed)

        assert (answer.code, answer.stdout) == (0, "jjq: item 1 deleted from the queue\n")
        assert repository.bookmarks("glob:jjq/queue/*") == {}

    def test_a_failed_item_is_taken_out_and_its_workspace_stays(self, failed: tuple[Repository, str]) -> None:
        repository, _ = failed

        answer = repository.jjq("delete", "1")

        assert (answer.code, answer.stdout) == (0, "jjq: item 1 deleted from the failed items\n")
        assert repository.bookmarks("glob:jjq/failed/*") == {}
        assert "jjq/run/000001" in repository.workspaces()

    def test_the_queue_comes_before_the_failed(self, failed: tuple[Repository, str]) -> None:
        repository, change = failed
        repository.jj("bookmark", "create", "jjq/queue/000001", "-r", change)

        repository.ok("delete", "1")

        assert "jjq/failed/000001" in repository.bookmarks()
        assert "jjq/queue/000001" not in repository.bookmarks()

    def test_an_item_that_is_nowhere_is_refused_and_the_repository_is_initialized(self, fresh: Repository) -> None:
        answer = fresh.jjq("delete", "1")

        assert answer.code == 1
        assert list(fresh.bookmarks()) == ["jjq/_/_"]
        assert fresh.file("last_id", "jjq/_/_") == "0"


@pytest.mark.parametrize(
    ("verb", "texts"),
    [("delete", WRONG_IDS), ("retry", WRONG_IDS[:4]), ("status", WRONG_IDS[4:8]), ("wait", WRONG_IDS[8:])],
)
def test_text_that_is_no_id_is_refused_with_exit_code_1(repository: Repository, verb: str, texts: list[str]) -> None:
    for text in texts:
        answer = repository.jjq(verb, "--", text)

        assert answer.code == 1, f"{verb} {text!r}"
        assert f"not an id: {text!r}" in answer.stderr


class TestConfig:
    def test_without_arguments_all_effective_values_are_shown_and_jjq_is_initialized(self, fresh: Repository) -> None:
        lines = fresh.ok("config").splitlines()

        assert lines[:3] == ["trunk_bookmark = main", "check_command = sh -c 'exit 1'", "max_failures = 3"]
        assert fresh.files("jjq/_/_") == ["last_id"]

    def test_one_key_shows_its_value_and_makes_nothing(self, fresh: Repository) -> None:
        assert fresh.ok("config", "check_command") == "sh -c 'exit 1'\n"
        assert fresh.bookmarks() == {}

    def test_a_value_is_stored_as_a_file_on_the_metadata_branch(self, fresh: Repository) -> None:
        answer = fresh.ok("config", "check_command", "make -j4 test && echo 'all good'")

        assert answer == "jjq: check_command = make -j4 test && echo 'all good'\n"
        assert fresh.files("jjq/_/_") == ["config/check_command", "last_id"]
        assert fresh.file("config/check_command", "jjq/_/_") == "make -j4 test && echo 'all good'"
        assert fresh.ok("config", "check_command") == "make -j4 test && echo 'all good'\n"
        assert fresh.violations() == []

    def test_values_survive_each_other_and_pushes(self, repository: Repository) -> None:
        repository.ok("config", "trunk_bookmark", "trunk")
        repository.push("between")
        repository.ok("config", "max_failures", "7")

        values = repository.json("config")

        assert (values["trunk_bookmark"], values["max_failures"]) == ("trunk", "7")
        assert values["check_command"] == "test ! -e bad"

    @pytest.mark.parametrize("key", ["", "trunk", "Trunk_bookmark", "queueyard.nothing", "../last_id", "config/x"])
    def test_an_unknown_key_is_refused(self, repository: Repository, key: str) -> None:
        for words in ((key,), (key, "value")):
            answer = repository.jjq("config", "--", *words)

            assert answer.code == 1
            assert "no such configuration key" in answer.stderr

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("max_failures", "-1"),
            ("max_failures", "three"),
            ("max_failures", "1.5"),
            ("max_failures", ""),
            ("max_failures", "٣"),
            ("trunk_bookmark", ""),
            ("check_command", "  "),
            ("check_command", "one\ntwo"),
            ("queueyard.check_timeout_s", "-1"),
            ("queueyard.check_timeout_s", "nan"),
            ("queueyard.flaky_retries", "-2"),
            ("queueyard.reuse_checks", "maybe"),
        ],
    )
    def test_a_value_of_the_wrong_kind_is_refused_and_nothing_is_stored(
        self, repository: Repository, key: str, value: str
    ) -> None:
        before = repository.one("jjq/_/_")

        answer = repository.jjq("config", "--", key, value)

        assert answer.code == 1
        assert key in answer.stderr
        assert repository.one("jjq/_/_") == before

    def test_a_stored_value_that_makes_no_sense_is_an_error_with_its_repair(self, repository: Repository) -> None:
        folder = repository.home / "by-hand"
        repository.jj("workspace", "add", "--quiet", "--name", "by-hand", "-r", "jjq/_/_", str(folder))
        (folder / "config" / "max_failures").write_text("plenty\n", encoding="utf-8")
        repository.jj("squash", "--quiet", "--use-destination-message", cwd=folder)

        answer = repository.jjq("status")

        assert answer.code == 1
        assert "max_failures must be a non-negative integer, not 'plenty'" in answer.stderr
        assert "jjq config max_failures 3" in answer.stderr
        assert repository.ok("config", "max_failures") == "plenty\n"
        repository.ok("config", "max_failures", "3")
        repository.ok("status")
