"""What is new in the feeds of an ops server: pure decisions about ranges of numbers.

A feed counts 1, 2, 3, ... without a gap, and nothing in it ever changes. A feed whose head is behind what was read, or
whose first entry is not the one that it was, is another one (its server lost its books or was set up anew), and is
read from its start as a new generation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A feed as it stands now."""

    #: the server
    place: str
    space: str
    #: `changes` or `audit`
    kind: str
    #: number of its last entry
    head: int
    #: digest of its first entry; None if it has none
    first: str | None = None

    @property
    def name(self) -> str:
        return f"{self.space}/{self.kind}"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a feed was read."""

    seq: int
    #: the number that the range which led here lies behind
    since: int = 0
    generation: int = 0
    #: digest of the first entry of the feed; None in a note that is older than this
    first: str | None = None


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The entries behind one number, up to and with another."""

    place: str
    space: str
    kind: str
    generation: int
    after: int
    upto: int


#: place -> space/kind -> how far
Marks = dict[str, dict[str, Mark]]


def plan(
    marks: Mapping[str, Mapping[str, Mark]], feeds: Iterable[Seen], *, most_entries: int
) -> tuple[list[Range], Marks]:
    """(what to read, the marks behind it); at most so many entries."""
    after: Marks = {place: dict(known) for place, known in marks.items()}
    ranges: list[Range] = []
    left = most_entries
    for feed in feeds:
        mark = marks.get(feed.place, {}).get(feed.name, Mark(seq=0))
        is_another = _is_another(feed, mark)
        begin = 0 if is_another else mark.seq
        upto = min(feed.head, begin + left)
        if upto <= begin:
            continue
        left -= upto - begin
        new = Mark(seq=upto, since=begin, generation=mark.generation + is_another, first=feed.first)
        after.setdefault(feed.place, {})[feed.name] = new
        ranges.append(_range(feed.place, feed.name, new))
    return ranges, after


def between(before: Mapping[str, Mapping[str, Mark]], after: Mapping[str, Mapping[str, Mark]]) -> list[Range]:
    """What was planned by the step from these marks to those."""
    return [
        _range(place, name, mark)
        for place, marks in after.items()
        for name, mark in marks.items()
        if mark != before.get(place, {}).get(name)
    ]


def split(whole: Range, *, most_entries: int) -> list[Range]:
    """The range in parts for several workers."""
    return [
        msgspec.structs.replace(whole, after=after, upto=min(after + most_entries, whole.upto))
        for after in range(whole.after, whole.upto, most_entries)
    ]


def _is_another(feed: Seen, mark: Mark) -> bool:
    begins_otherwise = mark.first is not None and feed.first != mark.first
    return begins_otherwise or feed.head < mark.seq


def _range(place: str, name: str, mark: Mark) -> Range:
    space, _, kind = name.rpartition("/")
    return Range(place=place, space=space, kind=kind, generation=mark.generation, after=mark.since, upto=mark.seq)
