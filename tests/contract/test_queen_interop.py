"""Records of other tools: whatever they name, leave out or add, it is read, and it survives what we write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contract.conftest import Repo

MESSAGES = "queen_messages.jsonl"
ASSIGNMENTS = "queen_assignments.jsonl"
RESERVATIONS = "queen_reservations.jsonl"
LONGEST_LINE_BYTES = 65_535

OWNERS: list[dict[str, Any]] = [
    {"agent": "a"},
    {"droid": "a"},
    {"agent": "a", "droid": "a"},
    {"agent": "", "droid": "a"},
    {"agent": "a", "droid": ""},
]


class TestTheOwner:
    """spec: droid of Assignment and Reservation Record; the public tool writes `agent` and reads `droid`."""

    def test_either_key_names_it_and_an_empty_one_says_nothing(self, repo: Repo) -> None:
        bare = repo.reservation("-", "-", "-")
        del bare["agent"], bare["droid"]
        repo.write(
            RESERVATIONS,
            *({**bare, "id": f"qr-{at}", "pattern": f"{at}/**", **owner} for at, owner in enumerate(OWNERS)),
        )

        blocked = repo.refused("reserve", *(f"{at}/x" for at in range(len(OWNERS))), agent="b")
        mine = repo.json("reserved", "--mine", agent="a")
        text = repo.queen("reserved").stdout.splitlines()[1:]
        given = repo.json("unreserve", "--all", agent="a")

        assert len(blocked["conflicts"]) == len(mine) == len(given) == len(OWNERS)
        assert {row.split()[1] for row in text} == {"a"}
        written = repo.records(RESERVATIONS)[len(OWNERS) :]
        assert [(one["agent"], one["droid"], one["status"]) for one in written] == [("a", "a", "released")] * 5

    def test_of_assignments_too(self, repo: Repo) -> None:
        repo.issues(*(f"qb-{at}" for at in range(len(OWNERS))))
        bare = repo.assignment("-", "-", "-")
        del bare["agent"], bare["droid"]
        repo.write(
            ASSIGNMENTS,
            *({**bare, "id": f"qa-{at}", "issue_id": f"qb-{at}", **owner} for at, owner in enumerate(OWNERS)),
        )

        assert len(repo.json("assignments", "--agent", "a")) == len(OWNERS)
        assert repo.refused("claim", "qb-1", agent="b")["kind"] == "AlreadyHeld"
        assert repo.json("claim", "qb-1", agent="a")["id"] == "qa-1"
        repo.json("assign", "qb-3", "b", agent="a")
        old, new = repo.records(ASSIGNMENTS)[len(OWNERS) :]
        assert (old["agent"], old["droid"], old["status"]) == ("a", "a", "reassigned")
        assert (new["previous_agent"], new["previous_droid"]) == ("a", "a")

    def test_what_belongs_to_nobody_stands_in_everybodys_way_and_can_be_removed(self, repo: Repo) -> None:
        orphan = repo.reservation("qr-1", "src/**", "")
        del orphan["agent"], orphan["droid"]
        repo.write(RESERVATIONS, orphan)

        assert repo.queen("check", "src/x", agent="a").code == 1
        assert repo.refused("unreserve", "qr-1", agent="a")["kind"] == "NotYours"
        assert [one["id"] for one in repo.json("unreserve", "qr-1", "--force", agent="a")] == ["qr-1"]


class TestWhatWeDoNotKnow:
    """spec: Migration 1, "Add new fields as optional": those of a newer tool are kept on every rewrite."""

    def test_survives_every_rewrite(self, repo: Repo) -> None:
        theirs = {"x_theirs": {"deep": [1, None, "ü"]}, "zzz": 1.5}
        repo.issues("qb-1", "qb-2", "qb-3")
        repo.write(MESSAGES, repo.message("qm-1", **theirs), repo.message("qm-2", **theirs))
        repo.write(
            ASSIGNMENTS,
            *(repo.assignment(f"qa-{number}", f"qb-{number}", "a", **theirs) for number in (1, 2, 3)),
        )
        repo.write(
            RESERVATIONS,
            *(repo.reservation(f"qr-{number}", f"{number}/**", "a", **theirs) for number in (1, 2, 3)),
        )
        before = {name: len(repo.lines(name)) for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS)}

        repo.json("msg", "read", "qm-1", agent="b")
        repo.json("msg", "delete", "qm-2", agent="b")
        repo.json("release", "qb-1", agent="a")
        repo.json("complete", "qb-2", agent="a")
        repo.json("assign", "qb-3", "b", agent="a")
        repo.json("unreserve", "1/**", agent="a")
        repo.json("renew", "2/**", agent="a")
        repo.json("reserve", "3/**", agent="a")

        for name, count in before.items():
            updates = [one for one in repo.records(name)[count:] if "previous_agent" not in one]
            assert updates
            for update in updates:
                assert {key: update[key] for key in theirs} == theirs
                assert list(update)[-2:] == ["x_theirs", "zzz"]

    def test_an_update_by_another_tool_may_be_partial(self, repo: Repo) -> None:
        """spec: Example Messages, third line; ADR 8."""
        repo.write(MESSAGES, repo.message("qm-1"), {"id": "qm-1", "read": True, "read_at": "2024-12-14T11:00:00Z"})
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"), {"id": "qr-1", "status": "released"})
        repo.write(ASSIGNMENTS, repo.assignment("qa-1", "qb-1", "a"), {"id": "qa-1", "status": "completed"})

        assert repo.json("msg", "inbox", agent="b")[0]["subject"] == "about qm-1"
        assert repo.json("msg", "inbox", "--unread", agent="b") == []
        assert repo.json("reserved") == []
        [ended] = repo.json("assignments", "--status", "completed")
        assert (ended["issue_id"], ended["agent"]) == ("qb-1", "a")

    @pytest.mark.parametrize("line", [{"deleted": True}, {"deleted": True, "status": "active"}])
    def test_a_deleted_reservation_or_assignment_is_gone(self, repo: Repo, line: dict[str, Any]) -> None:
        """spec: Append-Only Semantics 3."""
        repo.issues("qb-1")
        repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"), {"id": "qr-1", **line})
        repo.write(ASSIGNMENTS, repo.assignment("qa-1", "qb-1", "a"), {"id": "qa-1", **line})

        assert repo.json("check", "src/x", agent="b")[0]["allowed"] is True
        assert repo.json("claim", "qb-1", agent="b")["agent"] == "b"


class TestHowLinesAreWritten:
    """spec: Append-Only Semantics, as other writers follow it."""

    def test_nanoseconds_carriage_returns_blank_lines_and_no_last_newline_are_fine(self, repo: Repo) -> None:
        """spec: created_at is ISO 8601; the public tool writes nanoseconds and tolerates the rest."""

        def line(identifier: str, created_at: str) -> bytes:
            return json.dumps(repo.message(identifier, created_at=created_at)).encode()

        repo.write(
            MESSAGES,
            line("qm-2", "2024-12-14T10:30:00.123456789Z") + b"\r\n",
            b"\n   \n\r\n",
            line("qm-3", "2024-12-14T11:30:00.9+01:00") + b"\n",
            line("qm-1", "2024-12-14T10:30:00.123456Z"),
        )

        listed = repo.queen("msg", "inbox", "--json", agent="b")
        repo.json("msg", "send", "b", "x", agent="a")

        assert listed.stderr == ""
        assert [one["id"] for one in listed.json] == ["qm-3", "qm-2", "qm-1"]
        assert [one["created_at"] for one in listed.json][1] == "2024-12-14T10:30:00.123456789Z"
        assert len(repo.json("msg", "inbox", agent="b")) == 4

    def test_reservations_of_other_writers_end_when_they_say(self, repo: Repo) -> None:
        repo.write(
            RESERVATIONS,
            json.dumps(repo.reservation("qr-1", "1/**", "a", expires_at="2099-01-01T00:00:00.123456789+09:00")).encode()
            + b"\r\n",
            repo.reservation("qr-2", "2/**", "a", expires_at="2020-01-01T00:00:00.5-08:00"),
            repo.reservation("qr-3", "3/**", "a", expires_at="some day"),
            repo.reservation("qr-4", "bad[", "a"),
        )

        held = repo.json("reserved")

        assert sorted(one["id"] for one in held) == ["qr-1", "qr-3", "qr-4"]
        assert repo.queen("check", "bad[", agent="b").code == 1

    def test_a_line_as_long_as_other_tools_can_read_is_written_and_one_byte_more_is_refused(self, repo: Repo) -> None:
        """A line over 65,535 bytes stops the public tool from reading the whole file."""
        repo.json("msg", "send", "b", "x", agent="a")
        overhead = len(repo.lines(MESSAGES)[0]) - 1
        longest, refused = 0, None
        size = LONGEST_LINE_BYTES - overhead

        # The time in a record is a digit shorter now and then, so one attempt may miss the border by a byte or two.
        while longest < LONGEST_LINE_BYTES or refused is None:
            before = (repo.beads / MESSAGES).read_bytes()
            answer = repo.queen("msg", "send", "b", "-", "--json", agent="a", stdin="y" * size)
            if answer.code == 0:
                longest = max(len(line) for line in repo.lines(MESSAGES))
                assert longest <= LONGEST_LINE_BYTES
                size += 1
            else:
                assert (answer.code, answer.stdout) == (1, "")
                assert (repo.beads / MESSAGES).read_bytes() == before
                refused = answer.fault
                size -= 1

        assert refused["kind"] == "LineTooLong"
        assert "bytes too long: a record may take 65535" in refused["error"]

    def test_a_message_that_fills_its_line_can_be_read_and_deleted(self, repo: Repo) -> None:
        """An update that has no room for the body goes without, and the body is kept."""
        full = repo.message("qm-1", body="")
        full["body"] = "y" * (LONGEST_LINE_BYTES - len(json.dumps(full, separators=(",", ":"))))
        repo.write(MESSAGES, json.dumps(full, separators=(",", ":")).encode() + b"\n")

        shown = repo.json("msg", "read", "qm-1", agent="b")
        again = repo.json("msg", "inbox", agent="b")
        repo.json("msg", "delete", "qm-1", agent="b")

        assert (shown["read"], shown["body"], again) == (True, full["body"], [shown])
        assert [len(line) <= LONGEST_LINE_BYTES for line in repo.lines(MESSAGES)] == [True, True, True]
        assert repo.json("msg", "inbox", agent="b") == []
