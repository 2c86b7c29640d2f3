"""Events of several places, merged: each once, in the order of time, whatever a place does."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.events import Event, Kind, System
from queueyard.yard import events as merging
from queueyard.yard.events import Listening, since
from queueyard.yard.places import Place

if TYPE_CHECKING:
    from pathlib import Path


def event(number: int, at: str) -> Event:
    return Event(id=f"{number:026d}", at=at, system=System.RUNFORGE, source="/w", queue="q", item="i", kind=Kind.QUEUED)


def workspace(root: Path, *told: Event) -> Place:
    folder = root / ".runforge" / "queue"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in told))
    return Place(system=System.RUNFORGE, at=str(root))


def test_places_are_merged_by_time_however_it_is_written(tmp_path: Path) -> None:
    one = workspace(tmp_path / "a", event(1, "2026-01-01T00:00:00.5Z"), event(3, "2026-01-01T00:00:01Z"))
    other = workspace(tmp_path / "b", event(2, "2026-01-01T00:00:00Z"), event(4, "2026-01-01T00:00:00.75Z"))

    told = Listening([one, other], note=pytest.fail).history()

    assert [int(one.id) for one in told] == [2, 1, 4, 3]


def test_an_event_that_two_places_tell_comes_once(tmp_path: Path) -> None:
    same = event(1, "2026-01-01T00:00:00Z")

    told = Listening([workspace(tmp_path / "a", same), workspace(tmp_path / "b", same)], note=pytest.fail).history()

    assert told == [same]


def test_a_time_that_nobody_can_read_comes_first_and_breaks_nothing(tmp_path: Path) -> None:
    place = workspace(tmp_path, event(1, "2026-01-01T00:00:00Z"), event(2, "yesterday"))

    told = Listening([place], note=pytest.fail).history()

    assert [int(one.id) for one in told] == [2, 1]
    assert since(told, datetime(2020, 1, 1, tzinfo=UTC), None) == [told[1]]


def test_only_so_many_ids_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_MOST_REMEMBERED", 3)
    place = workspace(tmp_path, *(event(number, "2026-01-01T00:00:00Z") for number in range(10)))
    listening = Listening([place], note=pytest.fail)

    assert len(listening.history()) == 10
    assert len(listening._seen) == 3


def test_a_place_that_cannot_be_read_is_told_and_the_others_are_there(tmp_path: Path) -> None:
    good = workspace(tmp_path / "a", event(1, "2026-01-01T00:00:00Z"))
    bad = Place(system=System.QUEEN, at=str(tmp_path / "nowhere"))
    notes: list[str] = []

    told = Listening([bad, good], note=notes.append).history()

    assert len(told) == 1
    [note] = notes
    assert note.startswith(f"queen {tmp_path}/nowhere: ")


@pytest.mark.parametrize(("limit", "left"), [(None, [1, 2, 3]), (2, [2, 3]), (0, []), (9, [1, 2, 3])])
def test_the_latest_are_kept(limit: int | None, left: list[int]) -> None:
    told = [event(number, f"2026-01-0{number}T00:00:00Z") for number in (1, 2, 3)]

    assert [int(one.id) for one in since(told, None, limit)] == left
