"""Every kernel write path dies at every step, before and after it, under every power cut, and what is left is whole.

The same enumeration is run over writers that are wrong on purpose: a test that cannot catch them proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.atomic import BadLine, Files, append_lines, read_lines, replace_file
from queueyard.kernel.events import Event, Journal, Kind, System, make_event
from queueyard.kernel.testing import Died, FaultyFiles, Loss

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD, NEW, NEXT = (b"old " * 50, b"new " * 400, b"next")
OLD_LINES = [b'{"n":1}', b'{"n":2}']
NEW_LINES = [b'{"n":3,"pad":"' + b"x" * 50 + b'"}', b'{"n":4}']
NEXT_LINE = b'{"n":5}'
TORN = b'{"n":"to'

Write = Callable[[Path, Files], None]


@dataclass(frozen=True, kw_only=True)
class Crash:
    """One way to die, and what the power cut takes afterwards; `die_at=None` lives until the write has returned."""

    die_at: int | None
    after: bool
    bytes_lost: Loss
    names_lost: bool

    @property
    def power_stays(self) -> bool:
        return self.bytes_lost is Loss.NOTHING and not self.names_lost


#: what is found in the folder after a crash -> what is wrong with it
Check = Callable[[Path, Crash], list[str]]


@dataclass(frozen=True, kw_only=True)
class WritePath:
    """One way to write one file, what stands there before, and what must hold after a crash."""

    name: str
    before: dict[str, bytes]
    write: Write
    check: Check

    def __str__(self) -> str:
        return self.name


def every_crash(path: WritePath, folder: Path) -> Iterator[Crash]:
    steps = len(run_once(path, folder, die_at=None, after=False).steps)
    deaths = [(None, False), *product(range(steps), (False, True))]
    for (die_at, after), bytes_lost, names_lost in product(deaths, Loss, (False, True)):
        yield Crash(die_at=die_at, after=after, bytes_lost=bytes_lost, names_lost=names_lost)


def run_once(path: WritePath, folder: Path, *, die_at: int | None, after: bool) -> FaultyFiles:
    folder.mkdir()
    for name, content in path.before.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o640)
    files = FaultyFiles(folder, die_at=die_at, after=after)
    try:
        path.write(folder / "file", files)
    except Died:
        assert die_at is not None
    return files


def broken_promises(path: WritePath, tmp_path: Path) -> list[str]:
    """What every crash of this write path breaks, one line each; empty for a writer that keeps its promises."""
    found: list[str] = []
    for number, crash in enumerate(every_crash(path, tmp_path / "steps")):
        folder = tmp_path / str(number)
        files = run_once(path, folder, die_at=crash.die_at, after=crash.after)
        files.power_cut(bytes_lost=crash.bytes_lost, names_lost=crash.names_lost)
        where = "returned" if crash.die_at is None else str(files.steps[crash.die_at])
        found += [f"{crash} {where}: {fault}" for fault in path.check(folder, crash)]
    return found


def content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def check_replaced(old: bytes | None) -> Check:
    def check(folder: Path, crash: Crash) -> list[str]:
        path = folder / "file"
        allowed = {NEW} if crash.die_at is None else {old, NEW}
        faults = [] if (there := content_of(path)) in allowed else [f"found {there!r:.60}"]
        if there is not None and old is not None and path.stat().st_mode & 0o7777 != 0o640:
            faults.append("lost its mode bits")
        replace_file(path, NEXT)
        names = sorted(path.name for path in folder.iterdir())
        return faults + ([] if names == ["file"] else [f"strays after the next write: {names}"])

    return check


def check_appended(*, before: list[bytes], torn: bool = False, durable: bool = True) -> Check:
    def check(folder: Path, crash: Crash) -> list[str]:
        path = folder / "file"
        acknowledged = crash.die_at is None and (durable or crash.power_stays)
        lines, bad = read_back(path)
        faults = [] if lines[: len(before)] == before else [f"lost acknowledged lines: {lines}"]
        new = lines[len(before) :]
        if new != NEW_LINES[: len(new)] or (acknowledged and new != NEW_LINES):
            faults.append(f"the new lines are {new}")
        if len(bad) > torn + 1 or any(line.reason != "torn last line" for line in bad[torn:]):
            faults.append(f"more than a torn last line is bad: {[str(line) for line in bad]}")
        append_lines(path, [NEXT_LINE])
        after, _ = read_back(path)
        if after != [*lines, NEXT_LINE]:
            faults.append(f"the next append made {after} of {lines}")
        names = sorted(path.name for path in folder.iterdir())
        return faults + ([] if names == ["file"] else [f"strays after the next write: {names}"])

    return check


def read_back(path: Path) -> tuple[list[bytes], list[BadLine]]:
    def whole(raw: bytes) -> bytes:
        msgspec.json.decode(raw)
        return raw.strip()

    bad: list[BadLine] = []
    return [line.value for line in read_lines(path, whole, on_bad=bad.append)], bad


def as_file(lines: list[bytes], torn: bytes = b"") -> bytes:
    return b"".join(line + b"\n" for line in lines) + torn


STRAY = ".file.queueyard-0123456789ab"
REPLACE_PATHS = [
    WritePath(
        name="replace_file over an existing file",
        before={"file": OLD},
        write=lambda path, files: replace_file(path, NEW, files=files),
        check=check_replaced(OLD),
    ),
    WritePath(
        name="replace_file of a new file",
        before={},
        write=lambda path, files: replace_file(path, NEW, files=files),
        check=check_replaced(None),
    ),
    WritePath(
        name="replace_file beside the stray of a dead writer",
        before={"file": OLD, STRAY: b"half of so"},
        write=lambda path, files: replace_file(path, NEW, files=files),
        check=check_replaced(OLD),
    ),
]
APPEND_PATHS = [
    WritePath(
        name="append_lines to a new file",
        before={},
        write=lambda path, files: drop(append_lines(path, NEW_LINES, files=files)),
        check=check_appended(before=[]),
    ),
    WritePath(
        name="append_lines to an existing file",
        before={"file": as_file(OLD_LINES)},
        write=lambda path, files: drop(append_lines(path, NEW_LINES, files=files)),
        check=check_appended(before=OLD_LINES),
    ),
    WritePath(
        name="append_lines to a file with a torn tail",
        before={"file": as_file(OLD_LINES, TORN)},
        write=lambda path, files: drop(append_lines(path, NEW_LINES, files=files)),
        check=check_appended(before=OLD_LINES, torn=True),
    ),
    WritePath(
        name="append_lines that need not last to a new file",
        before={},
        write=lambda path, files: drop(append_lines(path, NEW_LINES, durable=False, files=files)),
        check=check_appended(before=[], durable=False),
    ),
]


def drop(_result: object) -> None:
    """A write path tells nothing but that it returned."""


@pytest.mark.parametrize("path", [*REPLACE_PATHS, *APPEND_PATHS], ids=str)
def test_every_crash_leaves_the_old_or_the_new_whole(path: WritePath, tmp_path: Path) -> None:
    assert broken_promises(path, tmp_path) == []


def event(number: int) -> Event:
    return make_event(
        datetime(2026, 1, 1, tzinfo=UTC),
        system=System.QUEEN,
        source="here",
        queue="messages",
        item=f"m{number}",
        kind=Kind.QUEUED,
        change="1",
    )


@pytest.mark.parametrize("before", [[], [event(0)]], ids=["new", "existing"])
def test_every_crash_of_a_journal_leaves_the_earlier_events_and_at_most_a_torn_last_line(
    before: list[Event], tmp_path: Path
) -> None:
    earlier = [msgspec.json.encode(one) for one in before]
    told = [msgspec.json.encode(event(number)) for number in (1, 2)]

    def check(folder: Path, crash: Crash) -> list[str]:
        lines, bad = read_back(folder / "file")
        faults = [] if lines[: len(earlier)] == earlier else [f"lost {lines}"]
        if lines[len(earlier) :] != told[: len(lines) - len(earlier)]:
            faults.append(f"made up {lines}")
        if crash.die_at is None and crash.power_stays and lines != earlier + told:
            faults.append(f"not recorded: {lines}")
        if [line.reason for line in bad] not in ([], ["torn last line"]):
            faults.append(f"bad: {[str(line) for line in bad]}")
        Journal(folder / "file", complain=faults.append).append(event(3))
        after, _ = read_back(folder / "file")
        return faults + ([] if after == [*lines, msgspec.json.encode(event(3))] else [f"not mended: {after}"])

    journal = WritePath(
        name="Journal.append",
        before={"file": as_file(earlier)} if before else {},
        write=lambda path, files: Journal(path, files=files).append(event(1), event(2)),
        check=check,
    )

    assert broken_promises(journal, tmp_path) == []


def test_a_durable_append_lasts_even_in_a_file_whose_first_append_was_not(tmp_path: Path) -> None:
    def write(path: Path, files: Files) -> None:
        append_lines(path, OLD_LINES, durable=False, files=files)
        append_lines(path, NEW_LINES, files=files)

    def check(folder: Path, crash: Crash) -> list[str]:
        lines, _ = read_back(folder / "file")
        return [] if crash.die_at is not None or lines == OLD_LINES + NEW_LINES else [f"found {lines}"]

    path = WritePath(name="mixed", before={}, write=write, check=check)

    assert broken_promises(path, tmp_path) == []


# --- The test tested: writers that are wrong on purpose ---------------------------------------------------------


def write_temporary(path: Path, files: Files, *, fsync: bool = True) -> tuple[int, str]:
    temporary = f"{path}.tmp"
    descriptor = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    files.write(descriptor, NEW)
    if fsync:
        files.fsync(descriptor)
    return descriptor, temporary


def replace_without_fsync(path: Path, files: Files) -> None:
    descriptor, temporary = write_temporary(path, files, fsync=False)
    files.close(descriptor)
    files.rename(temporary, str(path))
    files.fsync_folder(str(path.parent))


def replace_with_fsync_after_rename(path: Path, files: Files) -> None:
    descriptor, temporary = write_temporary(path, files, fsync=False)
    files.rename(temporary, str(path))
    files.fsync(descriptor)
    files.close(descriptor)
    files.fsync_folder(str(path.parent))


def replace_without_folder_fsync(path: Path, files: Files) -> None:
    descriptor, temporary = write_temporary(path, files)
    files.close(descriptor)
    files.rename(temporary, str(path))


def replace_without_sweeping(path: Path, files: Files) -> None:
    descriptor, temporary = write_temporary(path, files)
    files.close(descriptor)
    files.rename(temporary, str(path))
    files.fsync_folder(str(path.parent))


def replace_in_place(path: Path, files: Files) -> None:
    descriptor = files.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    files.write(descriptor, NEW)
    files.fsync(descriptor)
    files.close(descriptor)
    files.fsync_folder(str(path.parent))


def replace_by_removing_first(path: Path, files: Files) -> None:
    descriptor, temporary = write_temporary(path, files)
    files.close(descriptor)
    files.unlink(str(path))
    files.rename(temporary, str(path))
    files.fsync_folder(str(path.parent))


def append_bytes(path: Path, data: bytes, files: Files, *, fsync: bool = True) -> None:
    descriptor = files.open(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    files.write(descriptor, data)
    if fsync:
        files.fsync(descriptor)
    files.close(descriptor)


@pytest.mark.parametrize(
    ("write", "caught"),
    [
        (replace_without_fsync, "found b''"),
        (replace_with_fsync_after_rename, "found b''"),
        (replace_without_folder_fsync, "returned: found b'old"),
        (replace_without_sweeping, "strays after the next write"),
        (replace_in_place, "found b'new new "),
        (replace_by_removing_first, "found None"),
    ],
)
def test_a_wrong_way_to_replace_is_caught(write: Write, caught: str, tmp_path: Path) -> None:
    path = WritePath(name="wrong", before={"file": OLD}, write=write, check=check_replaced(OLD))

    assert any(caught in fault for fault in broken_promises(path, tmp_path))


@pytest.mark.parametrize(
    ("before", "write", "caught"),
    [
        (
            OLD_LINES,
            lambda path, files: append_bytes(path, as_file(NEW_LINES), files, fsync=False),
            "the new lines are",
        ),
        ([], lambda path, files: append_bytes(path, as_file(NEW_LINES), files), "the new lines are []"),
        (OLD_LINES, lambda path, files: append_bytes(path, b"".join(NEW_LINES), files), "the new lines are"),
        (OLD_LINES, replace_in_place, "lost acknowledged lines"),
    ],
    ids=["no fsync", "no folder fsync", "no newline", "whole file rewritten in place"],
)
def test_a_wrong_way_to_append_is_caught(before: list[bytes], write: Write, caught: str, tmp_path: Path) -> None:
    content = {"file": as_file(before)} if before else {}
    path = WritePath(name="wrong", before=content, write=write, check=check_appended(before=before))

    assert any(caught in fault for fault in broken_promises(path, tmp_path))


def test_an_append_that_does_not_mend_a_torn_tail_is_caught(tmp_path: Path) -> None:
    path = WritePath(
        name="wrong",
        before={"file": as_file(OLD_LINES, TORN)},
        write=lambda path, files: append_bytes(path, as_file(NEW_LINES), files),
        check=check_appended(before=OLD_LINES, torn=True),
    )

    assert any("the new lines are" in fault for fault in broken_promises(path, tmp_path))
