"""What jjq has for daily life: run --all and its friends, wait, check, clean, init, doctor."""

from __future__ import annotations

import json
import os
from pathlib import Path
import signal
from typing import TYPE_CHECKING

import pytest

from scripts import finish

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


class TestRunAll:
    def test_everything_lands_and_failures_do_not_stop_it(self, repository: Repository) -> None:
        repository.push("one")
        repository.push("broken", {"bad": "x\n"})
        repository.push("clash", {"one.txt": "other\n"})
        repository.push("two")

        answer = repository.jjq("run", "--all")

        assert answer.code == 1
        assert "processed 4 items: 2 landed, 2 failed (2, 3)" in answer.stderr
        assert repository.files() == ["base.txt", "one.txt", "two.txt"]
        assert sorted(repository.bookmarks("glob:jjq/failed/*")) == ["jjq/failed/000002", "jjq/failed/000003"]
        assert repository.violations() == []

    def test_it_can_stop_at_the_first_failure(self, repository: Repository) -> None:
        repository.push("one")
        repository.push("broken", {"bad": "x\n"})
        repository.push("two")

        assert repository.jjq("run", "--all", "--stop-on-failure").code == 1

        assert repository.files() == ["base.txt", "one.txt"]
        assert list(repository.bookmarks("glob:jjq/queue/*")) == ["jjq/queue/000003"]
        assert repository.violations() == []

    def test_in_json_the_outcomes_are_listed(self, repository: Repository) -> None:
        repository.push("one")
        repository.push("broken", {"bad": "x\n"})

        answer = repository.jjq("run", "--all", "--json")

        assert [(one["id"], one["state"]) for one in json.loads(answer.stdout)] == [(1, "landed"), (2, "failed")]
        assert json.loads(answer.stderr.splitlines()[-1])["outcomes"][0]["failure"]["reason"] == "check"

    @pytest.mark.parametrize("words", [("--all", "--jobs", "3"), ("--batch", "3")])
    def test_in_parallel_and_in_batches_the_same_items_land_in_the_same_order(
        self, repository: Repository, words: tuple[str, ...]
    ) -> None:
        names = ("a", "b", "broken", "c", "d")
        for name in names:
            repository.push(name, {f"{name}.txt": name} | ({"bad": "x"} if name == "broken" else {}))

        answer = repository.jjq("run", *words)

        assert answer.code == 1
        assert repository.files() == ["a.txt", "b.txt", "base.txt", "c.txt", "d.txt"]
        merges = repository.many("first_ancestors(main) ~ ::main----", "description.first_line()")
        assert merges == ["merge 5: d", "merge 4: c", "merge 2: b", "merge 1: a"]
        assert list(repository.bookmarks("glob:jjq/failed/*")) == ["jjq/failed/000003"]
        assert repository.violations() == []

    def test_a_batch_needs_one_check_when_all_is_well(self, repository: Repository) -> None:
        count = repository.home / "count"
        repository.ok("config", "check_command", f"echo x >> {count}")
        for name in ("a", "b", "c", "d"):
            repository.push(name)

        repository.ok("run", "--batch", "4")

        assert len(count.read_text(encoding="utf-8").splitlines()) == 1
        assert repository.files() == ["a.txt", "b.txt", "base.txt", "c.txt", "d.txt"]

    def test_a_tree_that_passed_is_not_checked_again(self, repository: Repository) -> None:
        count = repository.home / "count"
        repository.ok("config", "check_command", f"echo x >> {count}")
        change = repository.push("same")
        repository.ok("push", change)

        answer = repository.jjq("run", "--all")

        assert answer.code == 0
        assert len(count.read_text(encoding="utf-8").splitlines()) == 1
        assert "check reused" in answer.stdout
        repository.ok("config", "queueyard.reuse_checks", "false")
        repository.ok("push", change)
        repository.ok("run", "--all")
        assert len(count.read_text(encoding="utf-8").splitlines()) == 2

    def test_ignored_build_output_is_kept_from_check_to_check_and_everything_else_is_gone(
        self, repository: Repository
    ) -> None:
        seen = repository.home / "seen"
        command = (
            f"ls -A | grep -v '^.jj$' | tr '\\n' ' ' >> {seen}; echo >> {seen}; mkdir -p build; touch build/o junk"
        )
        repository.ok("config", "check_command", command)
        repository.push("first", {".gitignore": "build/\n"})
        repository.push("second")

        repository.ok("run", "--all")

        assert seen.read_text(encoding="utf-8").splitlines() == [
            ".gitignore base.txt ",
            ".gitignore base.txt build second.txt ",
        ]
        assert repository.files() == [".gitignore", "base.txt", "second.txt"]
        assert repository.violations() == []

    def test_the_first_signal_lets_the_running_check_end_and_starts_nothing_new(self, repository: Repository) -> None:
        go = repository.home / "go"
        os.mkfifo(go)
        repository.ok("config", "check_command", f"cat {go}")
        repository.push("one")
        repository.push("two")
        running = repository.start_jjq("run", "--all")

        with go.open("w"):
            running.send_signal(signal.SIGTERM)

        assert finish(running).code == 0
        assert list(repository.bookmarks("glob:jjq/queue/*")) == ["jjq/queue/000002"]
        assert repository.violations() == []

    def test_a_signal_stops_a_single_run_and_the_item_stays_queued(self, repository: Repository) -> None:
        go = repository.home / "go"
        os.mkfifo(go)
        repository.ok("config", "check_command", f"cat {go}")
        repository.push("one")
        running = repository.start_jjq("run")

        with go.open("w"):
            running.send_signal(signal.SIGINT)
            answer = finish(running)

        assert answer.code == 130
        assert list(repository.bookmarks("glob:jjq/queue/*")) == ["jjq/queue/000001"]
        assert repository.violations() == []


class TestWatch:
    def test_it_lands_what_is_pushed_until_it_is_told_to_end(self, repository: Repository) -> None:
        watching = repository.start_jjq("run", "--watch")

        for name in ("one", "two"):
            change = repository.change(name)
            repository.ok("push", change, "--wait", "--timeout", "60s")
        watching.send_signal(signal.SIGTERM)

        assert finish(watching).code == 0
        assert repository.files() == ["base.txt", "one.txt", "two.txt"]
        assert repository.violations() == []

    def test_trouble_with_trunk_is_waited_out(self, repository: Repository) -> None:
        trunk = repository.one("main")
        change = repository.push("one")
        repository.jj("bookmark", "delete", "main")
        watching = repository.start_jjq("run", "--watch")
        assert watching.stderr is not None
        assert "there is no bookmark 'main'" in watching.stderr.readline()

        repository.jj("bookmark", "create", "main", "-r", trunk)

        repository.ok("wait", "1")
        watching.send_signal(signal.SIGTERM)
        finish(watching)
        assert repository.many(f"change_id({change}) & ::main")


class TestWait:
    def test_the_exit_code_is_the_outcome(self, repository: Repository) -> None:
        repository.push("good")
        repository.push("broken", {"bad": "x\n"})
        repository.push("deleted")
        waiting = [repository.start_jjq("wait", str(number)) for number in (1, 2, 3)]

        repository.jjq("run")
        repository.jjq("run")
        repository.ok("delete", "3")

        answers = [finish(one) for one in waiting]
        assert [answer.code for answer in answers] == [0, 1, 1]
        assert "item 1 has landed" in answers[0].stdout
        assert "item 2 failed (check)" in answers[1].stderr
        assert "was deleted" in answers[2].stderr

    def test_what_has_ended_before_is_known(self, repository: Repository) -> None:
        repository.push("good")
        repository.ok("run")

        repository.ok("wait", "1")

    def test_time_may_be_up(self, repository: Repository) -> None:
        repository.push("stuck")

        answer = repository.jjq("wait", "1", "--timeout", "200ms")

        assert answer.code == 1
        assert "still queued after 0.2 s" in answer.stderr

    def test_who_waits_while_nobody_runs_is_told(self, repository: Repository) -> None:
        waiting = repository.start_jjq("push", repository.change("stuck"), "--wait")

        assert waiting.stderr is not None
        assert "nobody runs the queue" in waiting.stderr.readline()

        repository.ok("delete", "1")
        assert finish(waiting).code == 1


class TestCheck:
    def test_it_says_whether_a_revision_passes_and_keeps_nothing(self, repository: Repository) -> None:
        good, bad = repository.change("good"), repository.change("broken", {"bad": "x\n"})
        before = (repository.bookmarks(), repository.many("all()"))

        passing, failing = repository.jjq("check", "--rev", good), repository.jjq("check", "--rev", bad)

        assert (passing.code, failing.code) == (0, 1)
        assert f"revision {good[:12]} passes" in passing.stdout
        assert (repository.bookmarks(), repository.many("all()")) == before
        assert repository.workspaces() == ["default"]
        assert list((repository.home / "tmp").iterdir()) == []

    def test_it_looks_at_the_working_copy_unless_told_otherwise(self, repository: Repository) -> None:
        repository.change("work")
        (repository.root / "bad").write_text("x\n", encoding="utf-8")

        assert repository.jjq("check").code == 1

    def test_merged_with_trunk_it_may_fail_where_it_passes_alone(self, repository: Repository) -> None:
        repository.ok("config", "check_command", "test ! -e left.txt || test ! -e right.txt")
        left, right = repository.change("left"), repository.change("right")
        repository.jj("bookmark", "set", "main", "-r", left)

        assert repository.jjq("check", "--rev", right).code == 0
        assert repository.jjq("check", "--rev", right, "--merged").code == 1


class TestClean:
    def test_workspaces_of_failed_items_go_and_the_items_stay(self, repository: Repository) -> None:
        repository.push("broken", {"bad": "x\n"})
        repository.push("worse", {"bad": "y\n"})
        repository.jjq("run", "--all")
        assert len(repository.json("clean", "--dry-run")) == 2

        repository.ok("clean", "1")
        assert repository.workspaces() == ["default", "jjq/run/000002"]
        repository.ok("clean")

        assert repository.workspaces() == ["default"]
        assert list((repository.home / "tmp").iterdir()) == []
        assert sorted(repository.bookmarks("glob:jjq/failed/*")) == ["jjq/failed/000001", "jjq/failed/000002"]
        assert repository.ok("clean") == "jjq: nothing to clean\n"

    def test_after_a_delete_nothing_of_the_item_is_left(self, repository: Repository) -> None:
        repository.push("broken", {"bad": "x\n"})
        before = len(repository.many("all()"))
        repository.ok("config", "check_command", "touch junk; jj status; test ! -e bad")
        repository.jjq("run")
        repository.ok("delete", "1")

        repository.ok("clean")

        assert len(repository.many("all()")) == before
        assert repository.violations() == []

    def test_what_somebody_built_on_a_failed_merge_stays(self, repository: Repository) -> None:
        repository.push("broken", {"bad": "x\n"})
        repository.jjq("run")
        mine = repository.change("mine", on="jjq/failed/000001")
        repository.ok("delete", "1")
        before = repository.one(f"change_id({mine})")

        repository.ok("clean")

        assert repository.one(f"change_id({mine})") == before

    def test_the_workspace_of_a_running_check_is_left_alone(self, repository: Repository) -> None:
        go = repository.home / "go"
        os.mkfifo(go)
        repository.ok("config", "check_command", f"cat {go}")
        repository.push("slow")
        running = repository.start_jjq("run")

        with go.open("w"):
            answer = repository.ok("clean")

        assert answer == "jjq: nothing to clean\n"
        assert finish(running).code == 0


class TestInit:
    def test_trunk_and_check_are_set_at_once(self, fresh: Repository) -> None:
        answer = fresh.ok("init", "--trunk", "main", "--check", "true")

        assert answer == "jjq: initialized\n"
        assert fresh.json("config")["check_command"] == "true"
        assert fresh.ok("init") == "jjq: already initialized\n"

    def test_a_trunk_that_does_not_exist_is_refused_and_nothing_is_made(self, fresh: Repository) -> None:
        assert fresh.jjq("init", "--trunk", "nowhere").code == 1
        assert fresh.bookmarks() == {}

    def test_the_metadata_revision_can_be_hidden_from_the_log(self, fresh: Repository) -> None:
        fresh.ok("init")
        assert "jjq/_/_" in fresh.jj("log")

        fresh.ok("init", "--hide")
        fresh.ok("init", "--hide")

        assert "jjq/_/_" not in fresh.jj("log")
        assert fresh.jj("config", "get", "revsets.log").count("jjq/_/_") == 1


class TestDoctor:
    def test_a_healthy_queue_is_well(self, repository: Repository) -> None:
        repository.push("good")

        assert repository.jjq("doctor").stderr == "jjq: Everything is well.\n"

    def test_a_conflicted_item_is_mended_and_then_lands(self, repository: Repository) -> None:
        repository.push("item")
        left, right = repository.change("left"), repository.change("right")
        conflict(repository, "jjq/queue/000001", left, right)
        assert repository.jjq("run").code == 1
        assert repository.jjq("doctor").code == 1

        repository.ok("doctor", "--fix")

        assert repository.violations() == []
        repository.ok("run")
        assert repository.files() == ["base.txt", "right.txt"]

    def test_a_conflicted_metadata_branch_keeps_counter_and_configuration_of_all(self, repository: Repository) -> None:
        operation = repository.jj("op", "log", "--no-graph", "-n", "1", "-T", "id.short()")
        repository.push("one")
        repository.push("two")
        ours = repository.one("jjq/_/_")
        repository.jj("--at-op", operation, "describe", "-m", "elsewhere", "jjq/_/_")
        assert repository.bookmarks()["jjq/_/_"] == "conflicted"
        assert "jjq doctor --fix" in repository.jjq("push", "main").stderr

        repository.ok("doctor", "--fix")

        assert ours
        assert repository.file("last_id", "jjq/_/_") == "2"
        assert repository.ok("config", "check_command") == "test ! -e bad\n"
        assert repository.violations() == []
        repository.push("three")
        assert "jjq/queue/000003" in repository.bookmarks()

    def test_a_counter_that_is_no_number_is_counted_anew(self, repository: Repository) -> None:
        repository.push("one")
        folder = repository.home / "by-hand"
        repository.jj("workspace", "add", "--quiet", "--name", "by-hand", "-r", "jjq/_/_", str(folder))
        (folder / "last_id").write_text("garbage", encoding="utf-8")
        repository.jj("squash", "--quiet", "--use-destination-message", cwd=folder)

        repository.ok("doctor", "--fix")

        assert repository.file("last_id", "jjq/_/_") == "1"

    def test_locks_that_nobody_holds_and_workspaces_that_are_gone_are_removed(self, repository: Repository) -> None:
        repository.push("broken", {"bad": "x\n"})
        repository.jjq("run")
        path = Path(repository.json("status", "1")["failed"]["workspace_path"])
        remove(path)
        repository.jj("bookmark", "create", "jjq/lock/run", "-r", "jjq/_/_")
        repository.jj("workspace", "add", "--name", "jjq/run/000077", str(repository.home / "stranger"))

        found = {one["check"] for one in json.loads(repository.jjq("doctor", "--json").stdout)}
        repository.ok("doctor", "--fix")

        assert found == {"locks", "workspaces"}
        assert repository.bookmarks("glob:jjq/lock/*") == {}
        assert repository.workspaces() == ["default"]

    def test_what_it_cannot_mend_it_explains(self, fresh: Repository) -> None:
        fresh.ok("init")
        fresh.jj("bookmark", "delete", "main")

        answer = fresh.jjq("doctor", "--fix")

        assert answer.code == 1
        assert "jj bookmark create main" in answer.stderr
        assert "jjq config check_command" in answer.stderr


def conflict(repository: Repository, name: str, left: str, right: str) -> None:
    operation = repository.jj("op", "log", "--no-graph", "-n", "1", "-T", "id.short()")
    repository.jj("bookmark", "set", "--allow-backwards", name, "-r", left)
    repository.jj("--at-op", operation, "bookmark", "set", "--allow-backwards", name, "-r", right)
    assert repository.bookmarks()[name] == "conflicted"


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
