"""Reservations of queen as growing JSONL, made fast: the same count gives the same bytes.

Five lines per reservation: made, renewed three times, released. Some changes are told as whole records and some by the
changed fields alone, as the tools of the format do both. Five lines are written per second, so times never go back in
the file. A thousand reservations are open at a time, so the lines of one are far apart: 200 seconds. Each line that
makes or renews one holds it for half an hour from then, and it is released 800 seconds after it was made.

Two things are in favour of the peers: each line has a number (`seq`), which the pipeline does not use, so that they may
order by it and read in parallel; and no line clears a field by null, because a reader with a schema cannot tell that
from a field which is not there.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: where they stand in a repository
FILE = Path(".beads") / "queen_reservations.jsonl"
_OPEN = 1_000
LINES_PER_RECORD = 5
_LINES_PER_SECOND = 5
_HELD_S = 30 * 60
_START = datetime(2026, 3, 1, tzinfo=UTC)
_WHOLE = (
    b'{"id":"qr-%026d","seq":%d,"created_at":"%b.%06dZ","expires_at":"%b.000000Z","pattern":"src/module_%03d/**",'
    b'"issue_id":"bd-%d","agent":"agent-%02d","droid":"agent-%02d","status":"active","exclusive":%s,'
    b'"reason":"editing the %d files of this part"}\n'
)
_RENEWED = b'{"id":"qr-%026d","seq":%d,"expires_at":"%b.000000Z","renewed_at":"%b.000000Z"}\n'
_RELEASED = b'{"id":"qr-%026d","seq":%d,"released_at":"%b.000000Z","status":"released"}\n'


def append_lines(path: Path, count: int, *, first: int = 0) -> None:
    """Append `count` lines; `first` is how many were written before, by this function."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(_lines(first, first + count))


def _lines(begin: int, end: int) -> Iterator[bytes]:
    per_block = _OPEN * LINES_PER_RECORD
    for number in range(begin, end):
        block, within = divmod(number, per_block)
        change, place = divmod(within, _OPEN)
        record = block * _OPEN + place
        second = number // _LINES_PER_SECOND
        if change == 4:
            yield _RELEASED % (record, number, _moment(second))
        elif change == 2:
            yield _RENEWED % (record, number, _moment(second + _HELD_S), _moment(second))
        else:
            agent, is_exclusive = record * 7 % 40, b"true" if record % 3 else b"false"
            made_at = _moment((number - change * _OPEN) // _LINES_PER_SECOND)
            what = (record * 13 % 500, record // 9, agent, agent, is_exclusive, record % 90)
            yield _WHOLE % (record, number, made_at, record % 1_000_000, _moment(second + _HELD_S), *what)


# Enough for every moment that is asked for again: from when an open record was made to when a new one expires.
@lru_cache(maxsize=4096)
def _moment(second: int) -> bytes:
    """Without the fraction and the zone."""
    return (_START + timedelta(seconds=second)).isoformat()[:19].encode()
