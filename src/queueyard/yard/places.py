"""Which repositories, workspaces, Redis servers and ops servers are in my yard.

`queueyard.toml`, found upwards from where one stands, lists them; what stands in the folder itself is found without
being listed. This file only knows names and addresses: it opens no place and starts nothing.

    [[place]]
    system = "queen"
    at = "../other-repository"
"""

from __future__ import annotations

from pathlib import Path
import tomllib
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import read_document, replace_file
from queueyard.kernel.errors import BadSettings
from queueyard.kernel.events import System

if TYPE_CHECKING:
    from collections.abc import Iterator

YARD_FILE = "queueyard.toml"
#: what a folder holds that belongs to a system
_SIGNS = {System.QUEEN: ".beads", System.RUNFORGE: ".runforge", System.JJQ: ".jj/repo/jjq"}
_LOCAL = frozenset(_SIGNS)


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One place that a system keeps its state in."""

    system: System
    #: a folder as an absolute path, or the URL of a server
    at: str

    @property
    def is_folder(self) -> bool:
        return "://" not in self.at


class _YardFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    place: list[Place] = []


class Yard(msgspec.Struct, frozen=True, kw_only=True):
    """All places, those that are listed first."""

    #: where the list stands, or would be made
    root: str
    places: list[Place]


def open_yard(start: Path) -> Yard:
    """The yard around a folder. BadSettings if its list makes no sense."""
    found = next((folder for folder in (start, *start.parents) if (folder / YARD_FILE).is_file()), None)
    root = found or start
    listed = listed_places(root)
    known = {(place.system, place.at) for place in listed}
    return Yard(
        root=str(root),
        places=[*listed, *(place for place in _found_in(root) if (place.system, place.at) not in known)],
    )


def listed_places(root: Path) -> list[Place]:
    """The places that the list of a yard names; folders are relative to it."""
    path = root / YARD_FILE
    repair = f"Look at it: cat {path}"
    try:
        file = read_document(path, _decode, repair=repair)
    except msgspec.ValidationError as fault:
        raise BadSettings(f"{path}: {fault}", hint=repair) from fault
    if file is None:
        return []
    return [_resolved(place, root) for place in file.place]


def save(root: Path, places: list[Place]) -> None:
    """Write the list of a yard: the whole of it, or nothing."""
    lines = ["# The places of this yard; `queueyard add` and `queueyard remove` write it."]
    for place in places:
        lines += ["", "[[place]]", f"system = {_quoted(place.system)}", f"at = {_quoted(place.at)}"]
    replace_file(root / YARD_FILE, ("\n".join(lines) + "\n").encode())


def _found_in(root: Path) -> Iterator[Place]:
    for system, sign in _SIGNS.items():
        if (root / sign).exists():
            yield Place(system=system, at=str(root))


def _decode(raw: bytes) -> _YardFile:
    return msgspec.convert(tomllib.loads(raw.decode()), _YardFile)


def _resolved(place: Place, root: Path) -> Place:
    if not place.is_folder:
        return place
    return Place(system=place.system, at=str((root / Path(place.at).expanduser()).resolve()))


def _quoted(text: str) -> str:
    # A basic string of TOML has the escapes of JSON.
    return msgspec.json.encode(text).decode()
