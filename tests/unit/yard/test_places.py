"""Which places are in a yard: found, listed, added and removed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import stat
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.errors import CorruptFile, QueueyardError
from queueyard.kernel.events import System
from queueyard.yard.places import YARD_FILE, Place, add, listed_places, open_yard, place_at, remove, shown

if TYPE_CHECKING:
    from pathlib import Path


def made(root: Path, name: str) -> Place:
    (root / name / ".beads").mkdir(parents=True)
    return place_at(System.QUEEN, name, cwd=root)


def test_the_list_is_found_upwards_and_its_folders_are_relative_to_it(tmp_path: Path) -> None:
    add(tmp_path, made(tmp_path, "repo"))
    below = tmp_path / "some" / "where"
    below.mkdir(parents=True)

    yard = open_yard(below)

    assert (yard.root, yard.places) == (str(tmp_path), [Place(system=System.QUEEN, at=str(tmp_path / "repo"))])


def test_what_stands_in_the_root_and_in_the_current_folder_needs_no_list(tmp_path: Path) -> None:
    (tmp_path / YARD_FILE).touch()
    (tmp_path / ".beads").mkdir()
    (tmp_path / "lab" / ".runforge").mkdir(parents=True)

    yard = open_yard(tmp_path / "lab")

    assert yard.places == [
        Place(system=System.QUEEN, at=str(tmp_path)),
        Place(system=System.RUNFORGE, at=str(tmp_path / "lab")),
    ]


def test_adding_twice_changes_nothing_and_removing_twice_neither(tmp_path: Path) -> None:
    place = made(tmp_path, "repo")

    assert [add(tmp_path, place), add(tmp_path, place)] == [True, False]
    assert listed_places(tmp_path) == [place]
    assert [remove(tmp_path, place), remove(tmp_path, place)] == [True, False]
    assert listed_places(tmp_path) == []


def test_a_yard_that_is_moved_keeps_the_places_within_it(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    add(tmp_path / "before", made(tmp_path / "before", "repo"))

    (tmp_path / "before").rename(tmp_path / "after")

    assert listed_places(tmp_path / "after") == [Place(system=System.QUEEN, at=str(tmp_path / "after" / "repo"))]


def test_places_that_are_added_at_the_same_time_are_all_listed(tmp_path: Path) -> None:
    places = [made(tmp_path, f"repo-{number}") for number in range(12)]

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(lambda place: add(tmp_path, place), places))

    assert sorted(place.at for place in listed_places(tmp_path)) == sorted(place.at for place in places)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {YARD_FILE}


def test_a_password_is_never_shown_and_its_file_is_for_its_owner_only(tmp_path: Path) -> None:
    place = Place(system=System.PANQUEUE, at="redis://ana:secret@127.0.0.1:6379/2?password=secret&db=3")

    add(tmp_path, place)

    assert shown(place) == "redis://127.0.0.1:6379/2?db=3"
    assert stat.S_IMODE((tmp_path / YARD_FILE).stat().st_mode) == 0o600
    assert listed_places(tmp_path) == [place]


@pytest.mark.parametrize("login", [":se/cret", ":se#cret", "ana:se?cret", "/secret", ":se[cret", "ana:a@b/secret"])
def test_nothing_is_shown_of_an_address_whose_password_is_not_escaped(login: str) -> None:
    assert shown(Place(system=System.PANQUEUE, at=f"redis://{login}@host:6379/0")) == "redis://..."


def test_a_socket_may_have_any_name() -> None:
    at = "unix:///run/me@home.sock?db=1"

    assert shown(Place(system=System.PANQUEUE, at=at)) == at


@pytest.mark.parametrize(
    ("system", "at", "told"),
    [
        (System.QUEEN, "nowhere", "there is no folder"),
        (System.QUEEN, ".", r"no \.beads in it"),
        (System.RUNFORGE, ".", r"no \.runforge or \.ml in it"),
        (System.JJQ, ".", r"no \.jj in it"),
        (System.JJQ, "http://127.0.0.1", "a place of jjq is a folder"),
        (System.PANQUEUE, "localhost", "not a Redis URL"),
        (System.OPS, "http://ana:secret@127.0.0.1", "holds no login"),
        (System.OPS, "ftp://127.0.0.1", "not the address of a server"),
    ],
)
def test_what_is_no_place_is_refused_with_what_to_do(tmp_path: Path, system: System, at: str, told: str) -> None:
    with pytest.raises(QueueyardError, match=told) as refused:
        add(tmp_path, place_at(system, at, cwd=tmp_path))

    assert refused.value.hint
    assert "secret" not in str(refused.value) + refused.value.hint
    assert not (tmp_path / YARD_FILE).exists()


def test_a_list_that_makes_no_sense_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / YARD_FILE).write_text('[[place]]\nsystem = "queue"\nat = "."\n', encoding="utf-8")

    with pytest.raises(CorruptFile, match=YARD_FILE):
        open_yard(tmp_path)
