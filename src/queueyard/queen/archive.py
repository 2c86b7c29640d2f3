"""Moving settled old records out of the three files, into dated ones that readers still know.

The archive is written first and made durable, then the file is replaced; a crash in between leaves records in both,
which folding makes harmless. A tool that does not lock may append to the old file while it is replaced: what it wrote
is carried over.
"""

from __future__ import annotations

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
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

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
    with store.locked():
        return [_archive_one(store, clock, name, is_settled, dry_run=dry_run) for name, is_settled in judges.items()]


def rewrite(path: Path, keep: Callable[[bytes], bool], clock: Clock) -> list[bytes]:
    """Replace the file by the lines that `keep` wants; gives those that went. The caller holds the lock."""
    with explaining("read", path), path.open("rb") as old:
        lines = list(old)
        verdicts = [(line, keep(line)) for line in lines]
        replace_file(path, b"".join(_ended(line) for line, kept in verdicts if kept))
        # Whoever opened the old file before it was replaced still writes there.
        clock.sleep(_LATECOMERS_S)
        late = os.pread(old.fileno(), os.fstat(old.fileno()).st_size, sum(map(len, lines)))
    if late.strip():
        append_lines(path, [line for line in late.split(b"\n") if line.strip()])
    return [line for line, kept in verdicts if not kept]


def _archive_one(
    store: Store, clock: Clock, name: str, is_settled: Callable[[Raw], bool], *, dry_run: bool
) -> Archived:
    path = store.home.beads / name
    moved = _settled_ids(path, is_settled)
    if not moved:
        return Archived(file=name, records=0, lines=0, archive=None)
    target = store.home.beads / ARCHIVE / f"{path.stem}-{clock.now():%Y-%m-%d}.jsonl"
    with explaining("read", path):
        going = [line for line in path.read_bytes().split(b"\n") if _id_of(line) in moved]
    if not dry_run:
        with explaining("make", target.parent):
            target.parent.mkdir(exist_ok=True)
        append_lines(target, going)
        rewrite(path, lambda line: _id_of(line) not in moved, clock)
    return Archived(file=name, records=len(moved), lines=len(going), archive=str(target))


def _settled_ids(path: Path, is_settled: Callable[[Raw], bool]) -> set[str]:
    folded: dict[str, Raw] = {}
    with explaining("read", path):
        content = path.read_bytes() if path.exists() else b""
    for line in content.split(b"\n"):
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


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"
