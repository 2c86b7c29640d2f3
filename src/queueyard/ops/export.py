"""The change feed and the audit stream of a space as JSONL segments, for the pipeline.

    <to>/<space>/changes-<first>-<last>.jsonl     numbers of 12 digits, so that names sort
    <to>/<space>/audit-<first>-<last>.jsonl
    <to>/<space>/_manifest.json                   rows, bytes and SHA-256 of each segment

A segment appears whole or not at all, and never changes. The next run goes on behind the last one. A run that died
between a segment and the manifest is understood: the segment is taken up if it fits, and written again if it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
import re
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, Files, read_document, replace_file
from queueyard.kernel.errors import explaining
from queueyard.kernel.ids import sequence_id
from queueyard.kernel.locks import FileLock
from queueyard.ops.records import AuditPage, Change, FeedPage, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MANIFEST_NAME = "_manifest.json"
_DIGITS = 12
_NAME = re.compile(r"(changes|audit)-(\d{12,})-(\d{12,})\.jsonl")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One file of entries."""

    name: str
    first: int
    last: int
    bytes: int
    sha256: str

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What was exported of one space, oldest first."""

    space: str
    changes: list[Segment] = []
    audit: list[Segment] = []


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where entries come from: the ledger itself, or a server."""

    #: entries behind a number
    changes: Callable[[int], FeedPage]
    audit: Callable[[int], AuditPage]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What one run added."""

    folder: str
    changes: int
    audit: int
    segments: list[str]
    last_change: int
    last_audit: int


def export(source: Source, folder: Path, *, space: str, rows_per_segment: int, files: Files = FILES) -> Exported:
    """Add what is new since the last run. CorruptFile if the manifest cannot be understood."""
    with explaining("make", folder):
        folder.mkdir(parents=True, exist_ok=True)
    # Readers of the segments pass by names that start with an underscore.
    with FileLock(folder / "_lock"):
        writing = _Writing(folder, space, rows_per_segment, files)
        writing.adopt()
        before = writing.manifest
        for stream, pages in (("changes", _pages(source.changes)), ("audit", _pages(source.audit))):
            writing.add(stream, pages)
    new = [
        segment.name
        for stream in ("changes", "audit")
        for segment in getattr(writing.manifest, stream)[len(getattr(before, stream)) :]
    ]
    return Exported(
        folder=str(folder),
        changes=writing.last("changes") - _last(before.changes),
        audit=writing.last("audit") - _last(before.audit),
        segments=new,
        last_change=writing.last("changes"),
        last_audit=writing.last("audit"),
    )


class _Writing:
    def __init__(self, folder: Path, space: str, rows_per_segment: int, files: Files) -> None:
        self._folder = folder
        self._rows = rows_per_segment
        self._files = files
        path = folder / MANIFEST_NAME
        repair = f"Export anew into an empty folder, or: rm {path}"
        known = read_document(path, msgspec.json.Decoder(ExportManifest).decode, repair=repair)
        self.manifest = known or ExportManifest(space=space)

    def last(self, stream: str) -> int:
        return _last(getattr(self.manifest, stream))

    def adopt(self) -> None:
        """Take up segments that a run wrote before it died; what does not fit is no segment and goes."""
        known = {segment.name for segment in [*self.manifest.changes, *self.manifest.audit]}
        for path in sorted(self._folder.glob("*.jsonl")):
            found = _NAME.fullmatch(path.name)
            if found is None or path.name in known:
                continue
            stream, first, last = found[1], int(found[2]), int(found[3])
            with explaining("read", path):
                body = path.read_bytes()
            if first == self.last(stream) + 1 and _numbers(body) == list(range(first, last + 1)):
                self._remember(stream, _segment(path.name, first, last, body))
            else:
                self._files.unlink(str(path))

    def add(self, stream: str, pages: Callable[[int], Iterator[Sequence[Change | Refusal]]]) -> None:
        waiting: list[Change | Refusal] = []
        for entries in pages(self.last(stream)):
            waiting += entries
            while len(waiting) >= self._rows:
                self._write(stream, waiting[: self._rows])
                del waiting[: self._rows]
        if waiting:
            self._write(stream, waiting)

    def _write(self, stream: str, entries: Sequence[Change | Refusal]) -> None:
        first, last = entries[0].seq, entries[-1].seq
        body = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        name = f"{stream}-{sequence_id(first, _DIGITS)}-{sequence_id(last, _DIGITS)}.jsonl"
        replace_file(self._folder / name, body, files=self._files)
        self._remember(stream, _segment(name, first, last, body))

    def _remember(self, stream: str, segment: Segment) -> None:
        segments = [*getattr(self.manifest, stream), segment]
        self.manifest = msgspec.structs.replace(self.manifest, **{stream: segments})
        encoded = msgspec.json.format(msgspec.json.encode(self.manifest), indent=1)
        replace_file(self._folder / MANIFEST_NAME, encoded, files=self._files)


def _pages(
    page: Callable[[int], FeedPage] | Callable[[int], AuditPage],
) -> Callable[[int], Iterator[Sequence[Change | Refusal]]]:
    def read(after: int) -> Iterator[Sequence[Change | Refusal]]:
        while True:
            found = page(after)
            if not found.entries:
                return
            yield found.entries
            after = found.last

    return read


def _segment(name: str, first: int, last: int, body: bytes) -> Segment:
    return Segment(name=name, first=first, last=last, bytes=len(body), sha256=sha256(body).hexdigest())


def _last(segments: Sequence[Segment]) -> int:
    return segments[-1].last if segments else 0


def _numbers(body: bytes) -> list[int]:
    try:
        return [entry.seq for entry in _ENTRIES.decode_lines(body)]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


_ENTRIES = msgspec.json.Decoder(_Numbered)
