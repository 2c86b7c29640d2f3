"""Assignments: the record on disk, its lifecycle, and which issue comes next."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from contract.conftest import Record, Repo

FILE = "queen_assignments.jsonl"
ASSIGNMENT_ID = re.compile(r"qa-[0-7][0-9A-HJKMNP-TV-Z]{25}")
RFC3339_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


class TestTheRecord:
    def test_a_claim_writes_every_field_in_one_compact_line(self, repo: Repo) -> None:
        """spec: Assignment Record; File Locations; CLI Mapping, `queen claim`."""
        repo.issues("qb-1")

        shown = repo.json("claim", "qb-1", "--worktree", "feature-ui", "--reason", "kenne ich", agent="ui-engineer")

        [line] = repo.lines(FILE)
        [record] = repo.records(FILE)
        assert line.decode() == json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        assert ASSIGNMENT_ID.fullmatch(record["id"])
        assert RFC3339_Z.fullmatch(record["created_at"])
        assert (
            shown
            == record
            == {
                "id": record["id"],
                "created_at": record["created_at"],
                "updated_at": record["created_at"],
                "issue_id": "qb-1",
                "agent": "ui-engineer",
                "droid": "ui-engineer",
                "assigned_by": "ui-engineer",
                "status": "active",
                "worktree": "feature-ui",
                "reason": "kenne ich",
            }
        )

    def test_an_assignment_by_somebody_says_by_whom(self, repo: Repo) -> None:
        """spec: Assignment Record, assigned_by; CLI Mapping, `queen assign`."""
        repo.issues("qb-1")

        repo.json("assign", "qb-1", "ui-engineer", agent="queen")

        [record] = repo.records(FILE)
        assert (record["droid"], record["assigned_by"], record["status"]) == ("ui-engineer", "queen", "active")
        assert not {"worktree", "reason", "previous_droid", "previous_agent"} & set(record)


class TestTheLifecycle:
    """spec: Assignment Lifecycle."""

    @pytest.mark.parametrize(("verb", "status"), [("release", "released"), ("complete", "completed")])
    def test_an_end_is_the_same_record_with_its_new_status(self, repo: Repo, verb: str, status: str) -> None:
        """spec: Assignment Lifecycle; Append-Only Semantics 2; CLI Mapping, `queen release`."""
        repo.issues("qb-1")
        repo.write(FILE, repo.assignment("qa-1", "qb-1", "a", worktree="w", reason="first"))

        shown = repo.json(verb, "qb-1", "--reason", "done", agent="a")
        told = repo.refused(verb, "qb-1", agent="a")

        active, ended = repo.records(FILE)
        assert RFC3339_Z.fullmatch(ended["updated_at"])
        assert ended["updated_at"] > active["updated_at"]
        assert shown == ended == active | {"status": status, "updated_at": ended["updated_at"], "reason": "done"}
        assert (told["kind"], told["error"]) == ("UnknownRecord", "nobody works on qb-1")

    def test_a_reassignment_ends_the_old_one_and_the_new_one_names_who_had_it(self, repo: Repo) -> None:
        """spec: Assignment Lifecycle, reassigned; Assignment Record, previous_droid."""
        repo.issues("qb-1")
        repo.write(FILE, repo.assignment("qa-1", "qb-1", "a"))

        new = repo.json("assign", "qb-1", "b", "--reason", "a is away", agent="queen")

        _, old, written = repo.records(FILE)
        assert (old["id"], old["status"], old["droid"], old["reason"]) == ("qa-1", "reassigned", "a", "a is away")
        assert new == written
        assert (written["droid"], written["previous_droid"], written["previous_agent"]) == ("b", "a", "a")
        assert (written["status"], written["assigned_by"]) == ("active", "queen")
        assert written["id"] != "qa-1"
        assert [one["id"] for one in repo.json("assignments", "--issue", "qb-1")] == [written["id"]]

    def test_an_issue_that_was_given_back_can_be_claimed_again(self, repo: Repo) -> None:
        repo.issues("qb-1")
        repo.write(FILE, repo.assignment("qa-1", "qb-1", "a", status="released"))

        assert repo.json("claim", "qb-1", agent="b")["droid"] == "b"


class TestOneActiveAssignmentPerIssue:
    """spec: Validation Rules, Assignments 4."""

    def test_a_claim_of_what_another_agent_holds_is_refused_unless_it_takes_it(self, repo: Repo) -> None:
        repo.issues("qb-1")
        held = repo.assignment("qa-1", "qb-1", "a")
        repo.write(FILE, held)
        before = repo.lines(FILE)

        told = repo.refused("claim", "qb-1", agent="b")
        assert told["kind"] == "AlreadyHeld"
        assert told["held"] == held
        assert "queen msg send a" in told["hint"]
        assert "queen claim qb-1 --take" in told["hint"]
        assert repo.lines(FILE) == before

        taken = repo.json("claim", "qb-1", "--take", agent="b")
        assert (taken["droid"], taken["previous_droid"]) == ("b", "a")

    def test_claiming_twice_writes_nothing_the_second_time(self, repo: Repo) -> None:
        repo.issues("qb-1")

        first = repo.json("claim", "qb-1", agent="a")
        second = repo.json("claim", "qb-1", "--reason", "again", agent="a")

        assert first == second
        assert len(repo.lines(FILE)) == 1

    def test_only_its_holder_ends_it_unless_by_force(self, repo: Repo) -> None:
        repo.issues("qb-1")
        repo.write(FILE, repo.assignment("qa-1", "qb-1", "a"))

        told = repo.refused("complete", "qb-1", agent="b")

        assert (told["kind"], told["error"]) == ("NotYours", "qb-1 is held by a")
        assert repo.json("release", "qb-1", "--force", agent="b")["droid"] == "a"


class TestValidation:
    """spec: Validation Rules, Assignments; ADR 11."""

    def test_the_issue_must_exist_and_the_nearest_is_suggested(self, repo: Repo) -> None:
        """spec: Validation Rules, Assignments 2."""
        repo.copy("beads_issues.jsonl", "issues.jsonl")

        told = repo.refused("claim", "qb-4", agent="a")

        assert told["kind"] == "UnknownIssue"
        assert re.match(r"Beads has no issue 'qb-4'; did you mean 'qb-4[23]'\?", told["error"])
        assert repo.refused("assign", "mem-1", "b", agent="a")["kind"] == "UnknownIssue"
        assert repo.lines(FILE) == []

    def test_an_issue_of_any_prefix_will_do(self, repo: Repo) -> None:
        repo.copy("beads_issues.jsonl", "issues.jsonl")

        assert repo.json("claim", "web-a3f8.1", agent="a")["issue_id"] == "web-a3f8.1"

    @pytest.mark.parametrize("status", ["closed", "done", "tombstone"])
    def test_a_closed_issue_is_refused_and_the_last_line_says_whether_it_is(self, repo: Repo, status: str) -> None:
        repo.issues({"id": "qb-1", "status": "open"}, {"id": "qb-1", "status": status})

        told = repo.refused("claim", "qb-1", agent="a")

        assert (told["kind"], told["error"]) == ("UnknownIssue", f"qb-1 is {status}")
        assert repo.lines(FILE) == []

    def test_without_an_export_of_beads_nothing_can_be_assigned_unless_the_check_is_off(self, repo: Repo) -> None:
        told = repo.refused("claim", "qb-1", agent="a")

        assert told["kind"] == "UnknownIssue"
        assert "queen config set check_issues false" in told["hint"]
        assert repo.json("claim", "qb-1", agent="a", QUEEN_CHECK_ISSUES="false")["status"] == "active"

    def test_the_old_name_of_the_export_is_known(self, repo: Repo) -> None:
        repo.write("beads.jsonl", {"id": "qb-1", "status": "open"})

        assert repo.json("claim", "qb-1", agent="a")["issue_id"] == "qb-1"

    def test_the_droid_must_exist(self, repo: Repo) -> None:
        """spec: Validation Rules, Assignments 3."""
        repo.issues("qb-1")
        repo.droids("ui-engineer")

        told = repo.refused("assign", "qb-1", "ui-enginer", agent="queen")

        assert (told["kind"], told["hint"]) == ("UnknownAgent", "List them: queen droids")
        assert "did you mean 'ui-engineer'?" in told["error"]
        assert repo.refused("claim", "qb-1", agent="nobody")["kind"] == "UnknownAgent"
        assert repo.lines(FILE) == []


class TestTheList:
    """spec: Assignment Record, status; CLI beyond the mapping: `queen assignments`."""

    def test_it_shows_what_is_active_newest_first_and_filters(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.assignment("qa-1", "qb-1", "a", created_at="2024-12-14T10:30:00Z"),
            repo.assignment("qa-2", "qb-2", "b", created_at="2024-12-14T10:30:00.5Z"),
            repo.assignment("qa-3", "qb-3", "a", status="completed"),
        )

        def listed(*words: str) -> list[str]:
            return [one["id"] for one in repo.json("assignments", *words)]

        assert listed() == ["qa-2", "qa-1"]
        assert listed("--agent", "a") == ["qa-1"]
        assert listed("--status", "completed") == ["qa-3"]
        assert sorted(listed("--status", "all")) == ["qa-1", "qa-2", "qa-3"]
        rows = repo.queen("assignments", "--issue", "qb-2").stdout.splitlines()
        assert [row.split()[:3] for row in rows] == [["ISSUE", "AGENT", "STATUS"], ["qb-2", "b", "active"]]


class TestNext:
    """Beyond the spec: `queen next` claims by the rules of Beads itself."""

    def issue(self, repo: Repo, identifier: str, *, hours: float, **fields: object) -> Record:
        return {"id": identifier, "status": "open", "created_at": repo.moment(hours=-hours)} | fields

    def blocked_by(self, other: str, kind: str = "blocks") -> list[Record]:
        return [{"issue_id": "-", "depends_on_id": other, "type": kind}]

    def test_young_issues_come_first_by_priority_and_then_the_oldest(self, repo: Repo) -> None:
        repo.issues(
            self.issue(repo, "old", hours=200, priority=0),
            self.issue(repo, "older", hours=300, priority=4),
            self.issue(repo, "young-p3", hours=40, priority=3),
            self.issue(repo, "young-p1", hours=1, priority=1, title="First", description="Do it.", labels=["ui"]),
            self.issue(repo, "young-p1-older", hours=2, priority=1, status="in_progress"),
        )

        first = repo.json("next", "--worktree", "w", agent="a")
        others = [repo.json("next", agent=agent)["issue"]["id"] for agent in ("b", "a", "b", "a")]
        none_left = repo.queen("next", "--json", agent="a")

        assert (first["issue"]["id"], others[0]) == ("young-p1-older", "young-p1")
        assert others[1:] == ["young-p3", "older", "old"]
        assert first["assignment"]["worktree"] == "w"
        assert (none_left.code, none_left.json) == (1, None)
        assert [(one["issue_id"], one["droid"]) for one in repo.records(FILE)][:2] == [
            ("young-p1-older", "a"),
            ("young-p1", "b"),
        ]

    def test_what_is_not_ready_is_passed_over(self, repo: Repo) -> None:
        repo.issues(
            self.issue(repo, "ready", hours=400, dependencies=self.blocked_by("shut")),
            self.issue(repo, "shut", hours=1, status="closed"),
            self.issue(repo, "held", hours=1),
            self.issue(repo, "assigned", hours=1, assignee="somebody"),
            self.issue(repo, "pinned", hours=1, pinned=True),
            self.issue(repo, "ephemeral", hours=1, ephemeral=True),
            self.issue(repo, "blocked-status", hours=1, status="blocked"),
            self.issue(repo, "deferred", hours=1, defer_until=repo.moment(hours=5)),
            self.issue(repo, "gate", hours=1, issue_type="gate"),
            self.issue(repo, "blocks", hours=1, dependencies=self.blocked_by("held")),
            self.issue(repo, "conditional", hours=1, dependencies=self.blocked_by("held", "conditional-blocks")),
            self.issue(repo, "waits", hours=1, dependencies=self.blocked_by("held", "waits-for")),
            self.issue(repo, "child", hours=1, dependencies=self.blocked_by("blocks", "parent-child")),
        )
        repo.write(FILE, repo.assignment("qa-1", "held", "b"))

        assert repo.json("next", agent="a")["issue"]["id"] == "ready"
        nothing = repo.queen("next", agent="a")
        assert (nothing.code, nothing.stdout, nothing.stderr) == (1, "", "Nothing is ready.\n")

    def test_informational_edges_and_an_assignment_to_me_block_nothing(self, repo: Repo) -> None:
        repo.issues(
            self.issue(repo, "related", hours=2, assignee="a", dependencies=self.blocked_by("other", "related")),
            self.issue(repo, "other", hours=1, defer_until=repo.moment(hours=5)),
        )

        shown = repo.queen("next", agent="a")

        assert (shown.code, shown.stdout.split()[0]) == (0, "related")

    def test_times_in_other_zones_are_compared_as_times(self, repo: Repo) -> None:
        """Beads writes local times: 23:00 in the west is later than 01:00 of the next day in UTC."""
        repo.issues(
            {"id": "later", "status": "open", "created_at": "2024-12-13T23:00:00.5-08:00"},
            {"id": "earlier", "status": "open", "created_at": "2024-12-14T01:00:00Z"},
        )

        assert repo.json("next", agent="a")["issue"]["id"] == "earlier"
