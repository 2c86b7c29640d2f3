"""A segment: where the messages of one range of bytes of `queen_messages.jsonl` stand. Pure: bytes in, bytes out.

A segment is built once and never changed. It answers "where may it be", never "what is it": a look-up gives ordinals,
an ordinal gives the offsets of lines, and whoever asked folds those lines and compares. So a hash that collides or a
line that claims too much costs a read, not an error.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from datetime import UTC, datetime
import gc
from operator import le
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from zlib import crc32

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD
from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.queen.records import Message, decode_record, is_migration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from queueyard.queen.records import Raw

_MAGIC: Final = b"queenseg"
_ALIGNED_BYTES = 8
_HASH_SHIFT = 32
_ORDINAL_MASK = 0xFFFF_FFFF
_READ = 1
_DELETED = 2
#: the recipient of what a line calls unread or not deleted without saying whose it is
_SOMEBODY = ""
_TO_COME_FIRST = datetime.max.replace(tzinfo=UTC)


_Code = Literal["B", "I", "Q"]


class _Row(msgspec.Struct, gc=False, rename={"sender": "from", "migration": "_migration"}):
    """What a segment wants to know of a line; the last fields only so that a misfit is told from a message."""

    id: str
    created_at: datetime | None = None
    sender: str | None = None
    to: str | None = None
    issue_id: str | None = None
    thread_id: str | None = None
    # Absent says nothing, null says no.
    read: bool | msgspec.UnsetType | None = msgspec.UNSET
    deleted: bool | msgspec.UnsetType | None = msgspec.UNSET
    migration: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    subject: str | None = None
    body: str | None = None
    reply_to: str | None = None
    importance: str | None = None
    read_at: str | None = None
    deleted_at: str | None = None


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    start: int
    end: int
    #: (offset, checksum of the bytes there), to notice a file that was rewritten
    samples: list[tuple[int, int]]
    #: array name -> (type code, first byte behind the header, number of items)
    arrays: dict[str, tuple[_Code, int, int]]
    #: agent -> (first, number) in `received` and `sent`
    received: dict[str, tuple[int, int]]
    sent: dict[str, tuple[int, int]]
    #: offset and reason of each line that is no record
    bad: list[tuple[int, str]]


class Segment:
    """The index of one range of bytes; the arrays are read where they lie, so opening one costs next to nothing."""

    def __init__(self, content: memoryview) -> None:
        """ValueError or msgspec.DecodeError if the bytes are no segment."""
        if bytes(content[:8]) != _MAGIC:
            raise ValueError("not a segment of the message index")
        head = int.from_bytes(content[8:16], "little")
        self._header = msgspec.json.decode(content[16 : 16 + head], type=_Header)
        self._arrays = content[16 + head :]
        if len(self._arrays) != _end_of(self._header.arrays):
            raise ValueError("a segment of the message index that is not whole")
        self.start, self.end = self._header.start, self._header.end
        self.samples = self._header.samples
        self.bad = self._header.bad
        self._offsets = self._array("offsets")
        self._flags = self._array("flags")

    def __len__(self) -> int:
        return len(self._offsets)

    def agents(self) -> set[str]:
        """Everybody who sent or received something."""
        return {*self._header.received, *self._header.sent} - {_SOMEBODY}

    def by_id(self, identifier: str) -> Iterator[int]:
        return self._by_hash("ids", identifier)

    def by_thread(self, thread: str) -> Iterator[int]:
        return self._by_hash("threads", thread)

    def by_issue(self, issue: str) -> Iterator[int]:
        return self._by_hash("issues", issue)

    def received_by(self, agent: str, *, unread: bool) -> Iterator[int]:
        """Newest first; with `unread`, without those that this range knows to be read or deleted."""
        return self._posted("received", self._header.received.get(agent), unread=unread)

    def revived(self) -> Iterator[int]:
        """Newest first: made unread, or no longer deleted, by a line that does not say whose message it is."""
        return self._posted("received", self._header.received.get(_SOMEBODY), unread=True)

    def sent_by(self, agent: str) -> Iterator[int]:
        """Newest first."""
        return self._posted("sent", self._header.sent.get(agent), unread=False)

    def lines_of(self, ordinal: int) -> list[int]:
        """The offsets of all lines of one message in this range, in order."""
        owners = self._array("later_owner")
        first = bisect_left(owners, ordinal)
        last = bisect_left(owners, ordinal + 1)
        return [self._offsets[ordinal], *self._array("later_lines")[first:last]]

    def _array(self, name: str) -> memoryview:
        code, first, count = self._header.arrays[name]
        return self._arrays[first : first + count * array(code).itemsize].cast(code)

    def _by_hash(self, name: str, text: str) -> Iterator[int]:
        keys = self._array(name)
        wanted = _hash(text)
        for at in range(bisect_left(keys, wanted << _HASH_SHIFT), len(keys)):
            if keys[at] >> _HASH_SHIFT != wanted:
                return
            yield keys[at] & _ORDINAL_MASK

    def _posted(self, name: str, span: tuple[int, int] | None, *, unread: bool) -> Iterator[int]:
        first, count = span or (0, 0)
        ordinals = self._array(name)
        for at in range(first + count - 1, first - 1, -1):
            ordinal = ordinals[at]
            if not (unread and self._flags[ordinal] & (_READ | _DELETED)):
                yield ordinal


class SegmentBuilder:
    """Takes the lines of a range in order and makes a segment of them."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self._ordinals: dict[str, int] = {}
        self._offsets = array("Q")
        self._created: list[datetime | None] = []
        self._flags = bytearray()
        self._later: list[tuple[int, int]] = []
        self._threads = array("Q")
        self._issues = array("Q")
        self._received: dict[str, array[int]] = {}
        self._sent: dict[str, array[int]] = {}
        self._bad: list[tuple[int, str]] = []

    def add(self, lines: Iterable[bytes]) -> None:
        """Lines as they stand in the file, newlines included; a torn last line is left for the next time."""
        # Millions of small objects that all stay: the collector would only walk them again and again.
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._add_all(lines)
        finally:
            if collecting:
                gc.enable()

    def build(self, samples: list[tuple[int, int]]) -> bytes:
        """The segment as bytes, to be opened with `Segment`."""
        times = _comparable(self._created)
        received, received_spans = _grouped(self._received, times)
        sent, sent_spans = _grouped(self._sent, times)
        self._later.sort()
        arrays = {
            "offsets": self._offsets,
            "flags": array("B", self._flags),
            "ids": array("Q", sorted([_hash(key) << _HASH_SHIFT | n for key, n in self._ordinals.items()])),
            "threads": array("Q", sorted(self._threads)),
            "issues": array("Q", sorted(self._issues)),
            "later_owner": array("I", (owner for owner, _ in self._later)),
            "later_lines": array("Q", (offset for _, offset in self._later)),
            "received": received,
            "sent": sent,
        }
        spans = {"received": received_spans, "sent": sent_spans}
        return _packed(arrays, start=self.start, end=self.end, samples=samples, bad=self._bad, **spans)

    def _add_all(self, lines: Iterable[bytes]) -> None:  # noqa: C901, PLR0912  see below
        # One loop without calls that could be saved: it runs a million times while somebody waits.
        decode_row = msgspec.json.Decoder(_Row).decode
        ordinals, offsets, flags = self._ordinals, self._offsets, self._flags
        received, sent, end, unset = self._received, self._sent, self.end, msgspec.UNSET
        for line in lines:
            row: _Row | None
            try:
                row = decode_row(line)
                # What the decoder skips it does not check.
                if not row.id or row.migration is not unset or not (line.isascii() or line.decode()):
                    row = self._look_closer(line, end)
            except NOT_UNDERSTOOD:
                row = self._look_closer(line, end)
            if row is None:
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                continue
            count = len(offsets)
            ordinal = ordinals.setdefault(row.id, count)
            if ordinal == count:
                offsets.append(end)
                self._created.append(row.created_at)
                flags.append((_READ if row.read else 0) | (_DELETED if row.deleted else 0))
            else:
                self._later.append((ordinal, end))
                if row.read is not unset:
                    flags[ordinal] = flags[ordinal] & ~_READ | (_READ if row.read else 0)
                if row.deleted is not unset:
                    flags[ordinal] = flags[ordinal] & ~_DELETED | (_DELETED if row.deleted else 0)
            # Posted for each line: a later one may name another recipient or thread than the first.
            if row.to:
                try:
                    received[row.to].append(ordinal)
                except KeyError:
                    received[row.to] = array("I", (ordinal,))
            elif not (row.read or row.read is unset) or not (row.deleted or row.deleted is unset):
                received.setdefault(_SOMEBODY, array("I")).append(ordinal)
            if row.sender:
                try:
                    sent[row.sender].append(ordinal)
                except KeyError:
                    sent[row.sender] = array("I", (ordinal,))
            if row.thread_id:
                self._threads.append(crc32(row.thread_id.encode()) << _HASH_SHIFT | ordinal)
            if row.issue_id:
                self._issues.append(crc32(row.issue_id.encode()) << _HASH_SHIFT | ordinal)
            end += len(line)
        self.end = end

    def _look_closer(self, line: bytes, offset: int) -> _Row | None:
        """The row of a message that is not quite plain; None for what is no message at all."""
        if not line.strip():
            return None
        try:
            raw = decode_record(line, Message)
        except NOT_UNDERSTOOD as fault:
            if line.endswith(b"\n"):
                self._bad.append((offset, str(fault)))
            return None
        return None if is_migration(raw) else msgspec.convert({**raw, "created_at": _time_of(raw)}, _Row)


def looks_like_a_message(line: bytes) -> str | None:
    """The id, if a segment takes this line for one of a message without having understood all of it."""
    try:
        return msgspec.json.decode(line, type=_Row).id
    except NOT_UNDERSTOOD:
        return None


def _time_of(raw: Raw) -> datetime | None:
    try:
        return from_rfc3339(raw.get("created_at") or "")
    except BadTime:
        return None


def _comparable(times: list[datetime | None]) -> list[datetime]:
    """Times that can be sorted: without a zone they are UTC.

    A line without a time may be an update of a message that another range knows the time of: it comes first, so that
    whoever reads from the newest on meets it before it is too late to put it in its place.
    """
    return [
        _TO_COME_FIRST if moment is None else moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        for moment in times
    ]


def _grouped(postings: dict[str, array[int]], times: list[datetime]) -> tuple[array[int], dict[str, tuple[int, int]]]:
    """All postings in one array, each agent's by time, and where each agent's stand."""
    # A file that only ever grew is in order already; one that git merged is not.
    in_order = all(map(le, times, times[1:]))
    everything = array("I")
    spans = {}
    for key, ordinals in postings.items():
        once = set(ordinals)
        spans[key] = (len(everything), len(once))
        everything.extend(sorted(once) if in_order else sorted(sorted(once), key=times.__getitem__))
    return everything, spans


def _hash(text: str) -> int:
    # Nothing in a file hashes like a lone surrogate, but somebody may ask for one.
    return crc32(text.encode("utf-8", "surrogatepass"))


def _end_of(places: Mapping[str, tuple[_Code, int, int]]) -> int:
    ends = [first + count * array(code).itemsize for code, first, count in places.values()]
    return _padded(max(ends, default=0))


def _padded(length: int) -> int:
    return length + -length % _ALIGNED_BYTES


def _packed(arrays: dict[str, array[int]], **header: Any) -> bytes:
    places = {}
    first = 0
    blobs = []
    for name, values in arrays.items():
        places[name] = (cast("_Code", values.typecode), first, len(values))
        blob = values.tobytes()
        blobs.append(blob.ljust(_padded(len(blob)), b"\0"))
        first += len(blobs[-1])
    head = msgspec.json.encode(_Header(arrays=places, **header))
    head = head.ljust(_padded(len(head)))
    return b"".join([_MAGIC, len(head).to_bytes(8, "little"), head, *blobs])
