"""Everything that can be wrong with what is typed, what is in the files, and what the disk does: a clear error,
nothing lost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from contract.conftest import Repo

MESSAGES = "queen_messages.jsonl"
ASSIGNMENTS = "queen_assignments.jsonl"
RESERVATIONS = "queen_reservations.jsonl"


class TestLinesThatNobodyCanRead:
    """spec: Reading Latest State; ADR 3, readers pass over a bad line and tell it."""

    @pytest.mark.parametrize(
        "bad",
        [
            b'{"id":"qm-9","to":"b",\n',
            b"<<<<<<< HEAD\n",
            b"[1,2]\n",
            b'{"to":"b"}\n',
            b'{"id":7}\n',
            b"\xff\xfe\n",
            b"[" * 5000 + b"\n",
        ],
    )
    def test_one_in_the_middle_is_told_with_file_line_and_byte_and_the_others_are_intact(
        self, repo: Repo, bad: bytes
    ) -> None:
        path = repo.write(MESSAGES, repo.message("qm-1"), bad, repo.message("qm-2", created_at="2025-01-01T00:00:00Z"))
        byte = len(repo.lines(MESSAGES)[0]) + 1
        before = path.read_bytes()

        answer = repo.queen("msg", "inbox", "--json", agent="b")

        assert (answer.code, [one["id"] for one in answer.json]) == (0, ["qm-2", "qm-1"])
        assert len(answer.warnings) == 1
        assert answer.warnings[0].startswith(f"{path}: line 2 (byte {byte}): ")
        assert answer.warnings[0].endswith("; see: queen doctor")
        assert path.read_bytes() == before

    @pytest.mark.parametrize(
        ("name", "words"), [(ASSIGNMENTS, ["assignments"]), (RESERVATIONS, ["reserved"])], ids=["assign", "reserve"]
    )
    def test_in_the_other_files_too_also_where_a_value_has_the_wrong_type(
        self, repo: Repo, name: str, words: list[str]
    ) -> None:
        make = repo.assignment if name == ASSIGNMENTS else repo.reservation
        path = repo.write(
            name, make("1", "x", "a"), b"nonsense\n", make("2", "y", "a", status="perhaps"), make("3", "z", "a")
        )

        answer = repo.queen(*words, "--json")

        assert (answer.code, sorted(one["id"] for one in answer.json)) == (0, ["1", "3"])
        assert answer.warnings[0].startswith(f"{path}: line 2 (byte ")
        assert answer.warnings[0].endswith("(and 1 more); see: queen doctor")

    def test_after_a_torn_tail_the_next_record_is_whole(self, repo: Repo) -> None:
        """ADR 3: an append first ends a line that has no end."""
        repo.issues("qb-1")
        torn = {MESSAGES: b'{"id":"qm-', ASSIGNMENTS: b'{"id":"qa-', RESERVATIONS: b'{"id":"qr-'}
        repo.write(MESSAGES, repo.message("qm-1"), torn[MESSAGES])
        repo.write(ASSIGNMENTS, torn[ASSIGNMENTS])
        repo.write(RESERVATIONS, torn[RESERVATIONS])

        sent = repo.json("msg", "send", "b", "x", agent="a")
        claimed = repo.json("claim", "qb-1", agent="a")
        repo.json("reserve", "src/**", agent="a")

        assert {one["id"] for one in repo.json("msg", "inbox", agent="b")} == {"qm-1", sent["id"]}
        assert repo.json("assignments") == [claimed]
        assert len(repo.json("reserved")) == 1
        for name, tail in torn.items():
            assert tail in repo.lines(name)

    def test_a_warning_does_not_hide_the_error_object(self, repo: Repo) -> None:
        repo.write(RESERVATIONS, b"nonsense\n", repo.reservation("qr-1", "src/**", "a"))

        answer = repo.queen("reserve", "src/x", "--json", agent="b")

        assert len(answer.warnings) == 1
        assert answer.fault["kind"] == "ReservationConflict"


class TestWhatIsTyped:
    """spec: Validation Rules; ADR 11."""

    @pytest.mark.parametrize(
        "pattern", ["bad[", "a{b", "a}", "", "..", "../x", "/etc/passwd", "a/../../x", "a\\", "[z-a]", "{1,2}" * 20]
    )
    def test_a_malformed_pattern_is_refused(self, repo: Repo, pattern: str) -> None:
        """spec: Validation Rules, Reservations 2."""
        told = repo.refused("reserve", "fine", pattern, agent="a")

        assert told["kind"] in {"BadPattern", "InvalidValue"}
        assert told["hint"]
        assert repo.lines(RESERVATIONS) == []

    @pytest.mark.parametrize("ttl", ["0s", "-1h", "90", "soon", "0.0000001s", "200000d"])
    def test_an_end_must_lie_behind_its_start(self, repo: Repo, ttl: str) -> None:
        """spec: Validation Rules, Reservations 3."""
        told = repo.refused("reserve", "x", "--ttl", ttl, agent="a")

        assert told["kind"] in {"InvalidValue", "BadTime"}
        assert told["hint"]
        assert repo.lines(RESERVATIONS) == []

    def test_an_unknown_droid_reserves_nothing(self, repo: Repo) -> None:
        """spec: Validation Rules, Reservations 4."""
        repo.droids("ui-engineer")

        told = repo.refused("reserve", "x", agent="ui-enginer")

        assert told["error"] == "unknown droid: 'ui-enginer'; did you mean 'ui-engineer'?"
        assert repo.lines(RESERVATIONS) == []

    def test_a_body_that_is_too_long_is_refused_whole(self, repo: Repo) -> None:
        repo.droids("a", "b", "c")

        told = repo.refused("msg", "send", "@all", "-", agent="a", stdin="ü" * 40_000)

        assert told["kind"] == "LineTooLong"
        assert told["hint"] == "Put the text in a file of the repository and send its path."
        assert repo.lines(MESSAGES) == []

    def test_bytes_that_are_no_text_are_refused(self, repo: Repo) -> None:
        for words in (("msg", "send", "b", b"\xff"), ("reserve", b"\xff"), ("msg", "read", b"\xff")):
            assert repo.refused(*words, agent="a")["kind"] == "InvalidValue"
        assert repo.refused("msg", "send", "b", "-", agent="a", stdin=b"ok \xff")["kind"] == "InvalidValue"
        assert not list(repo.beads.glob("*.jsonl"))

    def test_an_unknown_command_option_or_choice_is_a_usage_error(self, repo: Repo) -> None:
        near = repo.queen("reserv", "x", agent="a")

        assert (near.code, near.stdout) == (2, "")
        assert "Did you mean 'reserve'?" in near.stderr
        assert repo.queen("msg", "send", agent="a").code == 2
        assert repo.queen("assignments", "--status", "lost").code == 2


class TestWhatTheDiskDoes:
    """ADR 3: the old content is there, or the new one."""

    def test_in_a_read_only_folder_reading_works_and_writing_says_why_not(self, read_only_repo: Repo) -> None:
        repo = read_only_repo
        before = repo.contents()

        assert [one["id"] for one in repo.json("msg", "inbox", agent="b")] == ["qm-1"]
        assert repo.json("msg", "read", "qm-1", "--peek", agent="b")["body"] == "text of qm-1"
        assert repo.queen("check", "src/x", agent="b").code == 1
        assert repo.json("check", "docs/x", agent="b")[0]["allowed"] is True
        for words in (
            ("msg", "send", "b", "x"),
            ("reserve", "docs/**"),
            ("claim", "qb-1"),
            ("config", "set", "ttl", "1h"),
        ):
            told = repo.refused(*words, agent="a")
            assert told["kind"] == "StorageFailed"
            assert str(repo.beads) in told["error"]
            assert told["hint"] == "The file system is read-only: use another folder, or mount it writable."
        assert repo.contents() == before

    def test_on_a_full_disk_nothing_is_lost_and_it_goes_on_once_there_is_room(
        self, repo_on_small_disk: Repo, small_disk: Path
    ) -> None:
        repo = repo_on_small_disk
        repo.issues("qb-1")
        repo.json("msg", "send", "b", "x", agent="a")
        repo.json("reserve", "src/**", agent="a")
        repo.json("claim", "qb-1", agent="a")
        filler = fill_up(small_disk)
        before = {name: (repo.beads / name).read_bytes() for name in (MESSAGES, RESERVATIONS, ASSIGNMENTS)}

        # Longer than what is left of the file's last block.
        long = "y" * 8000
        for words in (
            ("msg", "send", "b", long),
            ("reserve", "docs/**", "--reason", long),
            ("release", "qb-1", "--reason", long),
            ("config", "set", "ttl", "1h"),
        ):
            told = repo.refused(*words, agent="a")
            assert told["kind"] == "StorageFailed"
            assert "No space left on device" in told["error"]
            assert told["hint"] == "Free some space on that disk, then run the same command again."
        assert {name: (repo.beads / name).read_bytes() for name in before} == before
        assert len(repo.json("msg", "inbox", agent="b")) == 1

        filler.unlink()
        repo.json("msg", "send", "b", long, agent="a")
        assert len(repo.lines(MESSAGES)) == 2

    def test_a_folder_where_a_file_should_be(self, repo: Repo) -> None:
        (repo.beads / MESSAGES).mkdir()

        for words in (("msg", "inbox"), ("msg", "send", "b", "x")):
            told = repo.refused(*words, agent="a")
            assert told["kind"] == "StorageFailed"
            assert str(repo.beads / MESSAGES) in told["error"]

    def test_somebody_who_holds_the_lock_too_long_is_named(self, repo: Repo) -> None:
        from queueyard.kernel.locks import FileLock

        repo.json("reserve", "x", agent="a")
        with FileLock(repo.beads / ".queen" / "lock"):
            told = repo.refused("reserve", "y", agent="a", QUEEN_LOCK_TIMEOUT_S="0")

        assert told["kind"] == "LockTimeout"
        assert f"pid {os.getpid()} " in told["error"]
        assert len(repo.lines(RESERVATIONS)) == 1


def fill_up(disk: Path) -> Path:
    """Take the last byte of the disk; removing the file that is given back makes room again."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, b"x" * 1_000_000)  # cut short where the disk ends
    with pytest.raises(OSError, match="No space left"):
        os.write(descriptor, b"x")
    os.close(descriptor)
    return filler
