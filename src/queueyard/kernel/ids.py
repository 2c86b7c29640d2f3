"""Identifiers: ULIDs that sort by time, prefixed ids, and zero-padded sequence ids.

New ids are always 26 characters long. Reading is lenient, because the formats that we share hold shorter ones
(`qm-01HZ1A`): such an id is kept as it is and merely has no time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import os
import threading
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_VALUE_OF = {character: value for value, character in enumerate(_ALPHABET)}
_READ_AS = str.maketrans("ILOilo", "110110")
_RANDOM_BITS = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ULID_LENGTH = 26


def _bits_of_the_system(count: int) -> int:
    # What the module secrets does, without its imports.
    return int.from_bytes(os.urandom((count + 7) // 8), "big") >> (-count % 8)


class UlidSource:
    """Makes ULIDs that strictly increase, across threads and even when the clock steps back."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, random_bits: Callable[[int], int] = _bits_of_the_system) -> None:
        self._clock = clock
        self._random_bits = random_bits
        self._guard = threading.Lock()
        self._last = 0

    def new(self) -> str:
        milliseconds = _milliseconds(self._clock.now())
        fresh = milliseconds << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        with self._guard:
            # Same millisecond or a clock that went back: count on, which also carries into the next millisecond.
            same_time = fresh >> _RANDOM_BITS <= self._last >> _RANDOM_BITS
            self._last = self._last + 1 if same_time else fresh
            return _encode(self._last)


_SOURCE = UlidSource()


def new_ulid() -> str:
    """A new ULID, greater than every one that this process made before."""
    return _SOURCE.new()


def new_id(prefix: str) -> str:
    """A new id such as `qm-01J...`."""
    return f"{prefix}-{_SOURCE.new()}"


def derived_ulid(at: datetime, *parts: str) -> str:
    """The same moment and parts always give the same ULID, so that telling a change twice is harmless."""
    # Each part goes in with its length: no separator is safe from standing in a part.
    told = "".join(f"{len(part)}:{part}" for part in parts)
    import hashlib  # noqa: PLC0415  costs 6 ms, and only events need it

    digest = hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
    milliseconds = max(0, _milliseconds(at))
    return _encode(milliseconds << _RANDOM_BITS | int.from_bytes(digest[: _RANDOM_BITS // 8], "big"))


def ulid_time(identifier: str) -> datetime | None:
    """When the id was made, with or without its prefix; None for a short or foreign id."""
    body = _body(identifier).translate(_READ_AS).upper()
    if len(body) != _ULID_LENGTH or body[0] > "7" or any(character not in _VALUE_OF for character in body):
        return None
    value = 0
    for character in body[:10]:
        value = value << 5 | _VALUE_OF[character]
    try:
        return _EPOCH + timedelta(milliseconds=value)
    except OverflowError:
        return None


def find_id(typed: str, known: Iterable[str]) -> list[str]:
    """The known ids that a person may mean by `typed`: the exact one alone, else all that end or start like it.

    Case does not matter and the prefix may be left out, since that is how people copy ids from a table. Nothing
    typed means nothing.
    """
    wanted = typed.casefold()
    same: list[str] = []
    similar: list[str] = []
    for identifier in known if wanted else ():
        if identifier == typed:
            return [identifier]
        folded = identifier.casefold()
        if folded == wanted:
            same.append(identifier)
        elif folded.startswith(wanted) or _body(folded).startswith(wanted) or folded.endswith(wanted):
            similar.append(identifier)
    return same or similar


def sequence_id(number: int, width: int = 6) -> str:
    """`7` as `000007`, so that names sort as numbers; a longer number keeps all its digits."""
    if number < 0:
        raise ValueError(f"a sequence starts at zero, not at {number}")
    return f"{number:0{width}d}"


def _body(identifier: str) -> str:
    return identifier.rpartition("-")[2]


def _milliseconds(moment: datetime) -> int:
    # Whole numbers all the way: a float of seconds times 1000 may land on the millisecond before.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _encode(value: int) -> str:
    # Two characters at a time: ten bits have few enough values for a table.
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(120, -10, -10)])
