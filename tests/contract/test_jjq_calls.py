"""How many calls to jj each command makes: a call costs 15 to 50 ms, so this is how fast jjq can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("status",), 3),
        (("push", "main"), 8),
        (("run",), 12),
        (("delete", "1"), 3),
        (("config", "max_failures", "4"), 8),
    ],
)
def test_a_command_stays_within_its_budget(repository: Repository, words: tuple[str, ...], most: int) -> None:
    repository.push("one")

    calls = repository.calls(*words)

    assert 0 < len(calls) <= most


def test_in_a_run_of_many_a_landed_item_costs_at_most_eight_calls(repository: Repository) -> None:
    for number in range(6):
        repository.push(f"item {number}")

    calls = repository.calls("run", "--all", "--jobs", "2")

    assert repository.bookmarks("glob:jjq/queue/*") == {}
    # workspaces of the pool, locks and the sweep at the end are paid for once
    assert len(calls) <= 6 * 8 + 12


def test_a_user_who_reads_the_operation_log_sees_no_snapshot_of_his_files_by_a_run(repository: Repository) -> None:
    repository.push("one")
    (repository.root / "unsaved.txt").write_text("unsaved\n", encoding="utf-8")

    for words in (("run",), ("status",), ("config", "max_failures", "2"), ("clean",), ("log",)):
        repository.ok(*words)

    assert "unsaved.txt" not in repository.files("default@")


def test_the_effect_on_user_state_of_everything_is_trunk_alone(repository: Repository) -> None:
    """The whole operation log, replayed in the eyes of a user: his revisions, bookmarks, tags and working copies."""
    agent = repository.add_workspace("agent")
    (agent.root / "wip.txt").write_text("wip\n", encoding="utf-8")
    agent.jj("status")
    repository.jj("bookmark", "create", "mine", "-r", "agent@")
    good, bad = repository.change("good"), repository.change("broken", {"bad": "x\n"})
    repository.jj("new", "--quiet", good)
    before = user_state(repository)

    agent.ok("push", good)
    agent.ok("push", bad)
    agent.jjq("run", "--all", "--jobs", "2")
    agent.ok("retry", "2")
    agent.jjq("run")
    agent.ok("config", "max_failures", "1")
    agent.ok("delete", "3")
    agent.ok("clean")
    agent.ok("doctor", "--fix")

    after = user_state(repository)
    assert after["bookmarks"].pop("main") != before["bookmarks"].pop("main")
    assert after == before
    assert sorted(path.name for path in agent.root.iterdir()) == [".jj", "base.txt", "wip.txt"]


def user_state(repository: Repository) -> dict[str, dict[str, str]]:
    ours = '(jjq/_/_ | description(regex:"(?m)^jjq-sequence: "))'
    revisions = repository.many(f"all() ~ {ours}", 'change_id ++ " " ++ commit_id')
    names = repository.bookmarks("glob:*")
    workspaces = repository.jj(
        "--ignore-working-copy", "workspace", "list", "-T", 'name ++ " " ++ target.commit_id() ++ "\\n"'
    )
    return {
        "revisions": dict(line.split(" ") for line in revisions),
        "bookmarks": {name: target for name, target in names.items() if not name.startswith("jjq/")},
        "workspaces": dict(line.split(" ") for line in workspaces.splitlines()),
    }
