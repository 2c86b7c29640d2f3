"""Commands to bytes, bytes to replies: the part of the Redis protocol (RESP2) that panqueue speaks.

The C library hiredis does it where it is installed; the fallback in plain Python is correct and slower. Error replies
are values here (`Refusal`), because a batch must see all its answers; whoever reads a reply decides what to raise.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_hiredis: Any = None
with suppress(ImportError):  # the extra `panqueue` brings it; nothing but speed depends on it
    _hiredis = import_module("hiredis")

#: what can stand in a command
Word = str | bytes | int
#: bytes, int, None, a list of replies, or a Refusal
Reply = Any


class Refusal(Exception):
    """An error reply of the server; the first word of its text says which."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class Incomplete:
    """Stands for "no whole reply yet"."""


INCOMPLETE = Incomplete()


def pack(words: Sequence[Word]) -> bytes:
    """One command as the server reads it."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if type(word) is bytes else str(word).encode("utf-8", "surrogateescape")
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


class PlainReader:
    """Collects bytes and gives replies one by one."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        self._data += data

    def gets(self) -> Reply:
        """The next reply, or INCOMPLETE."""
        try:
            reply, end = self._read(0)
        except IndexError:
            return INCOMPLETE
        del self._data[:end]
        return reply

    def _line(self, start: int) -> tuple[bytes, int]:
        end = self._data.find(b"\r\n", start)
        if end < 0:
            raise IndexError
        return bytes(self._data[start:end]), end + 2

    def _read(self, start: int) -> tuple[Reply, int]:
        line, after = self._line(start)
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            return self._bulk(int(rest), after)
        if kind == b":":
            return int(rest), after
        if kind == b"+":
            return rest, after
        if kind == b"-":
            return Refusal(rest.decode("utf-8", "replace")), after
        if kind == b"*":
            return self._array(int(rest), after)
        raise Refusal(f"PROTOCOL unexpected reply {line[:40]!r}")

    def _bulk(self, length: int, start: int) -> tuple[bytes | None, int]:
        if length < 0:
            return None, start
        if len(self._data) < start + length + 2:
            raise IndexError
        return bytes(self._data[start : start + length]), start + length + 2

    def _array(self, length: int, start: int) -> tuple[list[Reply] | None, int]:
        if length < 0:
            return None, start
        found = []
        for _ in range(length):
            reply, start = self._read(start)
            found.append(reply)
        return found, start


def _pack_in_c(words: Sequence[Word]) -> bytes:
    raw: bytes = _hiredis.pack_command(tuple(words))
    return raw


def _reader_in_c() -> Any:
    return _hiredis.Reader(replyError=Refusal, protocolError=Refusal, notEnoughData=INCOMPLETE)


#: the fast pair where there is one
packed: Callable[[Sequence[Word]], bytes] = pack if _hiredis is None else _pack_in_c
new_reader: Callable[[], Any] = PlainReader if _hiredis is None else _reader_in_c
