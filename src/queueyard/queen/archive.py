"""Moving settled old records out of the three files, into dated ones that readers still know.

The archive is written first and made durable, then the file is replaced; a crash in between leaves records in both,
which folding makes harmless. Our own writers lock the file and wait. A tool that does not lock may append to the old
file while it is replaced: what it wrote is carried over.
"""

from __future__ import annotations

from contextlib import nullcontext
import fcntl
import os
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD, append_lines, replace_file
from queueyard.kernel.clock import BadTime, Clock, from_rfc3339
from queueyard.kernel.errors import explaining
from queueyard.queen.records import (
    Assignment,
    AssignmentStatus,
    Message,
    Raw,
    Reservation,
    decode,
    is_migration,
    view_or_none,
)
from queueyard.queen.rules import fold, holds
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import BinaryIO

#: a tool that does not lock holds the file open for less than this
_LATECOMERS_S = 0.2


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What was moved out of one file."""

    file: str
    records: int
    lines: int
    #: None where nothing was moved
    archive: str | None


def archive(store: Store, clock: Clock, *, before: datetime, dry_run: bool = False) -> list[Archived]:
    """Move every record that is settled and older than `before`, with all its lines."""
    now = clock.now()
    judges: Mapping[str, Callable[[Raw], bool]] = {
        MESSAGES: lambda raw: _message_is_settled(raw, before),
        ASSIGNMENTS: lambda raw: _assignment_is_settled(raw, before),
        RESERVATIONS: lambda raw: _reservation_is_settled(raw, before, now),
    }
    with nullcontext() if dry_run else store.locked():
        return [_archive_one(store, clock, name, is_settled, dry_run=dry_run) for name, is_settled in judges.items()]


def rewrite(path: Path, target: Path, unwanted: Callable[[Sequence[bytes]], Sequence[bytes]], clock: Clock) -> int:
    """Move those lines of the file that are `unwanted` to the end of `target`; how many. The caller holds the lock.

    Lines come and go without their newline. What went is durable in `target` before it leaves the file.
    """
    with explaining("read", path), path.open("rb") as old:
        # Whoever appends as we do waits here, and then finds the new file: nothing is acknowledged into the old one.
        fcntl.flock(old, fcntl.LOCK_EX)
        content = _lines_in(old, clock)
        lines = [line for line in content.split(b"\n") if line.strip()]
        going = unwanted(lines)
        with explaining("make", target.parent):
            target.parent.mkdir(exist_ok=True)
        append_lines(target, going)
        gone = set(going)
        replace_file(path, b"".join(line + b"\n" for line in lines if line not in gone))
        fcntl.flock(old, fcntl.LOCK_UN)
        # Whoever opened the old file before it was replaced, and does not lock, still writes there.
        clock.sleep(_LATECOMERS_S)
        late = os.pread(old.fileno(), os.fstat(old.fileno()).st_size, len(content))
    if late.strip():
        append_lines(path, [line for line in late.split(b"\n") if line.strip()])
    return len(going)


def _lines_in(file: BinaryIO, clock: Clock) -> bytes:
    """What is in the file, without a last line that somebody is still writing.

    Who reads while a line is written may see the part of it that ends with a page of memory.
    """
    content = file.read()
    if not content or content.endswith(b"\n"):
        return content
    clock.sleep(_LATECOMERS_S)
    more = file.read()
    if not more:
        # Nobody goes on with it: it was left torn.
        return content
    content += more
    return content[: content.rfind(b"\n") + 1]


def _archive_one(
    store: Store, clock: Clock, name: str, is_settled: Callable[[Raw], bool], *, dry_run: bool
) -> Archived:
    path = store.home.beads / name
    with explaining("read", path):
        lines = path.read_bytes().split(b"\n") if path.exists() else []
    moved = _settled_ids(lines, is_settled)
    if not moved:
        return Archived(file=name, records=0, lines=0, archive=None)
    target = store.home.beads / ARCHIVE / f"{path.stem}-{clock.now():%Y-%m-%d}.jsonl"

    def settled(lines: Sequence[bytes]) -> list[bytes]:
        ids = _settled_ids(lines, is_settled)
        return [line for line in lines if _id_of(line) in ids]

    count = len(settled(lines)) if dry_run else rewrite(path, target, settled, clock)
    return Archived(file=name, records=len(moved), lines=count, archive=str(target))


def _settled_ids(lines: Iterable[bytes], is_settled: Callable[[Raw], bool]) -> set[str]:
    folded: dict[str, Raw] = {}
    for line in lines:
        try:
            raw = decode(line)
        except NOT_UNDERSTOOD:
            continue
        if not is_migration(raw):
            folded[raw["id"]] = fold(folded.get(raw["id"]), raw)
    return {identifier for identifier, raw in folded.items() if is_settled(raw)}


def _message_is_settled(raw: Raw, before: datetime) -> bool:
    message = view_or_none(raw, Message)
    if message is None or not (message.read or message.deleted):
        return False
    return _is_before(message.read_at or message.created_at, before)


def _assignment_is_settled(raw: Raw, before: datetime) -> bool:
    assignment = view_or_none(raw, Assignment)
    if assignment is None or assignment.status is AssignmentStatus.ACTIVE:
        return False
    return _is_before(assignment.updated_at, before)


def _reservation_is_settled(raw: Raw, before: datetime, now: datetime) -> bool:
    reservation = view_or_none(raw, Reservation)
    if reservation is None or holds(reservation, now):
        return False
    return _is_before(reservation.released_at or reservation.expires_at, before)


def _is_before(moment: str, before: datetime) -> bool:
    try:
        return from_rfc3339(moment) < before
    except BadTime:
        return False


def _id_of(line: bytes) -> str | None:
    try:
        raw = decode(line)
    except NOT_UNDERSTOOD:
        return None
    return None if is_migration(raw) else raw["id"]
