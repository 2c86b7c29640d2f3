"""The message index: a chain of segments on disk, and look-ups that fold what they find from the message file.

The file is the truth and the chain only a map of it. A segment is used while samples of its range still look as they
did when it was built; what was appended since is read from the file each time, and becomes a segment when it grows.
Whatever goes wrong with the map (missing, foreign, stale, read-only folder, full disk) costs time, never an answer.

The name of a segment tells its range, and a file appears whole or not at all, so the chain needs no table of contents
and no lock to be read.
"""

from __future__ import annotations

from contextlib import suppress
import heapq
from itertools import count, pairwise
import math
import mmap
import os
from pathlib import Path
import re
import sys
from typing import IO, TYPE_CHECKING, Protocol
from zlib import crc32

from queueyard.kernel import proc
from queueyard.kernel.atomic import NOT_UNDERSTOOD, replace_file
from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.kernel.errors import LockTimeout, StorageFailed, explaining
from queueyard.kernel.locks import FileLock
from queueyard.queen.home import make_private
from queueyard.queen.records import Message, Raw, decode_record, is_migration
from queueyard.queen.rules import fold
from queueyard.queen.segments import Segment, SegmentBuilder, looks_like_a_message

if TYPE_CHECKING:
    from collections.abc import Iterator

#: what is behind the last segment and shorter than this is cheap enough to read each time
_TAIL_BYTES = 256 * 1024
#: two neighbours are merged when the later one is no longer smaller than this part of the earlier one
_MERGE_RATIO = 4
#: a range longer than this is built by several processes
_SHARED_BUILD_BYTES = 32 * 1024 * 1024
_MOST_BUILDERS = 4
_SAMPLE_BYTES = 64
_SAMPLES = 16
_NAME = re.compile(r"messages-(\d{16})-(\d{16})\.seg")


class _Source(Protocol):
    def __call__(self, segment: Segment) -> Iterator[int]: ...


class MessageIndex:
    """Look-ups over one message file. Call `refresh` first; it makes every line that is in the file visible."""

    def __init__(self, messages: Path, folder: Path) -> None:
        """`folder` holds the segments; it is made when the first one is written."""
        self._messages = messages
        self._folder = folder
        self._descriptor = -1
        self._chain: list[Segment] = []
        self._tail: Segment | None = None
        self._seen: tuple[int, ...] | None = None

    # --- look-ups ----------------------------------------------------------------------------------------------------

    def get(self, identifier: str) -> Raw | None:
        """The folded record with exactly this id."""
        for segment in self._segments():
            for ordinal in segment.by_id(identifier):
                folded = self._folded(segment, ordinal)
                if folded["id"] == identifier:
                    return folded
        return None

    def received_by(self, agent: str, *, unread: bool = False) -> Iterator[Raw]:
        """Records that name `agent` as recipient, newest first. With `unread`, at least all unread ones."""
        sources: list[_Source] = [lambda segment: segment.received_by(agent, unread=unread)]
        return self._newest_first(*sources, *([lambda segment: segment.revived()] if unread else []))

    def sent_by(self, agent: str) -> Iterator[Raw]:
        """Records that name `agent` as sender, newest first."""
        return self._newest_first(lambda segment: segment.sent_by(agent))

    def in_thread(self, thread: str) -> list[Raw]:
        """Records that name this thread."""
        return self._all(lambda segment: segment.by_thread(thread))

    def about(self, issue: str) -> list[Raw]:
        """Records that name this issue."""
        return self._all(lambda segment: segment.by_issue(issue))

    def agents(self) -> set[str]:
        """Everybody who ever sent or received a message."""
        return set().union(*(segment.agents() for segment in self._segments()))

    def bad_lines(self) -> list[tuple[int, int, str]]:
        """Number, offset and reason of each line that is no record."""
        bad = [fault for segment in self._segments() for fault in segment.bad]
        end = self._tail.end if self._tail is not None else len(self)
        if self._seen and os.pread(self._descriptor, self._seen[2] - end, end).strip():
            bad.append((end, "torn last line"))
        return [(self._line_number(offset), offset, reason) for offset, reason in bad]

    def __len__(self) -> int:
        """How many bytes of the file the chain on disk covers."""
        return self._chain[-1].end if self._chain else 0

    # --- upkeep ------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See the file as it is now. StorageFailed only if the message file itself cannot be read."""
        with explaining("read", self._messages):
            status = self._open()
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns) if status else ()
        if state == self._seen:
            return
        size = status.st_size if status else 0
        self._chain = self._trusted_chain(size)
        if status and size == len(self) and status.st_mtime_ns > self._built_at():
            # Written to since the map was drawn, and yet no longer: somebody edited it in place.
            self.forget()
        if size - len(self) >= _TAIL_BYTES:
            self._extend_on_disk(size)
        self._tail = self._built(len(self), size) if size > len(self) else None
        self._seen = state

    def forget(self) -> None:
        """Delete every segment; the next refresh builds them anew."""
        self._chain, self._tail, self._seen = [], None, None
        for path, _, _ in self._files():
            with suppress(OSError):
                path.unlink()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> os.stat_result | None:
        """Open the file that stands at the path now; another one may have taken its place."""
        try:
            status = self._messages.stat()
        except FileNotFoundError:
            self.close()
            return None
        if self._descriptor < 0 or not os.path.samestat(status, os.fstat(self._descriptor)):
            self.close()
            self._descriptor = os.open(self._messages, os.O_RDONLY | os.O_CLOEXEC)
        return os.fstat(self._descriptor)

    def _trusted_chain(self, size: int) -> list[Segment]:
        """The segments from the start of the file on, as far as they fit together and still fit the file."""
        chain: list[Segment] = []
        files = self._files()
        end = 0
        while True:
            # Of several that start here take the longest: the others are what it was merged from.
            candidates = [entry for entry in files if entry[1] == end and end < entry[2] <= size]
            segment = next(filter(None, map(self._opened, sorted(candidates, key=lambda entry: -entry[2]))), None)
            if segment is None:
                return chain
            chain.append(segment)
            end = segment.end

    def _files(self) -> list[tuple[Path, int, int]]:
        try:
            found = [(path, _NAME.fullmatch(path.name)) for path in self._folder.iterdir()]
        except OSError:
            return []
        return [(path, int(match[1]), int(match[2])) for path, match in found if match]

    def _built_at(self) -> int:
        moments = [0]
        for path, _, _ in self._files():
            with suppress(OSError):  # somebody swept it just now
                moments.append(path.stat().st_mtime_ns)
        return max(moments)

    def _opened(self, entry: tuple[Path, int, int]) -> Segment | None:
        path, start, end = entry
        try:
            with path.open("rb") as stream:
                segment = Segment(memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)))
        except (OSError, KeyError, *NOT_UNDERSTOOD):
            return None
        told_truly = (segment.start, segment.end) == (start, end)
        return segment if told_truly and self._samples(start, end) == segment.samples else None

    def _samples(self, start: int, end: int) -> list[tuple[int, int]]:
        step = max(1, (end - start) // _SAMPLES)
        places = [*range(start, end, step)[:_SAMPLES], max(start, end - _SAMPLE_BYTES)]
        # Never beyond the end: what is appended there later is no change of this range.
        return [(place, crc32(os.pread(self._descriptor, min(_SAMPLE_BYTES, end - place), place))) for place in places]

    def _extend_on_disk(self, size: int) -> None:
        """Turn the tail into a segment, and merge neighbours of similar size. One process at a time does it."""
        try:
            make_private(self._folder)
            with FileLock(self._folder / "index.lock", timeout_s=30.0):
                self._chain = self._trusted_chain(size)
                if size - len(self) >= _TAIL_BYTES:
                    self._write_segments(self._start_of_merge(size), size)
                    self._chain = self._trusted_chain(size)
                    self._sweep()
        except LockTimeout:
            # Somebody else is still drawing it: take what there is, and read the rest from the file.
            self._chain = self._trusted_chain(size)
        except (StorageFailed, OSError):
            # No room for a map, or a folder that is read-only: what is not trusted by now is read from the file.
            return

    def _start_of_merge(self, size: int) -> int:
        start = len(self)
        for segment in reversed(self._chain):
            if (size - start) * _MERGE_RATIO < segment.end - segment.start:
                break
            start = segment.start
        return start

    def _write_segments(self, start: int, end: int) -> None:
        parts = min(_MOST_BUILDERS, os.cpu_count() or 1, max(1, (end - start) // _SHARED_BUILD_BYTES))
        borders = [start, *(self._line_start(start + (end - start) * part // parts) for part in range(1, parts)), end]
        ranges = [(a, b) for a, b in pairwise(borders) if a < b]
        helpers = [
            proc.start([sys.executable, "-m", __name__, str(self._messages), str(self._folder), str(a), str(b)])
            for a, b in ranges[1:]
        ]
        self.write_segment(*ranges[0])
        for helper, span in zip(helpers, ranges[1:], strict=True):
            if helper.wait() != 0:
                self.write_segment(*span)

    def _line_number(self, offset: int) -> int:
        """Counted only for a line that is to be shown to somebody: it means reading everything before it."""
        number, at = 1, 0
        while at < offset and (chunk := os.pread(self._descriptor, min(1 << 22, offset - at), at)):
            number += chunk.count(b"\n")
            at += len(chunk)
        return number

    def _line_start(self, offset: int) -> int:
        """The first start of a line at or behind the offset."""
        while chunk := os.pread(self._descriptor, 1 << 16, offset):
            newline = chunk.find(b"\n")
            if newline >= 0:
                return offset + newline + 1
            offset += len(chunk)
        return offset

    def _end_of_lines(self, start: int, end: int) -> int:
        """Behind the last newline of the range; its start if there is none."""
        while end > start:
            first = max(start, end - (1 << 16))
            newline = os.pread(self._descriptor, end - first, first).rfind(b"\n")
            if newline >= 0:
                return first + newline + 1
            end = first
        return start

    def write_segment(self, start: int, end: int) -> None:
        """Build the segment of this range and put it in the folder."""
        with explaining("read", self._messages):
            self._open()
            # A last line without a newline may still become another one.
            builder = self._builder(start, self._end_of_lines(start, end))
        name = f"messages-{builder.start:016d}-{builder.end:016d}.seg"
        replace_file(self._folder / name, builder.build(self._samples(builder.start, builder.end)))

    def _built(self, start: int, end: int) -> Segment:
        with explaining("read", self._messages):
            return Segment(memoryview(self._builder(start, end).build([])))

    def _builder(self, start: int, end: int) -> SegmentBuilder:
        builder = SegmentBuilder(start)
        with os.fdopen(os.dup(self._descriptor), "rb", buffering=1 << 20) as stream:
            stream.seek(start)
            builder.add(_lines_until(stream, end - start))
        return builder

    def _sweep(self) -> None:
        """Remove segments that no chain uses any more; a reader that still has one open keeps it."""
        used = {(segment.start, segment.end) for segment in self._chain}
        for path, start, end in self._files():
            if (start, end) not in used:
                path.unlink(missing_ok=True)

    # --- folding -----------------------------------------------------------------------------------------------------

    def _segments(self) -> list[Segment]:
        return [*self._chain, self._tail] if self._tail is not None else self._chain

    def _folded(self, segment: Segment, ordinal: int) -> Raw:
        """All lines of one message, those of other segments too, folded in the order of the file."""
        identifier: str = self._first_line(segment, ordinal)["id"]
        folded: Raw | None = None
        for other in self._segments():
            for candidate in [ordinal] if other is segment else list(other.by_id(identifier)):
                for offset in other.lines_of(candidate):
                    line = self._line(offset)
                    if line["id"] == identifier:
                        folded = fold(folded, line)
        if folded is None:
            raise StaleIndex(self._messages)
        return folded

    def _first_line(self, segment: Segment, ordinal: int) -> Raw:
        return self._line(segment.lines_of(ordinal)[0])

    def _line(self, offset: int) -> Raw:
        # Almost every record is shorter; a longer one is read again, as long as it takes.
        length = 2048
        while True:
            chunk = os.pread(self._descriptor, length, offset)
            newline = chunk.find(b"\n")
            if newline >= 0 or len(chunk) < length:
                break
            length *= 8
        line = chunk if newline < 0 else chunk[:newline]
        try:
            raw = decode_record(line, Message)
        except NOT_UNDERSTOOD as fault:
            # A line that only looked right, in a part that nobody had asked about yet, adds nothing to its message.
            identifier = looks_like_a_message(line)
            if identifier:
                return {"id": identifier}
            raise StaleIndex(self._messages) from fault
        if is_migration(raw):
            raise StaleIndex(self._messages)
        return raw

    def _all(self, source: _Source) -> list[Raw]:
        folded = {}
        for segment in self._segments():
            for ordinal in source(segment):
                record = self._folded(segment, ordinal)
                folded[record["id"]] = record
        return list(folded.values())

    def _newest_first(self, *sources: _Source) -> Iterator[Raw]:
        """Merge the segments' lists by the folded created_at. A record may be posted in several: it comes once.

        An update that names somebody new and carries an older created_at than its message comes too late.
        """
        ticket = count()
        heap: list[tuple[float, int, Raw, Iterator[tuple[Raw, bool]] | None]] = []

        def push_next(stream: Iterator[tuple[Raw, bool]]) -> None:
            for record, in_place in stream:
                # One that its segment knows under a later time, or none, goes to its own place, and the list goes on.
                follower = stream if in_place else None
                heapq.heappush(heap, (-_moment(record), next(ticket), record, follower))
                if in_place:
                    return

        for segment in reversed(self._segments()):
            for source in sources:
                push_next(self._stream(segment, source))
        told = set()
        while heap:
            _, _, record, follower = heapq.heappop(heap)
            if follower is not None:
                push_next(follower)
            if record["id"] not in told:
                told.add(record["id"])
                yield record

    def _stream(self, segment: Segment, source: _Source) -> Iterator[tuple[Raw, bool]]:
        """Folded records as the segment orders them, and whether that order is by their true time."""
        for ordinal in source(segment):
            folded = self._folded(segment, ordinal)
            as_told = folded.get("created_at") == self._first_line(segment, ordinal).get("created_at")
            yield folded, as_told and _moment(folded) > -math.inf


class StaleIndex(Exception):
    """The map does not fit the file: somebody rewrote it in place."""


def _moment(record: Raw) -> float:
    try:
        return from_rfc3339(str(record.get("created_at"))).timestamp()
    except BadTime:
        return -math.inf


def _lines_until(stream: IO[bytes], length: int) -> Iterator[bytes]:
    """The lines that end within the next `length` bytes; the last one may lack its newline."""
    for line in stream:
        length -= len(line)
        if length < 0:
            return
        yield line


def main(arguments: list[str]) -> None:
    """Build one segment in a process of its own: MESSAGES FOLDER START END."""
    messages, folder, start, end = arguments
    MessageIndex(Path(messages), Path(folder)).write_segment(int(start), int(end))


if __name__ == "__main__":
    main(sys.argv[1:])
