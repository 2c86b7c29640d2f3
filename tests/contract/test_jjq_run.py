"""jjq run, clause by clause, with raw jj looking at what is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)

PARENTS = 'parents.map(|p| p.commit_id()).join(" ")'


def test_an_empty_queue_says_so_and_exits_0(repository: Repository) -> None:
    answer = repository.jjq("run")

    assert (answer.code, answer.stdout, answer.stderr) == (0, "jjq: queue is empty\n", "")


def test_a_repository_that_jjq_has_never_seen_has_an_empty_queue(fresh: Repository) -> None:
    assert fresh.jjq("run").stdout == "jjq: queue is empty\n"
    assert fresh.bookmarks() == {}
    assert not fresh.private.exists()


def test_a_passing_item_becomes_trunk_as_a_merge_of_trunk_and_candidate(repository: Repository) -> None:
    trunk = repository.one("main")
    change = repository.push("good")
    candidate = repository.one(f"change_id({change})")

    answer = repository.jjq("run")

    assert answer.code == 0
    assert repository.one("main", PARENTS) == f"{trunk} {candidate}"
    assert repository.files() == ["base.txt", "good.txt"]
    assert repository.bookmarks("glob:jjq/queue/*") == {}
    assert repository.workspaces() == ["default"]
    assert list((repository.home / "tmp").iterdir()) == []
    assert repository.violations() == []


def test_items_are_processed_one_per_run_in_ascending_order(repository: Repository) -> None:
    for name in ("a", "b", "c"):
        repository.push(name)

    repository.ok("run")
    assert repository.files() == ["a.txt", "base.txt"]
    repository.ok("run")
    assert repository.files() == ["a.txt", "b.txt", "base.txt"]
    repository.ok("run")
    assert repository.files() == ["a.txt", "b.txt", "base.txt", "c.txt"]


def test_a_failing_check_leaves_trunk_and_keeps_workspace_and_merge(repository: Repository) -> None:
    trunk = repository.one("main")
    change = repository.push("broken", {"bad": "x\n"})
    repository.ok("config", "check_command", "echo what is wrong; touch artefact; test ! -e bad")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "what is wrong" in answer.stderr
    assert repository.one("main") == trunk
    marks = repository.bookmarks()
    assert "jjq/queue/000001" not in marks
    assert repository.one("jjq/failed/000001", PARENTS) == f"{trunk} {repository.one(f'change_id({change})')}"
    assert "jjq/lock/run" not in marks
    assert "jjq/run/000001" in repository.workspaces()
    workspace = workspace_path(answer.stderr)
    assert (workspace / "bad").exists()
    assert (workspace / "artefact").exists()
    assert repository.root not in workspace.parents


def test_a_conflict_leaves_trunk_and_keeps_workspace_and_merge(repository: Repository) -> None:
    repository.push("left", {"base.txt": "left\n"})
    change = repository.push("right", {"base.txt": "right\n"})
    repository.ok("run")
    trunk = repository.one("main")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "item 2 failed: it conflicts with main" in answer.stderr
    assert "conflict:   base.txt" in answer.stderr
    assert repository.one("main") == trunk
    assert repository.one("jjq/failed/000002", PARENTS) == f"{trunk} {repository.one(f'change_id({change})')}"
    assert repository.one("jjq/failed/000002", 'if(conflict, "yes", "no")') == "yes"
    workspace = workspace_path(answer.stderr)
    assert "<<<<<<<" in (workspace / "base.txt").read_text(encoding="utf-8")
    assert repository.jj("log", "--no-graph", "-r", "@", "-T", "commit_id", cwd=workspace) == repository.one(
        "jjq/failed/000002"
    )


def test_the_output_of_a_passing_check_is_not_shown(repository: Repository) -> None:
    repository.ok("config", "check_command", "echo out-of-check; echo err-of-check >&2")
    repository.push("quiet")

    answer = repository.jjq("run")

    assert "of-check" not in answer.stdout + answer.stderr


def test_the_check_runs_in_the_merge_by_a_posix_shell(repository: Repository) -> None:
    seen = repository.home / "seen"
    parents = "jj log --no-graph -r @ -T 'parents.len()'"
    repository.ok("config", "check_command", f"{{ {parents}; for f in *; do echo; echo $f; done; }} > {seen}")
    repository.push("seen")

    repository.ok("run")

    assert seen.read_text(encoding="utf-8").split() == ["2", "base.txt", "seen.txt"]


def test_what_a_check_leaves_behind_never_lands(repository: Repository) -> None:
    repository.ok("config", "check_command", "echo junk > junk.o; echo more >> base.txt")
    repository.push("clean")

    repository.ok("run")

    assert repository.files() == ["base.txt", "clean.txt"]
    assert repository.file("base.txt") == "base\n"
    assert repository.violations() == []


def test_a_check_that_runs_jj_in_its_workspace_still_lands_what_was_checked(repository: Repository) -> None:
    repository.ok("config", "check_command", "echo junk > junk.o; jj status; echo more > other.o; jj log")
    repository.push("nosy")

    repository.ok("run")

    assert repository.files() == ["base.txt", "nosy.txt"]
    assert repository.violations() == []


def test_a_check_sees_no_secrets_unless_they_are_named(repository: Repository) -> None:
    seen = repository.home / "seen"
    repository.ok("config", "check_command", f"env > {seen}")
    repository.environment |= {"MY_API_TOKEN": "hush", "DEPLOY_PASSWORD": "hush", "HARMLESS": "yes"}
    repository.ok("config", "queueyard.keep_environment", "DEPLOY_PASSWORD")
    repository.push("curious")

    repository.ok("run")

    names = {line.partition("=")[0] for line in seen.read_text(encoding="utf-8").splitlines()}
    assert {"HARMLESS", "DEPLOY_PASSWORD", "JJQ_ITEM"} <= names
    assert "MY_API_TOKEN" not in names


def test_the_default_check_lets_nothing_land(fresh: Repository) -> None:
    fresh.push("unchecked")
    trunk = fresh.one("main")

    answer = fresh.jjq("run")

    assert answer.code == 1
    assert fresh.one("main") == trunk
    assert "jjq/failed/000001" in fresh.bookmarks()


def test_a_check_command_that_does_not_exist_fails_the_item(repository: Repository) -> None:
    repository.ok("config", "check_command", "no-such-program-anywhere")
    repository.push("unlucky")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "exit code 127" in answer.stderr
    assert "no-such-program-anywhere" in answer.stderr


def test_a_check_that_takes_too_long_is_stopped_with_all_its_children(repository: Repository) -> None:
    alive = repository.home / "alive"
    repository.ok("config", "check_command", f"sleep 1000 & echo $! > {alive}; wait")
    repository.ok("config", "queueyard.check_timeout_s", "2")
    repository.push("endless")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "took too long" in answer.stderr
    assert not is_running(int(alive.read_text(encoding="utf-8")))


def test_a_flaky_check_is_tried_again(repository: Repository) -> None:
    tries = repository.home / "tries"
    repository.ok("config", "check_command", f"echo x >> {tries}; test $(wc -l < {tries}) -ge 3")
    repository.ok("config", "queueyard.flaky_retries", "2")
    repository.push("flaky")

    answer = repository.jjq("run")

    assert answer.code == 0
    assert "in 3 tries" in answer.stdout


def test_another_trunk_bookmark_can_be_named(repository: Repository) -> None:
    repository.jj("bookmark", "create", "release/1.0", "-r", "main")
    repository.ok("config", "trunk_bookmark", "release/1.0")
    main = repository.one("main")
    repository.push("fix")

    repository.ok("run")

    assert repository.files('"release/1.0"') == ["base.txt", "fix.txt"]
    assert repository.one("main") == main


def test_a_trunk_bookmark_with_an_odd_name_works(repository: Repository) -> None:
    repository.jj("bookmark", "create", '"two words*"', "-r", "main")
    repository.ok("config", "trunk_bookmark", "two words*")
    repository.push("odd")

    repository.ok("run")

    assert repository.files('bookmarks(exact:"two words*")') == ["base.txt", "odd.txt"]


def test_a_missing_trunk_bookmark_is_an_error_and_the_item_stays(repository: Repository) -> None:
    repository.push("homeless")
    repository.ok("config", "trunk_bookmark", "nowhere")

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "there is no bookmark 'nowhere'" in answer.stderr
    assert "jjq/queue/000001" in repository.bookmarks()
    assert repository.violations() == []


def test_a_conflicted_trunk_bookmark_is_an_error_and_the_item_stays(repository: Repository) -> None:
    repository.push("waiting")
    left, right = repository.change("left"), repository.change("right")
    operation = repository.jj("op", "log", "--no-graph", "-n", "1", "-T", "id.short()")
    repository.jj("bookmark", "set", "main", "-r", left)
    repository.jj("--at-op", operation, "bookmark", "set", "main", "-r", right)

    answer = repository.jjq("run")

    assert answer.code == 1
    assert "the bookmark 'main' is conflicted" in answer.stderr
    assert "jjq/queue/000001" in repository.bookmarks()


def test_a_trunk_at_the_root_is_an_error_with_a_hint(fresh: Repository) -> None:
    fresh.push("first")
    fresh.jj("bookmark", "set", "--allow-backwards", "main", "-r", "root()")

    answer = fresh.jjq("run")

    assert answer.code == 1
    assert "at the root revision" in answer.stderr


def test_a_candidate_that_is_trunk_itself_leaves_the_queue_and_trunk_stays(repository: Repository) -> None:
    trunk = repository.one("main")
    repository.ok("push", "main")

    repository.ok("run")

    assert repository.one("main") == trunk
    assert repository.bookmarks("glob:jjq/queue/*") == {}


def test_a_candidate_that_is_below_trunk_already_is_merged_as_any_other(repository: Repository) -> None:
    change = repository.push("again")
    repository.ok("run")
    repository.ok("push", change)

    repository.ok("run")

    assert repository.files() == ["again.txt", "base.txt"]
    assert repository.violations() == []


def test_run_works_from_another_workspace_and_touches_no_working_copy(repository: Repository) -> None:
    agent = repository.add_workspace("agent")
    repository.push("landing")
    (agent.root / "unsaved.txt").write_text("unsaved\n", encoding="utf-8")
    before = agent.one("agent@")

    agent.ok("run")

    assert repository.files() == ["base.txt", "landing.txt"]
    assert agent.one("agent@") == before
    assert not (agent.root / "landing.txt").exists()


def test_run_works_in_a_stale_workspace(repository: Repository) -> None:
    agent = repository.add_workspace("agent")
    change = repository.push("landing")
    repository.jj("rebase", "--quiet", "-r", "agent@", "-d", change)
    assert agent.try_jj("status").code == 1

    agent.ok("run")

    assert repository.files() == ["base.txt", "landing.txt"]


@pytest.mark.parametrize("folder", ["/nowhere", "/proc", "/dev/null"])
def test_a_temporary_folder_that_cannot_be_written_is_an_error_and_the_item_stays(
    repository: Repository, folder: str
) -> None:
    repository.push("waiting")

    answer = repository.jjq("run", TMPDIR=folder)

    assert answer.code == 1
    assert "no workspace can be made in" in answer.stderr
    assert "jjq/queue/000001" in repository.bookmarks()
    assert repository.violations() == []


def test_a_temporary_folder_inside_the_repository_is_refused(repository: Repository) -> None:
    inside = repository.root / "tmp"
    inside.mkdir()
    repository.push("waiting")

    answer = repository.jjq("run", TMPDIR=str(inside))

    assert answer.code == 1
    assert "lies inside the repository" in answer.stderr
    assert "jjq/queue/000001" in repository.bookmarks()


def test_what_it_says_to_do_after_a_conflict_works(repository: Repository) -> None:
    repository.push("left", {"base.txt": "left\n"})
    repository.push("right", {"base.txt": "right\n"})
    repository.ok("run")
    told = repository.jjq("run").stderr.splitlines()
    commands = [line.removeprefix("jjq:   ").partition("  ")[0] for line in told if line.startswith("jjq:   jj")]

    for command in commands[:-1]:
        repository.jj(*command.split()[1:])
    (repository.root / "base.txt").write_text("both\n", encoding="utf-8")
    repository.ok(*commands[-1].split()[1:])
    repository.ok("run")

    assert repository.file("base.txt") == "both\n"
    assert "jjq/failed/000002" not in repository.bookmarks()


@pytest.mark.parametrize(
    "words", [("run", "--jobs", "2"), ("run", "--stop-on-failure"), ("run", "--all", "--jobs", "0")]
)
def test_options_that_make_no_sense_exit_2(repository: Repository, words: tuple[str, ...]) -> None:
    assert repository.jjq(*words).code == 2


def workspace_path(said: str) -> Path:
    """The path that a failing run prints."""
    line = next(line for line in said.splitlines() if "workspace:" in line)
    return Path(line.rpartition(" ")[2])


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX" and pid != os.getpid()


@pytest.mark.parametrize("words", [("run",), ("run", "--all"), ("run", "--batch", "2")])
def test_an_item_that_is_mended_while_its_check_fails_is_checked_again_and_lands(
    repository: Repository, words: tuple[str, ...]
) -> None:
    editor = repository.add_workspace("editor")
    change = repository.change("broken", {"bad": "x\n", "good.txt": "x\n"})
    repository.jj("new", "--quiet", "main")
    editor.jj("edit", "--quiet", change)
    repository.ok("config", "check_command", f"test ! -e bad || (cd {editor.root} && rm -f bad && jj status && false)")
    repository.ok("push", change)

    answer = repository.jjq(*words)

    assert answer.code == 0
    assert "item 1 was changed while item 1 was checked" in answer.stderr
    assert repository.json("stats")["wasted_checks"] == 1
    assert repository.files() == ["base.txt", "good.txt"]
    assert repository.violations() == []
