"""Which repositories, workspaces, Redis servers and ops servers are in my yard.

`queueyard.toml`, found upwards from where one stands, lists them; what stands in its folder, and in the one where one
stands, is found without being listed. This file only knows names and addresses: it opens no place and starts nothing.

    [[place]]
    system = "queen"
    at = "../other-repository"
"""

from __future__ import annotations

from pathlib import Path
import tomllib
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from queueyard.kernel.atomic import read_document, replace_file
from queueyard.kernel.errors import QueueyardError, explaining
from queueyard.kernel.events import System
from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator

YARD_FILE = "queueyard.toml"
#: what a folder holds that belongs to a system
_SIGNS = {System.QUEEN: ".beads", System.RUNFORGE: ".runforge", System.JJQ: ".jj/repo/jjq"}
#: what a folder must hold to be listed; any of them
_SIGNS_OF_FOLDERS = {System.QUEEN: (".beads",), System.RUNFORGE: (".runforge", ".ml"), System.JJQ: (".jj",)}
_HOW_TO_MAKE = {
    System.QUEEN: "Make one there: mkdir .beads    (or: bd init)",
    System.RUNFORGE: "Make one there: mkdir .runforge",
    System.JJQ: "Make one there: jj git init",
}
_LOCK_TIMEOUT_S = 10.0


class BadPlace(QueueyardError):
    """An address is none, or leads to something else than what was said."""


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
    """The yard around a folder. CorruptFile if its list makes no sense."""
    found = next((folder for folder in (start, *start.parents) if (folder / YARD_FILE).is_file()), None)
    root = found or start
    listed = listed_places(root)
    known = {(place.system, place.at) for place in listed}
    found_here = [place for folder in dict.fromkeys([root, start]) for place in _found_in(folder)]
    return Yard(
        root=str(root),
        places=[*listed, *(place for place in found_here if (place.system, place.at) not in known)],
    )


def listed_places(root: Path) -> list[Place]:
    """The places that the list of a yard names; folders are relative to it."""
    path = root / YARD_FILE
    file = read_document(path, _decode, repair=f"Look at it: cat {path}")
    if file is None:
        return []
    return [_resolved(place, root) for place in file.place]


def parts_of(url: str) -> SplitResult | None:
    """The parts of the address of a server; None if it cannot be told which of them are secret.

    That is so where a password holds a `/`, `#` or `?` as it is: the rest of it, and the `@`, are then behind the host.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    is_socket = parts.scheme.endswith("unix") and not parts.netloc
    behind = f"{parts.path}{parts.query}{parts.fragment}"
    return None if "@" in behind and not is_socket else parts


def shown(place: Place) -> str:
    """The address as people may see it: without user, password and files of keys."""
    if place.is_folder:
        return place.at
    parts = parts_of(place.at)
    if parts is None:
        return f"{place.at.partition('://')[0]}://..."
    database = parse_qs(parts.query).get("db")
    query = f"?db={database[0]}" if database else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}{fragment}"


def add(root: Path, place: Place) -> bool:
    """List a place; False if it is listed already. BadPlace if there is no such thing."""
    checked = check(place)
    with _locked(root):
        listed = listed_places(root)
        if checked in listed:
            return False
        _save(root, [*listed, checked])
    return True


def remove(root: Path, place: Place) -> bool:
    """Take a place off the list; False if it was not listed. What is in the place stays as it is."""
    with _locked(root):
        listed = listed_places(root)
        left = [one for one in listed if one != place]
        if left == listed:
            return False
        _save(root, left)
    return True


def place_at(system: System, at: str, *, cwd: Path) -> Place:
    """What a person means by an address: a URL as it is, or a folder seen from where they stand."""
    if "://" in at or system is System.PANQUEUE:
        return Place(system=system, at=at)
    return _resolved(Place(system=system, at=at), cwd)


def check(place: Place) -> Place:
    """The place, if it may be one of its system. BadPlace says what is wrong and what to type."""
    if place.system is System.PANQUEUE:
        from queueyard.panqueue.address import parse_address  # noqa: PLC0415

        parse_address(place.at)
    elif not place.is_folder:
        _check_server(place)
    elif not Path(place.at).is_dir():
        raise BadPlace(f"there is no folder {place.at}", hint=f"Make it: mkdir -p {place.at}")
    elif (signs := _SIGNS_OF_FOLDERS.get(place.system)) and not any(_is_there(place.at, sign) for sign in signs):
        wanted = " or ".join(signs)
        raise BadPlace(f"{place.at} is no place of {place.system}: no {wanted} in it", hint=_HOW_TO_MAKE[place.system])
    return place


def _check_server(place: Place) -> None:
    if place.system is not System.OPS:
        raise BadPlace(f"a place of {place.system} is a folder", hint=f"For example: queueyard add {place.system} .")
    from queueyard.ops.transport import origin_of  # noqa: PLC0415

    origin_of(place.at)


def _is_there(at: str, sign: str) -> bool:
    return Path(at, sign).is_dir() or Path(at).name == sign


def _locked(root: Path) -> FileLock:
    """Nobody else changes the list meanwhile. The lock stays where it is: who waits for it holds it by its name."""
    folder = root / ".queueyard"
    with explaining("write", folder):
        folder.mkdir(exist_ok=True)
    return FileLock(folder / "places.lock", timeout_s=_LOCK_TIMEOUT_S)


def _save(root: Path, places: list[Place]) -> None:
    """Write the list of a yard: the whole of it, or nothing. It may hold the password of a server."""
    lines = ["# The places of this yard; `queueyard add` and `queueyard remove` write it."]
    for place in places:
        lines += ["", "[[place]]", f"system = {_quoted(place.system)}", f"at = {_quoted(_portable(place, root))}"]
    has_secrets = any(shown(place) != place.at for place in places)
    replace_file(root / YARD_FILE, ("\n".join(lines) + "\n").encode(), mode=0o600 if has_secrets else None)


def _portable(place: Place, root: Path) -> str:
    """A folder in the yard as seen from its root, so that the whole yard may be moved."""
    if not place.is_folder or not Path(place.at).is_relative_to(root.resolve()):
        return place.at
    return str(Path(place.at).relative_to(root.resolve()))


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
