"""Doctor, archive, watch; and what every command owes to programs: JSON, empty lists, one error object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest

from queueyard.queen.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from contract.conftest import Repo

MESSAGES = "queen_messages.jsonl"
ASSIGNMENTS = "queen_assignments.jsonl"
RESERVATIONS = "queen_reservations.jsonl"
FILES = (MESSAGES, ASSIGNMENTS, RESERVATIONS)


class TestDoctor:
    """spec: Append-Only Semantics and Validation Rules, where other tools broke them."""

    def checked(self, repo: Repo, *words: str) -> tuple[int, list[tuple[str, bool]]]:
        answer = repo.queen("doctor", *words, "--json")
        return answer.code, [(one["check"], one["fixed"]) for one in answer.json]

    def test_looking_changes_nothing(self, repo: Repo) -> None:
        repo.write(MESSAGES, repo.message("qm-1"), b"nonsense\n")
        before = repo.contents()

        answer = repo.queen("doctor")

        assert answer.code == 1
        assert f"{repo.beads / MESSAGES}: line 2 (byte {len(repo.lines(MESSAGES)[0]) + 1})" in answer.stdout
        assert "--fix moves them to queen_archive/" in answer.stderr
        assert repo.contents() == before

    def test_unreadable_and_torn_lines_are_set_aside_and_nothing_is_lost(self, repo: Repo) -> None:
        good = [repo.message("qm-1"), repo.message("qm-2", body="ü")]
        repo.write(MESSAGES, good[0], b"<<<<<<< HEAD\n", b"\xff\xfe\n", good[1], b'{"id":"qm-torn')
        repo.write(ASSIGNMENTS, b"nonsense\n", repo.assignment("qa-1", "qb-1", "a"))
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"), b"{}\n")

        assert self.checked(repo, "--fix") == (0, [("unreadable lines", True)] * 3)

        assert repo.records(MESSAGES) == good
        assert [len(repo.lines(name)) for name in FILES] == [2, 1, 1]
        aside = {path.name: path.read_bytes() for path in (repo.beads / "queen_archive").iterdir()}
        assert aside == {
            "queen_messages-unreadable.txt": b'<<<<<<< HEAD\n\xff\xfe\n{"id":"qm-torn\n',
            "queen_assignments-unreadable.txt": b"nonsense\n",
            "queen_reservations-unreadable.txt": b"{}\n",
        }
        assert self.checked(repo) == (0, [])
        assert repo.queen("doctor").stderr == "Everything is well.\n"

    def test_of_two_active_assignments_the_first_stays(self, repo: Repo) -> None:
        """spec: Validation Rules, Assignments 4; left by tools that do not lock."""
        repo.write(
            ASSIGNMENTS,
            repo.assignment("qa-1", "qb-1", "a"),
            repo.assignment("qa-2", "qb-1", "b"),
            repo.assignment("qa-3", "qb-2", "b"),
        )

        assert self.checked(repo) == (1, [("double assignments", False)])
        assert self.checked(repo, "--fix") == (0, [("double assignments", True)])

        [update] = repo.records(ASSIGNMENTS)[3:]
        assert (update["id"], update["status"], update["agent"]) == ("qa-2", "released", "b")
        assert sorted(one["id"] for one in repo.json("assignments")) == ["qa-1", "qa-3"]
        assert self.checked(repo) == (0, [])

    @pytest.mark.parametrize("stale", [b'{"by_id":{},"by_to":{},"by_issue":{},"by_thread":{}}', b"not even JSON"])
    def test_an_exported_index_that_does_not_fit_is_written_anew(self, repo: Repo, stale: bytes) -> None:
        repo.write(MESSAGES, repo.message("qm-1"))
        path = repo.beads / "queen_messages.idx.json"
        path.write_bytes(stale)

        assert self.checked(repo, "--fix") == (0, [("exported index", True)])

        assert json.loads(path.read_bytes())["by_id"] == {"qm-1": 1}
        assert self.checked(repo) == (0, [])

    def test_git_is_told_to_merge_both_sides(self, repo: Repo) -> None:
        repo.git("init", "--quiet")
        (repo.root / ".gitattributes").write_text("*.png binary")

        assert self.checked(repo) == (1, [("git attributes", False)])
        assert self.checked(repo, "--fix") == (0, [("git attributes", True)])

        assert (repo.root / ".gitattributes").read_text() == "*.png binary\n.beads/queen_*.jsonl merge=union\n"
        merging = repo.git("check-attr", "merge", "--", f".beads/{MESSAGES}").stdout
        assert merging == f".beads/{MESSAGES}: merge: union\n"
        assert self.checked(repo) == (0, [])

    def test_what_only_people_can_decide_is_told_and_left(self, repo: Repo) -> None:
        repo.issues({"id": "qb-1", "status": "closed"})
        repo.write(
            ASSIGNMENTS, repo.assignment("qa-1", "qb-1", "a"), repo.assignment("qa-2", "qb-2", "a", status="odd")
        )
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"), repo.reservation("qr-2", "src/x", "b"))
        repo.write(MESSAGES, repo.message("qm-1", body="y" * 70_000), repo.message("qm-2", subject=5))
        before = repo.contents()

        code, found = self.checked(repo, "--fix")

        assert code == 1
        expected = ["misfits", "misfits", "long lines", "closed issues", "conflicts"]
        assert found == [(check, False) for check in expected]
        assert repo.contents() == before


class TestArchive:
    """Beyond the spec: settled records move, and reading, searching, answering still know them."""

    def fill(self, repo: Repo) -> None:
        settled = {"read": True, "read_at": "2024-12-14T11:00:00Z"}
        repo.write(
            MESSAGES,
            repo.message("qm-old", subject="the Button", issue_id="qb-1"),
            {"id": "qm-old", **settled},
            repo.message("qm-unread"),
            repo.message("qm-fresh", read=True, read_at=repo.moment(hours=-1)),
            {"_migration": "v1_to_v2", "at": "2024-12-14T10:00:00Z"},
        )
        repo.write(
            ASSIGNMENTS,
            repo.assignment("qa-done", "qb-1", "a", status="completed"),
            repo.assignment("qa-active", "qb-2", "a"),
        )
        repo.write(
            RESERVATIONS,
            repo.reservation("qr-past", "old/**", "a", expires_at="2024-12-14T12:00:00Z"),
            repo.reservation("qr-held", "src/**", "a"),
        )

    def live(self, repo: Repo) -> list[list[str]]:
        return [[one.get("id", "_migration") for one in repo.records(name)] for name in FILES]

    def test_what_is_settled_and_old_moves_and_the_rest_stays(self, repo: Repo) -> None:
        self.fill(repo)
        before = repo.contents()
        lines = [line for name in FILES for line in repo.lines(name)]

        planned = repo.json("archive", "--dry-run")
        assert repo.contents() == before
        moved = repo.json("archive")

        assert moved == planned
        assert [(one["file"], one["records"], one["lines"]) for one in moved] == [
            (MESSAGES, 1, 2),
            (ASSIGNMENTS, 1, 1),
            (RESERVATIONS, 1, 1),
        ]
        assert self.live(repo) == [["qm-unread", "qm-fresh", "_migration"], ["qa-active"], ["qr-held"]]
        kept = [line for name in FILES for line in repo.lines(name)]
        archived = [
            line for path in sorted((repo.beads / "queen_archive").iterdir()) for line in path.read_bytes().splitlines()
        ]
        assert sorted(kept + archived) == sorted(lines)

        again = repo.contents()
        assert [(one["records"], one["lines"]) for one in repo.json("archive")] == [(0, 0)] * 3
        assert repo.contents() == again

    def test_an_archived_message_can_still_be_read_found_and_answered(self, repo: Repo) -> None:
        self.fill(repo)
        repo.json("archive")

        shown = repo.json("msg", "read", "qm-old", agent="b")
        found = repo.json("msg", "search", "button")
        answer = repo.json("msg", "reply", "qm-old", "still here", agent="b")
        threads = [repo.json("msg", "thread", key) for key in ("qm-old", answer["id"], "qb-1")]

        assert (shown["subject"], shown["body"], shown["read"]) == ("the Button", "text of qm-old", True)
        assert [one["id"] for one in found] == ["qm-old"]
        assert (answer["to"], answer["thread_id"], answer["issue_id"]) == ("a", "qm-old", "qb-1")
        assert [[one["id"] for one in thread] for thread in threads] == [["qm-old", answer["id"]]] * 3
        assert repo.json("msg", "inbox", "--unread", agent="b")[0]["id"] == "qm-unread"

    def test_an_archived_message_can_be_deleted(self, repo: Repo) -> None:
        self.fill(repo)
        repo.json("archive")

        repo.json("msg", "delete", "qm-old", agent="b")

        assert repo.refused("msg", "read", "qm-old", agent="b")["kind"] == "UnknownRecord"
        assert repo.json("msg", "search", "button") == []


class TestWatch:
    """Beyond the spec: `queen watch`."""

    def test_one_view_shows_everything_that_is_in_force(self, repo: Repo) -> None:
        repo.write(MESSAGES, repo.message("qm-1"), repo.message("qm-2", read=True))
        repo.write(ASSIGNMENTS, repo.assignment("qa-1", "qb-1", "a"))
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"), repo.reservation("qr-2", "src/x", "b"))

        view = repo.json("watch", "--once")
        text = repo.queen("watch", "--once").stdout

        assert (view["unread"], view["conflicts"]) == ({"b": 1}, 1)
        assert sorted(one["id"] for one in view["messages"]) == ["qm-1", "qm-2"]
        assert [one["id"] for one in view["assignments"]] == ["qa-1"]
        assert sorted(one["id"] for one in view["reservations"]) == ["qr-1", "qr-2"]
        assert "unread: b 1  conflicts: 1" in text


#: command -> words that make it succeed in the repository of `furnished`
SUCCEEDS: dict[str, list[str]] = {
    "msg send": ["b", "x"],
    "msg inbox": [],
    "msg wait": ["--agent", "b"],
    "msg read": ["qm-1"],
    "msg reply": ["qm-1", "x"],
    "msg thread": ["qm-1"],
    "msg sent": [],
    "msg search": ["text"],
    "msg stats": [],
    "msg delete": ["qm-1"],
    "assign": ["qb-1", "b"],
    "claim": ["qb-2"],
    "next": [],
    "release": ["qb-1"],
    "complete": ["qb-1"],
    "assignments": [],
    "reserve": ["docs/**"],
    "renew": [],
    "unreserve": ["--all"],
    "reserved": [],
    "conflicts": [],
    "check": ["docs/x"],
    "guard install": [],
    "guard uninstall": [],
    "guard run": [],
    "whoami": [],
    "droids": [],
    "config": [],
    "config list": [],
    "config get": ["ttl"],
    "config set": ["ttl", "1h"],
    "watch": ["--once"],
    "doctor": ["--fix"],
    "archive": [],
    "index": [],
}


def commands(group: click.Group, *path: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if not isinstance(command, click.Group):
            yield " ".join([*path, name])
            continue
        if command.invoke_without_command:
            yield name
        yield from commands(command, *path, name)


class TestForPrograms:
    """spec: CLI Mapping; every command speaks JSON."""

    def test_the_table_below_names_every_command(self) -> None:
        """`mcp` speaks JSON and nothing else."""
        assert set(commands(main)) - {"mcp"} == set(SUCCEEDS)

    @pytest.fixture
    def furnished(self, repo: Repo) -> Repo:
        repo.git("init", "--quiet")
        repo.issues("qb-1", "qb-2")
        repo.write(MESSAGES, repo.message("qm-1"))
        repo.write(ASSIGNMENTS, repo.assignment("qa-1", "qb-1", "a"))
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"))
        return repo

    @pytest.mark.parametrize("command", SUCCEEDS)
    def test_json_on_every_command_is_one_document(self, furnished: Repo, command: str) -> None:
        if command == "guard uninstall":
            assert furnished.queen("guard", "install").code == 0

        answer = furnished.queen(*command.split(), *SUCCEEDS[command], "--json", QUEEN_AGENT="a")

        assert (answer.code, answer.stderr) == (0, "")
        assert answer.json is not None

    @pytest.mark.parametrize(
        "words",
        [
            "msg inbox",
            "msg sent",
            "msg search x",
            "assignments",
            "renew",
            "unreserve --all",
            "reserved",
            "conflicts",
            "droids",
            "doctor",
        ],
    )
    def test_an_empty_list_is_an_empty_list(self, repo: Repo, words: str) -> None:
        answer = repo.queen(*words.split(), "--json", QUEEN_AGENT="a")

        assert (answer.code, answer.json) == (0, [])

    @pytest.mark.parametrize(
        ("words", "kind", "more"),
        [
            ("msg read qm-none", "UnknownRecord", set()),
            ("claim qb-9", "UnknownIssue", set()),
            ("claim qb-1", "AlreadyHeld", {"held"}),
            ("reserve src/x", "ReservationConflict", {"conflicts"}),
            ("reserve [", "BadPattern", set()),
            ("release qb-1", "NotYours", set()),
        ],
    )
    def test_an_error_is_one_object_on_stderr(self, furnished: Repo, words: str, kind: str, more: set[str]) -> None:
        told: dict[str, Any] = furnished.refused(*words.split(), agent="b")

        assert set(told) == {"error", "kind", "hint", "exit_code"} | more
        assert (told["kind"], told["exit_code"]) == (kind, 1)
        assert told["error"]
        assert told["hint"]

    def test_people_get_the_same_as_two_sentences(self, repo: Repo, tmp_path: Path) -> None:
        answer = repo.queen("whoami", cwd=tmp_path)

        assert (answer.code, answer.stdout) == (1, "")
        error, hint = answer.stderr.splitlines()
        assert error == f"Error: no .beads folder in {tmp_path} or above"
        assert hint.startswith("Hint: Make one: mkdir .beads")
