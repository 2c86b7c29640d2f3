"""Which rewritten files are new: pure decisions about what files look like and what they hold.

A file that looks as it did (inode, size, time of its last change) is not opened. A file that looks different is new
only if its content is. Times of files are coarse: one that was written just before it was looked at may be written
again without looking different, so such a mark is trusted only after a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: a file that was younger than this when it was looked at is opened again the next time
SETTLED_NS = 2_000_000_000


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is: its format, whose it is, and where it stands."""

    stream: str
    place: str
    path: str


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A file from outside, as it was at a moment."""

    origin: Origin
    inode: int
    size: int
    changed_ns: int
    looked_ns: int


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was opened."""

    look: Look
    digest: str


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What was last read of a file; a list on paper, because there may be a file per run."""

    digest: str
    inode: int
    size: int
    changed_ns: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One file to read as a whole."""

    stream: str
    place: str
    path: str
    changed_ns: int
    size: int


#: place -> path -> what was last read
Marks = dict[str, dict[str, Mark]]


def of_those_there(marks: Mapping[str, Mapping[str, Mark]], origins: Iterable[Origin], looks: Iterable[Look]) -> Marks:
    """The marks without those of files that are gone, at the places that were looked at.

    One that comes back is read again, which is harmless further on; marks for ever are not: there may be one per run.
    """
    looked_at = {origin.place for origin in origins}
    there = {look.origin.path for look in looks}
    return {
        place: {path: mark for path, mark in known.items() if place not in looked_at or path in there}
        for place, known in marks.items()
    }


def suspects(marks: Mapping[str, Mapping[str, Mark]], looks: Iterable[Look]) -> list[Look]:
    """The files that have to be opened."""
    return [look for look in looks if not _looks_the_same(look, _mark_of(marks, look.origin))]


def plan(marks: Mapping[str, Mapping[str, Mark]], opened: Iterable[Seen]) -> tuple[list[Snapshot], Marks]:
    """(what to read, the marks behind it)."""
    after: Marks = {place: dict(known) for place, known in marks.items()}
    snapshots = []
    for seen in opened:
        origin, new = seen.look.origin, _mark(seen)
        after.setdefault(origin.place, {})[origin.path] = new
        if _is_news(new, _mark_of(marks, origin)):
            snapshots.append(_snapshot(origin, new))
    return snapshots, after


def between(
    before: Mapping[str, Mapping[str, Mark]], after: Mapping[str, Mapping[str, Mark]], origins: Iterable[Origin]
) -> list[Snapshot]:
    """What was planned by the step from these marks to those."""
    return [
        _snapshot(origin, mark)
        for origin in origins
        if (mark := _mark_of(after, origin)) is not None and _is_news(mark, _mark_of(before, origin))
    ]


def tasks(snapshots: Iterable[Snapshot], *, most_bytes: int) -> list[list[Snapshot]]:
    """What each task reads: small files together."""
    found: list[list[Snapshot]] = []
    room = 0
    for snapshot in snapshots:
        if snapshot.size > room or not found:
            found.append([])
            room = most_bytes
        found[-1].append(snapshot)
        room -= snapshot.size
    return found


def _mark_of(marks: Mapping[str, Mapping[str, Mark]], origin: Origin) -> Mark | None:
    return marks.get(origin.place, {}).get(origin.path)


def _is_news(mark: Mark, before: Mark | None) -> bool:
    return before is None or mark.digest != before.digest


def _looks_the_same(look: Look, mark: Mark | None) -> bool:
    return mark is not None and (look.inode, look.size, look.changed_ns) == (mark.inode, mark.size, mark.changed_ns)


def _mark(seen: Seen) -> Mark:
    look = seen.look
    is_settled = look.looked_ns - look.changed_ns >= SETTLED_NS
    return Mark(digest=seen.digest, inode=look.inode if is_settled else 0, size=look.size, changed_ns=look.changed_ns)


def _snapshot(origin: Origin, mark: Mark) -> Snapshot:
    return Snapshot(
        stream=origin.stream, place=origin.place, path=origin.path, changed_ns=mark.changed_ns, size=mark.size
    )
