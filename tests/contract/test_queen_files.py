"""The files: where they are, that they only grow, that the schema's own examples and all frozen files read back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contract.conftest import Record, Repo

MESSAGES = "queen_messages.jsonl"
ASSIGNMENTS = "queen_assignments.jsonl"
RESERVATIONS = "queen_reservations.jsonl"


class TestWhereTheyAre:
    """spec: File Locations; ADR 18."""

    def test_three_files_beside_the_issues_which_are_left_alone(self, repo: Repo) -> None:
        """spec: File Locations, "Standard Beads (unchanged)"."""
        repo.copy("beads_issues.jsonl", "issues.jsonl")
        before = (repo.beads / "issues.jsonl").read_bytes()

        repo.json("msg", "send", "b", "x", agent="a")
        repo.json("claim", "qb-42", agent="a")
        repo.json("reserve", "src/**", agent="a")

        shared = {path.name for path in repo.beads.iterdir() if path.is_file()}
        assert shared == {"issues.jsonl", MESSAGES, ASSIGNMENTS, RESERVATIONS}
        assert (repo.beads / "issues.jsonl").read_bytes() == before
        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            assert (repo.beads / name).stat().st_mode & 0o777 == 0o644
            assert (repo.beads / name).read_bytes().endswith(b"}\n")

    def test_what_is_private_to_this_machine_keeps_itself_out_of_git(self, repo: Repo) -> None:
        repo.git("init", "--quiet")
        repo.json("reserve", "src/**", agent="a")

        seen = repo.git("status", "--porcelain", "--untracked-files=all").stdout.splitlines()

        assert (repo.beads / ".queen").is_dir()
        assert seen == [f"?? .beads/{RESERVATIONS}"]


class TestTheExamplesOfTheSchema:
    def test_the_three_lines_of_messages_are_two_messages_one_of_them_read(self, repo: Repo) -> None:
        """spec: Example Messages, "Updates are appended with same ID"."""
        repo.copy("spec_messages.jsonl", MESSAGES)

        [assigned] = repo.json("msg", "inbox", agent="ui-engineer")
        thread = repo.json("msg", "thread", "qb-42")

        assert assigned == {
            "id": "qm-01HZ1A",
            "created_at": "2024-12-14T10:30:00Z",
            "from": "queen",
            "to": "ui-engineer",
            "subject": "[qb-42] Assigned: Button component",
            "body": "You've been assigned...",
            "issue_id": "qb-42",
            "importance": "normal",
            "read": True,
            "read_at": "2024-12-14T10:36:00Z",
            "deleted": False,
        }
        assert [one["id"] for one in thread] == ["qm-01HZ1A", "qm-01HZ1B"]
        assert (thread[1]["reply_to"], thread[1]["thread_id"], thread[1]["read"]) == ("qm-01HZ1A", "qm-01HZ1A", False)

    def test_the_two_lines_of_assignments_are_one_that_was_completed(self, repo: Repo) -> None:
        """spec: Example Assignments."""
        repo.copy("spec_assignments.jsonl", ASSIGNMENTS)

        [done] = repo.json("assignments", "--status", "all")

        first, last = repo.records(ASSIGNMENTS)
        assert done == first | last | {"agent": ""}
        assert (done["status"], done["droid"], done["reason"]) == (
            "completed",
            "ui-engineer",
            "Implementation complete",
        )

    def test_the_two_lines_of_reservations_are_one_that_was_given_back(self, repo: Repo) -> None:
        """spec: Example Reservations."""
        repo.copy("spec_reservations.jsonl", RESERVATIONS)

        moved = {one["file"]: one["records"] for one in repo.json("archive", "--dry-run")}

        assert repo.json("reserved") == []
        assert moved[RESERVATIONS] == 1

    def test_a_migration_line_is_passed_over_in_silence_and_kept(self, repo: Repo) -> None:
        """spec: Migration 2 and 4."""
        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            repo.copy("spec_migration.jsonl", name)
        before = repo.lines(MESSAGES)
        repo.issues("qb-1")

        for words in (("msg", "inbox"), ("assignments", "--status", "all"), ("reserved",)):
            answer = repo.queen(*words, "--json", QUEEN_AGENT="a")
            assert (answer.code, answer.json, answer.stderr) == (0, [], "")
        repo.json("msg", "send", "b", "x", agent="a")
        repo.json("claim", "qb-1", agent="a")
        repo.json("reserve", "x", agent="a")

        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            assert repo.lines(name)[:1] == before
            assert len(repo.lines(name)) == 2


class TestFrozenFiles:
    """Files of each format that must load for ever."""

    @pytest.mark.parametrize("writer", ["public_tool", "v0_1"])
    def test_they_load_without_a_word(self, repo: Repo, writer: str) -> None:
        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            repo.copy(f"{writer}_{name.removeprefix('queen_')}", name)

        answers = [
            repo.queen("msg", "thread", "qb-42", "--json"),
            repo.queen("assignments", "--status", "all", "--json"),
            repo.queen("reserved", "--json"),
        ]

        assert [answer.stderr for answer in answers] == ["", "", ""]
        messages, assignments, reservations = (answer.json for answer in answers)
        assert [one["read"] for one in messages] == [True, False]
        assert [(one["status"], one.get("previous_agent")) for one in assignments] == [
            ("active", "ui-engineer"),
            ("reassigned", None),
        ]
        assert [one["pattern"] for one in reservations][:1] == ["src/ui/**"]

    def test_what_is_written_today_has_the_keys_and_the_order_of_the_first_version(self, repo: Repo) -> None:
        repo.issues("qb-42")
        sent = repo.json("msg", "send", "queen", "Button is done", "--issue", "qb-42", agent="ui-engineer")
        repo.json("msg", "reply", sent["id"], "Thank you", agent="queen")
        repo.json("msg", "read", sent["id"], agent="queen")
        never = repo.json("msg", "send", "human", "never mind", agent="queen")
        repo.json("msg", "delete", never["id"], agent="queen")
        repo.json("claim", "qb-42", "--worktree", "w", "--reason", "r", agent="ui-engineer")
        repo.json("claim", "qb-42", "--take", "--reason", "r", agent="queen")
        repo.json("reserve", "src/ui/**", "--issue", "qb-42", "--reason", "Button", agent="ui-engineer")
        repo.json("renew", agent="ui-engineer")
        written = {name: [list(one) for one in repo.records(name)] for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS)}

        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            repo.copy(f"v0_1_{name.removeprefix('queen_')}", name)
        frozen = {name: [list(one) for one in repo.records(name)] for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS)}

        assert written[MESSAGES] == frozen[MESSAGES]
        assert written[ASSIGNMENTS] == frozen[ASSIGNMENTS]
        assert written[RESERVATIONS] == frozen[RESERVATIONS][:2]


class TestAppendOnly:
    def test_every_change_only_adds_lines(self, repo: Repo) -> None:
        """spec: Append-Only Semantics 1 to 3."""
        repo.issues("qb-1")
        sent = repo.json("msg", "send", "b", "x", agent="a")["id"]
        repo.json("claim", "qb-1", agent="a")
        repo.json("reserve", "src/**", agent="a")
        steps = [
            (MESSAGES, ("msg", "read", sent), "b"),
            (MESSAGES, ("msg", "reply", sent, "y"), "b"),
            (MESSAGES, ("msg", "delete", sent), "b"),
            (ASSIGNMENTS, ("assign", "qb-1", "b"), "a"),
            (ASSIGNMENTS, ("complete", "qb-1"), "b"),
            (RESERVATIONS, ("renew",), "a"),
            (RESERVATIONS, ("unreserve", "--all"), "a"),
        ]

        for name, words, agent in steps:
            before = (repo.beads / name).read_bytes()
            repo.json(*words, agent=agent)
            after = (repo.beads / name).read_bytes()
            assert after.startswith(before)
            assert len(after) > len(before)

    def test_later_lines_change_only_the_fields_that_they_name_and_null_clears_one(self, repo: Repo) -> None:
        """spec: Reading Latest State; ADR 8, the first created_at stays."""
        repo.write(
            MESSAGES,
            repo.message("qm-1", issue_id="qb-1"),
            {"id": "qm-1", "created_at": "2030-01-01T00:00:00Z", "subject": "new"},
            {"id": "qm-1", "issue_id": None, "importance": "high"},
        )

        [folded] = repo.json("msg", "inbox", agent="b")

        assert (folded["subject"], folded["body"], folded["importance"]) == ("new", "text of qm-1", "high")
        assert folded["created_at"] == "2024-12-14T10:30:00Z"
        assert "issue_id" not in folded

    def test_missing_fields_take_their_defaults(self, repo: Repo) -> None:
        """spec: Migration 4."""
        repo.write(MESSAGES, {"id": "qm-1", "to": "b"})
        repo.write(RESERVATIONS, {"id": "qr-1", "pattern": "src/**", "droid": "a", "expires_at": repo.moment(hours=1)})
        repo.write(ASSIGNMENTS, {"id": "qa-1", "issue_id": "qb-1", "droid": "a"})

        [message] = repo.json("msg", "inbox", "--unread", agent="b")
        assert (message["importance"], message["read"], message["subject"]) == ("normal", False, "")
        assert repo.json("reserved")[0]["exclusive"] is True
        assert repo.json("assignments")[0]["status"] == "active"

    def test_grep_finds_the_records_of_an_issue(self, repo: Repo) -> None:
        """spec: Cross-References."""
        repo.issues("qb-42")
        repo.json("msg", "send", "b", "x", "--issue", "qb-42", agent="a")
        repo.json("claim", "qb-42", agent="a")
        repo.json("assign", "qb-42", "b", agent="a")
        repo.json("reserve", "src/**", "--issue", "qb-42", agent="a")

        def grepped(name: str) -> list[Record]:
            return [json.loads(line) for line in repo.lines(name) if b'"issue_id":"qb-42"' in line]

        assert (len(grepped(MESSAGES)), len(grepped(RESERVATIONS))) == (1, 1)
        assert (grepped(ASSIGNMENTS)[-1]["droid"], grepped(ASSIGNMENTS)[-1]["status"]) == ("b", "active")


class TestTheOptionalIndex:
    """spec: Indexes (Optional)."""

    def test_it_is_written_on_demand_in_the_shape_of_the_schema(self, repo: Repo) -> None:
        repo.copy("spec_messages.jsonl", MESSAGES)

        told = repo.json("index", "--export")

        path = repo.beads / "queen_messages.idx.json"
        assert told["exported"] == str(path)
        assert json.loads(path.read_bytes()) == {
            "by_id": {"qm-01HZ1A": 3, "qm-01HZ1B": 2},
            "by_to": {"ui-engineer": ["qm-01HZ1A"], "queen": ["qm-01HZ1B"]},
            "by_issue": {"qb-42": ["qm-01HZ1A", "qm-01HZ1B"]},
            "by_thread": {"qm-01HZ1A": ["qm-01HZ1B"]},
        }

    def test_one_that_lies_is_not_believed(self, repo: Repo) -> None:
        repo.write(MESSAGES, repo.message("qm-1"))
        lie = b'{"by_id":{"qm-1":9},"by_to":{"c":["qm-1"]},"by_issue":{},"by_thread":{}}'
        (repo.beads / "queen_messages.idx.json").write_bytes(lie)

        assert [one["id"] for one in repo.json("msg", "inbox", agent="b")] == ["qm-1"]
        assert repo.json("msg", "inbox", agent="c") == []

    def test_a_large_file_is_indexed_and_what_another_tool_adds_or_edits_is_seen_at_once(self, repo: Repo) -> None:
        many = [repo.message(f"qm-{number:05d}", body="x" * 200) for number in range(1500)]
        repo.write(MESSAGES, *many)
        assert repo.json("index")["indexed_bytes"] > 256 * 1024
        assert list((repo.beads / ".queen").glob("*.seg"))

        repo.write(
            MESSAGES, repo.message("qm-new", created_at="2030-01-01T00:00:00Z"), {"id": "qm-00007", "read": True}
        )
        assert [one["id"] for one in repo.json("msg", "inbox", "-n", "1", agent="b")] == ["qm-new"]
        assert repo.json("msg", "read", "qm-00007", agent="b")["read"] is True
        assert len(repo.lines(MESSAGES)) == 1502

        edited = (repo.beads / MESSAGES).read_bytes().replace(b"about qm-00009", b"changed in place")
        (repo.beads / MESSAGES).write_bytes(edited)
        assert repo.json("msg", "read", "qm-00009", "--peek", agent="b")["subject"] == "changed in place"
        assert len(repo.json("msg", "inbox", "--unread", "--limit", "0", agent="b")) == 1500
