from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.events import Event, Journal, Kind, System, event_id, make_event
from queueyard.kernel.ids import ulid_time

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)


def queued(item: str = "m1", **fields: object) -> Event:
    return make_event(
        AT, system=System.QUEEN, source="repo", queue="messages", item=item, kind=Kind.QUEUED, change="1", **fields
    )


class TestEvent:
    def test_telling_a_change_twice_gives_the_same_event(self) -> None:
        assert queued() == queued()
        assert queued().id == event_id(
            AT, system=System.QUEEN, queue="messages", item="m1", kind=Kind.QUEUED, change="1"
        )

    def test_the_id_holds_the_time_of_the_change(self) -> None:
        assert ulid_time(queued().id) == AT
        assert queued().at == "2026-01-31T12:00:00.25Z"

    def test_another_change_has_another_id(self) -> None:
        ids = {
            event_id(AT, system=system, queue=queue, item=item, kind=kind, change=change)
            for system in (System.QUEEN, System.JJQ)
            for queue in ("messages", "assignments")
            for item in ("m1", "m2")
            for kind in (Kind.QUEUED, Kind.READ)
            for change in ("1", "2")
        }

        assert len(ids) == 2**5

    def test_the_source_is_not_part_of_the_id(self) -> None:
        assert msgspec.structs.replace(queued(), source="elsewhere").id == queued().id

    def test_an_event_survives_the_way_through_json(self) -> None:
        event = queued(attempt=2, group="g", actor="a", reason="why", data={"n": [1, None]})

        assert msgspec.json.decode(msgspec.json.encode(event), type=Event) == event

    def test_what_is_not_said_is_not_written(self) -> None:
        assert set(msgspec.json.decode(msgspec.json.encode(queued()))) == {
            "id",
            "at",
            "system",
            "source",
            "queue",
            "item",
            "kind",
        }

    def test_two_events_do_not_share_their_data(self) -> None:
        queued().data["n"] = 1

        assert queued().data == {}


class TestJournal:
    def test_events_are_appended_one_per_line(self, tmp_path: Path) -> None:
        journal = Journal(tmp_path / "events.jsonl", complain=pytest.fail)

        journal.append(queued("m1"), queued("m2"))
        journal.append(queued("m3"))

        lines = journal.path.read_bytes().splitlines()
        assert [msgspec.json.decode(line, type=Event).item for line in lines] == ["m1", "m2", "m3"]

    def test_a_journal_that_cannot_be_written_complains_once_and_never_raises(self, tmp_path: Path) -> None:
        told: list[str] = []
        journal = Journal(tmp_path / "missing" / "events.jsonl", complain=told.append)

        journal.append(queued())
        journal.append(queued())

        assert told == [f"warning: events are not recorded: cannot append to {journal.path}: No such file or directory"]

    def test_a_text_that_json_cannot_hold_does_not_fail_the_operation_either(self, tmp_path: Path) -> None:
        told: list[str] = []
        journal = Journal(tmp_path / "events.jsonl", complain=told.append)

        journal.append(queued("a file named \udcff"))
        journal.append(queued("m2"))

        assert len(told) == 1
        assert [msgspec.json.decode(line)["item"] for line in journal.path.read_bytes().splitlines()] == ["m2"]

    def test_the_complaint_goes_to_stderr(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        Journal(tmp_path / "missing" / "events.jsonl").append(queued())

        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("warning: events are not recorded: ")
