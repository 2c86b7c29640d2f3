"""What is new in the event streams of a Redis: pure decisions about ranges of entry ids.

Ids of a stream only ever grow, so what lies between two of them stays what it is, except that a stream forgets: old
entries are trimmed away. Where that took entries which were not read yet, the plan says how many, as far as the
counters of the server tell. A stream that was deleted and made anew is read from its start as a new generation.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

START = "0-0"
_HIGHEST_SEQUENCE = (1 << 64) - 1


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it stands now."""

    #: the Redis, without a login
    place: str
    key: str
    #: id of the first entry; None if it has none
    first: str | None
    #: the highest id that it ever gave
    last: str
    length: int
    #: the highest id that was deleted one by one
    deleted: str = START
    #: how many entries ever came in; None where the server does not count
    added: int | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream was read."""

    last: str
    #: the id that the range which led here lies behind
    since: str = START
    generation: int = 0
    #: about how many entries that range has
    entries: int = 0
    #: how many entries had come in up to there, if that is known
    added: int | None = None
    #: how many were trimmed before they could be read, as far as is known
    lost: int = 0


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The entries behind one id, up to and with another."""

    place: str
    key: str
    generation: int
    after: str
    upto: str
    #: about how many
    entries: int = 0


#: place -> key of the stream -> how far
Marks = dict[str, dict[str, Mark]]


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, and the marks behind it."""

    ranges: list[Range]
    marks: Marks
    #: entries that were trimmed unread since the last plan; None if some were and nobody knows how many
    lost: int | None


def queue_of(key: str) -> str:
    """The queue whose stream has this key."""
    return key.removeprefix("{q:").removesuffix("}:events")


def plan(marks: Mapping[str, Mapping[str, Mark]], streams: Iterable[Seen], *, most_entries: int) -> Plan:
    """What is new; about so many entries at most."""
    after: Marks = {place: dict(known) for place, known in marks.items()}
    ranges: list[Range] = []
    losses: list[int | None] = []
    left = most_entries
    for stream in streams:
        mark = marks.get(stream.place, {}).get(stream.key)
        is_anew = mark is not None and _is_made_anew(stream, mark)
        begin = _begin(stream, None if is_anew else mark)
        if left <= 0 or order(stream.last) <= order(begin):
            continue
        lost = _lost(stream, mark)
        expected = _expected(stream, None if is_anew else mark, begin)
        upto = _upto(stream, begin, expected=expected, most=left)
        losses.append(lost)
        new = Mark(
            last=upto,
            since=begin,
            generation=0 if mark is None else mark.generation + is_anew,
            entries=min(expected, left),
            added=stream.added if upto == stream.last else None,
            lost=(0 if mark is None else mark.lost) + (lost or 0),
        )
        left -= new.entries
        after.setdefault(stream.place, {})[stream.key] = new
        ranges.append(_range(stream.place, stream.key, new))
    return Plan(ranges=ranges, marks=after, lost=_sum(losses))


def between(before: Mapping[str, Mapping[str, Mark]], after: Mapping[str, Mapping[str, Mark]]) -> list[Range]:
    """What was planned by the step from these marks to those."""
    return [
        _range(place, key, mark)
        for place, marks in after.items()
        for key, mark in marks.items()
        if mark != before.get(place, {}).get(key)
    ]


def tasks(ranges: Iterable[Range], *, most_entries: int) -> list[list[Range]]:
    """What each task reads: long ranges in parts, short ones together."""
    found: list[list[Range]] = []
    room = 0
    for one in ranges:
        for part in split(one, parts=-(-one.entries // most_entries)):
            if part.entries > room or not found:
                found.append([])
                room = most_entries
            found[-1].append(part)
            room -= part.entries
    return found


def split(whole: Range, *, parts: int) -> list[Range]:
    """The range in parts of equal time. No entry is in two of them."""
    begin, end = order(whole.after)[0], order(whole.upto)[0]
    step = max(1, (end - begin) // max(1, parts))
    cuts = [behind(milliseconds) for milliseconds in range(begin + step, end, step)]
    borders = [whole.after, *cuts, whole.upto]
    share = -(-whole.entries // (len(borders) - 1))
    return [msgspec.structs.replace(whole, after=one, upto=other, entries=share) for one, other in pairwise(borders)]


def order(entry_id: str) -> tuple[int, int]:
    """What ids are compared by: milliseconds, then a count."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def behind(milliseconds: int) -> str:
    """The highest id of a millisecond."""
    return f"{milliseconds}-{_HIGHEST_SEQUENCE}"


def _range(place: str, key: str, mark: Mark) -> Range:
    return Range(
        place=place, key=key, generation=mark.generation, after=mark.since, upto=mark.last, entries=mark.entries
    )


def _begin(stream: Seen, mark: Mark | None) -> str:
    """Behind the mark, or right before the first entry if that is later: ranges are split by their time."""
    begin = START if mark is None else mark.last
    before_first = max(0, order(stream.first or START)[0] - 1)
    return begin if order(begin) >= (before_first, _HIGHEST_SEQUENCE) else behind(before_first)


def _is_made_anew(stream: Seen, mark: Mark) -> bool:
    counts_less = stream.added is not None and mark.added is not None and stream.added < mark.added
    return counts_less or order(stream.last) < order(mark.last)


def _expected(stream: Seen, mark: Mark | None, begin: str) -> int:
    """About how many entries are new; never none."""
    if mark is not None and mark.added is not None and stream.added is not None:
        return max(1, min(stream.length, stream.added - mark.added))
    start, end = order(stream.first or START)[0], order(stream.last)[0]
    share = (end - max(start, order(begin)[0])) / max(1, end - start)
    return max(1, round(stream.length * min(1.0, share)))


def _upto(stream: Seen, begin: str, *, expected: int, most: int) -> str:
    """Where to stop: at the end, or where that many entries are to be expected by the time."""
    if expected <= most:
        return stream.last
    start, end = order(begin)[0], order(stream.last)[0]
    # All of one millisecond belongs together, and there is always some way forward.
    cut = max(start + 1, start + (end - start) * most // expected)
    return behind(cut) if cut < end else stream.last


def _lost(stream: Seen, mark: Mark | None) -> int | None:
    if mark is None:
        # What a stream forgot before we ever saw it is not ours to miss.
        return 0
    if _is_made_anew(stream, mark):
        return None
    if stream.first is not None and order(stream.first) <= order(mark.last):
        return None if order(stream.deleted) > order(mark.last) else 0
    if stream.added is None or mark.added is None:
        return None
    return max(0, stream.added - mark.added - stream.length)


def _sum(losses: Iterable[int | None]) -> int | None:
    known = list(losses)
    return None if None in known else sum(loss for loss in known if loss is not None)
