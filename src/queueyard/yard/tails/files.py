"""Files that grow: journals of events as they are, and queen's records folded into events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD
from queueyard.kernel.errors import explaining
from queueyard.kernel.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

#: so much of the last line tells whether a file is still the one that was read
_REMEMBERED_BYTES = 256
_T = TypeVar("_T")
_EVENT = msgspec.json.Decoder(Event)


class GrowingFile:
    """The whole lines that were added to one file; all of them again if it was replaced or cut."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._inode = 0
        self._end = b""

    def new_lines(self) -> list[bytes]:
        """Nothing if there is no file (yet). StorageFailed if it cannot be read."""
        with explaining("read", self._path):
            try:
                stream = self._path.open("rb")
            except FileNotFoundError:
                return []
            with stream:
                inode = os.fstat(stream.fileno()).st_ino
                stream.seek(self._read_to - len(self._end))
                if inode != self._inode or stream.read(len(self._end)) != self._end:
                    self._read_to, self._inode, self._end = 0, inode, b""
                    stream.seek(0)
                whole, newline, _ = stream.read().rpartition(b"\n")
        new = whole + newline
        self._read_to += len(new)
        self._end = (self._end + new)[-_REMEMBERED_BYTES:]
        return whole.split(b"\n") if newline else []


class JournalTail:
    """Journals of events; `find` names them anew at each look, since there may be more of them by then."""

    def __init__(self, find: Callable[[], Iterable[Path]]) -> None:
        self._find = find
        self._files: dict[Path, GrowingFile] = {}

    def read(self) -> Iterator[Event]:
        """Lines that nobody can read are left out; the system's own doctor tells about them."""
        for path in self._find():
            for line in self._files.setdefault(path, GrowingFile(path)).new_lines():
                event = understood(line, _EVENT.decode)
                if event is not None:
                    yield event


def understood(line: bytes, decode: Callable[[bytes], _T]) -> _T | None:
    """What a line says; None for one that is torn, empty or of another kind."""
    try:
        return decode(line)
    except NOT_UNDERSTOOD:
        return None
