"""What is new in a growing file: pure decisions about byte ranges.

A file is known by its inode and by a fingerprint of its head, because a name says little: logs are rotated, replaced
by a rename and truncated in place. Whatever is not the same file grown longer is read from its start as a new
generation; reading something twice is harmless further on, and missing something is not. A file that was renamed in
its folder is followed for as long as it is there: what was written to it last is read like all the rest of it.

Generation and offset are the order of lines. A file and its archives count their generations together, because lines
are moved from one to the other before or after they were read: whatever is planned later is a later generation, and
archives are planned before the file. So the last word about a record stays the last.

A line belongs to the range that its first byte stands in. So a range may begin and end anywhere, and ranges that cover
a file without a gap give every line once.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: how much of the start of a file may be its fingerprint
HEAD_BYTES = 1024


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a file is: its format, whose it is, and where it stands."""

    stream: str
    place: str
    path: str
    #: the growing file whose lines are moved to this one, all lines of a record at once; None for a file of its own
    archive_of: str | None = None
    #: the name by which it is ours; None where that is the one that it has
    renamed_from: str | None = None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it stands now."""

    origin: Origin
    inode: int
    #: up to and with the last newline; what follows is a line that somebody is still writing
    end: int
    #: the first bytes, at most HEAD_BYTES
    head: bytes


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a file was read."""

    inode: int
    offset: int
    generation: int
    #: of its first bytes, and of how many: those of whole lines, at most HEAD_BYTES
    fingerprint: str
    head_bytes: int = 0
    #: where the range that led here began
    since: int = 0
    #: these two as its origin has them
    archive_of: str | None = None
    renamed_from: str | None = None


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A range of bytes of one file; the lines that start in it are to be read."""

    stream: str
    place: str
    path: str
    #: whatever has the name by the time it is read, this is the file that is meant
    inode: int
    generation: int
    start: int
    end: int


Marks = dict[str, Mark]


def plan(marks: Mapping[str, Mark], files: Sequence[Seen], *, most_bytes: int) -> tuple[list[Span], Marks]:
    """(what to read, the marks behind it); at most so many bytes."""
    # A file that was renamed may have two marks: under its old name, and further on under its new one.
    by_inode = {mark.inode: mark for mark in sorted(marks.values(), key=lambda mark: mark.offset)}
    newest = _newest(marks)
    after = _still_followed(marks, files)
    spans: list[Span] = []
    left = most_bytes
    for file in files:
        path = file.origin.path
        here = marks.get(path)
        known = _mark_of(file, here, by_inode.get(file.inode))
        start = 0 if known is None else known.offset
        end = min(file.end, start + left)
        if end > start:
            left -= end - start
            family = file.origin.archive_of or path
            newest[family] = _generation(known, newest.get(family, -1))
            after[path] = _mark(file, start, end, newest[family])
            spans.append(_span(file.origin, after[path]))
        elif known is not None and known is not here:
            # Its old name will soon be that of another file.
            after[path] = _mark(file, start, start, known.generation)
    return spans, after


def between(before: Mapping[str, Mark], after: Mapping[str, Mark], origins: Iterable[Origin]) -> list[Span]:
    """What was planned by the step from these marks to those."""
    names: dict[str, list[str]] = {}
    for path, mark in after.items():
        if mark != before.get(path) and mark.offset > mark.since:
            names.setdefault(mark.renamed_from or path, []).append(path)
    return [
        _span(msgspec.structs.replace(origin, path=path), after[path])
        for origin in origins
        for path in names.get(origin.path, [])
    ]


def split(span: Span, *, most_bytes: int) -> list[Span]:
    """The span in pieces for several workers."""
    starts = range(span.start, span.end, most_bytes)
    return [msgspec.structs.replace(span, start=start, end=min(start + most_bytes, span.end)) for start in starts]


def fingerprint(head: bytes, count: int) -> str:
    return sha256(head[:count]).hexdigest()[:16]


def is_same_grown(file: Seen, mark: Mark) -> bool:
    """Whether it is the file that was read, as long as it was or longer."""
    return (
        file.inode == mark.inode
        and file.end >= mark.offset
        and fingerprint(file.head, mark.head_bytes) == mark.fingerprint
    )


def _span(origin: Origin, mark: Mark) -> Span:
    return Span(
        stream=origin.stream,
        place=origin.place,
        path=origin.path,
        inode=mark.inode,
        generation=mark.generation,
        start=mark.since,
        end=mark.offset,
    )


def _still_followed(marks: Mapping[str, Mark], files: Iterable[Seen]) -> Marks:
    """The marks without those of renamed files that are gone: nobody will ask for them again."""
    there = {file.origin.path for file in files}
    return {path: mark for path, mark in marks.items() if mark.renamed_from is None or path in there}


def _mark_of(file: Seen, here: Mark | None, elsewhere: Mark | None) -> Mark | None:
    """The mark of its name, or that of a file that was renamed to it; None if it is neither's file grown longer."""
    return next((mark for mark in (here, elsewhere) if mark is not None and is_same_grown(file, mark)), None)


def _newest(marks: Mapping[str, Mark]) -> dict[str, int]:
    """The highest generation of each file and its archives."""
    newest: dict[str, int] = {}
    for path, mark in marks.items():
        family = mark.archive_of or path
        newest[family] = max(mark.generation, newest.get(family, -1))
    return newest


def _generation(known: Mark | None, newest: int) -> int:
    """That of the lines before, unless others were read since; of another file the next one."""
    return newest + 1 if known is None or known.generation < newest else known.generation


def _mark(file: Seen, start: int, end: int, generation: int) -> Mark:
    head_bytes = min(file.end, HEAD_BYTES)
    return Mark(
        inode=file.inode,
        offset=end,
        generation=generation,
        fingerprint=fingerprint(file.head, head_bytes),
        head_bytes=head_bytes,
        since=start,
        archive_of=file.origin.archive_of,
        renamed_from=file.origin.renamed_from,
    )
