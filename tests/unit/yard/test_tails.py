"""Files that are followed while others append to them, replace them and cut them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.events import Event, Kind, System
from queueyard.yard.tails.files import GrowingFile, JournalTail
from queueyard.yard.tails.queen import QueenTail

if TYPE_CHECKING:
    from pathlib import Path


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


def test_only_whole_lines_are_given_and_each_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    file = GrowingFile(path)

    assert file.new_lines() == []
    append(path, "one\ntw")
    assert file.new_lines() == [b"one"]
    assert file.new_lines() == []
    append(path, "o\nthree\n")
    assert file.new_lines() == [b"two", b"three"]


def test_a_file_in_the_place_of_another_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    append(path, "one\ntwo\n")
    file = GrowingFile(path)
    file.new_lines()

    replace_file(path, b"two\nthree\n")

    assert file.new_lines() == [b"two", b"three"]


def test_a_file_that_was_cut_and_written_anew_is_noticed_by_its_content(tmp_path: Path) -> None:
    """The same inode, and no shorter than before."""
    path = tmp_path / "journal"
    append(path, "one\ntwo\n")
    file = GrowingFile(path)
    file.new_lines()

    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, b"three\nfour\nfive\n")
    os.close(descriptor)

    assert file.new_lines() == [b"three", b"four", b"five"]


def test_a_journal_leaves_out_what_is_no_event(tmp_path: Path) -> None:
    event = Event(
        id="01",
        at="2026-01-01T00:00:00Z",
        system=System.JJQ,
        source="/r",
        queue="main",
        item="000001",
        kind=Kind.QUEUED,
    )
    append(tmp_path / "journal", '{"torn\nnull\n' + msgspec.json.encode(event).decode() + "\n")

    assert list(JournalTail(lambda: [tmp_path / "journal"]).read()) == [event]


def test_a_journal_that_comes_later_is_found(tmp_path: Path) -> None:
    tail = JournalTail(lambda: sorted(tmp_path.glob("*.jsonl")))
    assert list(tail.read()) == []

    append(
        tmp_path / "a.jsonl", '{"id":"1","at":"x","system":"ops","source":"","queue":"","item":"","kind":"queued"}\n'
    )

    assert [event.id for event in tail.read()] == ["1"]


class TestQueen:
    @staticmethod
    def message(identifier: str, **fields: Any) -> str:
        told = {
            "id": identifier,
            "created_at": "2026-01-01T10:00:00Z",
            "from": "a",
            "to": "b",
            "body": "x",
            "read": False,
        }
        return json.dumps(told | fields) + "\n"

    def test_lines_become_events_as_they_are_added(self, tmp_path: Path) -> None:
        (tmp_path / ".beads").mkdir()
        path = tmp_path / ".beads" / "queen_messages.jsonl"
        append(path, self.message("qm-1"))
        tail = QueenTail(str(tmp_path))

        assert [event.kind for event in tail.read()] == [Kind.QUEUED]
        append(path, self.message("qm-1", read=True, read_at="2026-01-01T11:00:00Z"))
        assert [(event.item, event.kind) for event in tail.read()] == [("qm-1", Kind.READ)]
        assert list(tail.read()) == []

    def test_a_file_that_git_wrote_anew_tells_nothing_twice(self, tmp_path: Path) -> None:
        (tmp_path / ".beads").mkdir()
        path = tmp_path / ".beads" / "queen_messages.jsonl"
        append(path, self.message("qm-1") + self.message("qm-1", read=True))
        tail = QueenTail(str(tmp_path))
        list(tail.read())

        replace_file(path, (self.message("qm-2") + self.message("qm-1") + self.message("qm-1", read=True)).encode())

        assert [event.item for event in tail.read()] == ["qm-2"]
