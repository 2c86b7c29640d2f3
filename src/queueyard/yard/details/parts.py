"""A bounded part of a place: the first rows that are wanted, and how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

_R = TypeVar("_R", bound=msgspec.Struct)

#: texts of jobs and messages are shown by their beginning
LONGEST_TEXT = 300
_LONGEST_LOG_BYTES = 64 * 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to see."""

    #: in any column, in any case; empty: everything
    text: str = ""
    #: at most so many rows per part
    limit: int = 100

    def fits(self, row: msgspec.Struct) -> bool:
        wanted = self.text.casefold()
        return not wanted or any(
            wanted in value.casefold() for name in row.__struct_fields__ if isinstance(value := getattr(row, name), str)
        )


class Part(msgspec.Struct, Generic[_R], frozen=True, kw_only=True):
    """Some rows, and how many there are of their kind."""

    rows: list[_R] = []
    total: int = 0


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The end of what a program printed."""

    path: str
    text: str
    #: bytes before the text that are left out
    left_out: int


def part(rows: Iterable[_R], wanted: Wanted) -> Part[_R]:
    """The first of the rows that are wanted."""
    found = [row for row in rows if wanted.fits(row)]
    return Part(rows=found[: wanted.limit], total=len(found))


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def jain(amounts: Collection[float]) -> float | None:
    """Jain's index over what each got: 1 if all got the same, 1/n if one got everything; None if nobody got any."""
    squares = sum(amount * amount for amount in amounts)
    return sum(amounts) ** 2 / (len(amounts) * squares) if squares else None


def end_of_log(path: Path) -> Log:
    """The end of a log, as text whatever its bytes are. OSError."""
    with path.open("rb") as stream:
        left_out = max(0, stream.seek(0, 2) - _LONGEST_LOG_BYTES)
        stream.seek(left_out)
        return Log(path=str(path), text=stream.read().decode("utf-8", "replace"), left_out=left_out)
