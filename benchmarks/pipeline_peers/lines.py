"""Reservations of queen as growing JSONL, made fast: the same count gives the same bytes.

Five lines per reservation: made, renewed three times, released. Some changes are told as whole records and some by the
changed fields alone, as the tools of the format do both. A thousand reservations are open at a time, so the lines of
one are far apart. Two things are in favour of the peers: each line has a number (`seq`), which the pipeline does not
use, so that they may order by it and read in parallel; and no line clears a field by null, because a reader with a
schema cannot tell that from a field which is not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPEN = 1_000
LINES_PER_RECORD = 5
_WHOLE = (
    b'{"id":"qr-%026d","seq":%d,"created_at":"2026-03-%02dT08:%02d:%02d.%06dZ","expires_at":"2026-03-%02dT%02d:%02d:%02d'
    b'.000000Z","pattern":"src/module_%03d/**","issue_id":"bd-%d","agent":"agent-%02d","droid":"agent-%02d",'
    b'"status":"active","exclusive":%s,"reason":"editing the %d files of this part"}\n'
)
_RENEWED = (
    b'{"id":"qr-%026d","seq":%d,"expires_at":"2026-03-%02dT%02d:%02d:%02d.000000Z",'
    b'"renewed_at":"2026-03-%02dT%02d:%02d:%02d.000000Z"}\n'
)
_RELEASED = b'{"id":"qr-%026d","seq":%d,"released_at":"2026-03-%02dT%02d:%02d:%02d.000000Z","status":"released"}\n'


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
        day, minute, second = record // 86_400 % 28 + 1, record // 60 % 60, record % 60
        hour = 9 + change
        if change == 4:
            yield _RELEASED % (record, number, day, hour, minute, second)
        elif change == 2:
            yield _RENEWED % (record, number, day, hour, minute, second, day, hour - 1, minute, second)
        else:
            agent, is_exclusive = record * 7 % 40, b"true" if record % 3 else b"false"
            made = (day, minute, second, record % 1_000_000)
            what = (record * 13 % 500, record // 9, agent, agent, is_exclusive, record % 90)
            yield _WHOLE % (record, number, *made, day, hour, minute, second, *what)
