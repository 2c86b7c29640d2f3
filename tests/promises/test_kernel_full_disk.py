"""A disk that refuses: on a real file system that is full, and at each single call of every write path."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import TYPE_CHECKING, TypeVar

import pytest

from queueyard.kernel.atomic import Files, append_lines, replace_file
from queueyard.kernel.errors import StorageFailed
from queueyard.kernel.events import Event, Journal, Kind, System
from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_R = TypeVar("_R")
TOO_MUCH = b"x" * 1_000_000
FREE_SPACE = "Free some space on that disk, then run the same command again."


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(disk: Path) -> Path:
    """Take the last byte of the disk; removing the file that is given back makes room again."""
    filler = disk / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
    os.write(descriptor, TOO_MUCH)  # cut short where the disk ends
    with pytest.raises(OSError, match="No space left"):
        os.write(descriptor, b"x")
    os.close(descriptor)
    return filler


class TestOnAFullDisk:
    def test_a_replacement_that_does_not_fit_leaves_the_old_file_and_no_stray(self, small_disk: Path) -> None:
        path = small_disk / "state.json"
        replace_file(path, b"old")

        with pytest.raises(StorageFailed, match="No space left on device") as caught:
            replace_file(path, TOO_MUCH)

        assert caught.value.hint == FREE_SPACE
        assert path.read_bytes() == b"old"
        assert names_in(small_disk) == ["state.json"]

    def test_the_part_of_an_append_that_still_fitted_is_taken_back(self, small_disk: Path) -> None:
        path = small_disk / "log.jsonl"
        append_lines(path, [b"1", b"2"])

        with pytest.raises(StorageFailed, match="No space left on device") as caught:
            append_lines(path, [TOO_MUCH])

        assert caught.value.hint == FREE_SPACE
        assert path.read_bytes() == b"1\n2\n"

    def test_a_torn_tail_stays_as_it_was_when_the_append_is_refused(self, small_disk: Path) -> None:
        path = small_disk / "log.jsonl"
        path.write_bytes(b"1\ntorn")

        with pytest.raises(StorageFailed):
            append_lines(path, [TOO_MUCH])

        assert path.read_bytes() == b"1\ntorn"

    def test_the_same_call_works_once_there_is_room(self, small_disk: Path) -> None:
        log, state = small_disk / "log.jsonl", small_disk / "state.json"
        append_lines(log, [b"1"])
        replace_file(state, b"old")
        filler = fill(small_disk)
        with pytest.raises(StorageFailed):
            append_lines(log, [b"2" * 5000])
        with pytest.raises(StorageFailed):
            replace_file(state, b"new")

        filler.unlink()
        append_lines(log, [b"2"])
        replace_file(state, b"new")

        assert log.read_bytes() == b"1\n2\n"
        assert state.read_bytes() == b"new"
        assert names_in(small_disk) == ["log.jsonl", "state.json"]

    def test_a_journal_complains_once_and_the_work_goes_on(self, small_disk: Path) -> None:
        told: list[str] = []
        journal = Journal(small_disk / "events.jsonl", complain=told.append)
        event = Event(
            id="1",
            at="now",
            system=System.JJQ,
            source="-",
            queue="-",
            item="-",
            kind=Kind.READ,
            data={"pad": "x" * 5000},
        )
        fill(small_disk)

        journal.append(event)
        journal.append(event)

        assert len(told) == 1
        assert told[0].endswith("No space left on device")
        assert journal.path.read_bytes() == b""

    def test_a_lock_can_be_held_even_where_its_signature_does_not_fit(self, small_disk: Path) -> None:
        fill(small_disk)

        with FileLock(small_disk / "x.lock", timeout_s=0) as lock:
            assert lock.held
            assert lock.holder() is None

    def test_a_command_says_what_to_do_and_exits_1(self, small_disk: Path) -> None:
        program = """
import os, pathlib, click
from queueyard.console import Script
from queueyard.kernel.atomic import replace_file

@click.group(cls=Script)
def main(): pass

@main.command()
def work():
    replace_file(pathlib.Path(os.environ["DEMO_STATE"]), b"new" * 1_000_000)

main()
"""
        state = small_disk / "state.json"
        replace_file(state, b"old")

        answer = subprocess.run(
            [sys.executable, "-c", program, "work"],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"DEMO_STATE": str(state)},
        )

        assert answer.returncode == 1
        assert answer.stdout == ""
        assert answer.stderr == f"Error: cannot write {state}: No space left on device\nHint: {FREE_SPACE}\n"
        assert state.read_bytes() == b"old"


class RefusingFiles(Files):
    """Real files that refuse the n-th call, as a disk does that is full or broken; a write may be cut short before."""

    def __init__(self, refuse_at: int | None = None, *, short: bool = False) -> None:
        self.calls: list[str] = []
        self._refuse_at = refuse_at
        self._short = short

    def _call(self, name: str, act: Callable[[], _R]) -> _R:
        self.calls.append(name)
        if len(self.calls) - 1 == self._refuse_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return act()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        return self._call("open", lambda: super(RefusingFiles, self).open(path, flags, mode))

    def write(self, descriptor: int, data: bytes) -> int:
        some = data[: max(1, len(data) // 2)] if self._short else data
        return self._call("write", lambda: super(RefusingFiles, self).write(descriptor, some))

    def fsync(self, descriptor: int) -> None:
        self._call("fsync", lambda: super(RefusingFiles, self).fsync(descriptor))

    def rename(self, source: str, target: str) -> None:
        self._call("rename", lambda: super(RefusingFiles, self).rename(source, target))

    def unlink(self, path: str) -> None:
        self._call("unlink", lambda: super(RefusingFiles, self).unlink(path))

    def fsync_folder(self, path: str) -> None:
        self._call("fsync_folder", lambda: super(RefusingFiles, self).fsync_folder(path))


@pytest.mark.parametrize("short", [False, True])
class TestAtEachCall:
    @pytest.mark.parametrize("before", [None, b"old"])
    def test_a_refused_replacement_leaves_the_old_file_and_no_stray(
        self, tmp_path: Path, before: bytes | None, short: bool
    ) -> None:
        calls = self.calls_of(lambda path, files: replace_file(path, b"new" * 9, files=files), tmp_path, short)
        # Refused behind the rename, the new content is there, and merely not known to last.
        for number, name in enumerate(calls):
            path = tmp_path / str(number) / "state"
            path.parent.mkdir()
            if before is not None:
                path.write_bytes(before)

            with pytest.raises(StorageFailed, match="No space left"):
                replace_file(path, b"new" * 9, files=RefusingFiles(number, short=short))

            expected = b"new" * 9 if name == "fsync_folder" else before
            assert (path.read_bytes() if path.exists() else None) == expected
            assert names_in(path.parent) == ([] if expected is None else ["state"])

    def test_a_stray_that_cannot_be_removed_does_not_fail_the_replacement(self, tmp_path: Path, short: bool) -> None:
        (tmp_path / ".state.queueyard-0123456789ab").write_bytes(b"")
        files = RefusingFiles(0, short=short)

        replace_file(tmp_path / "state", b"new", files=files)

        assert files.calls[0] == "unlink"
        assert (tmp_path / "state").read_bytes() == b"new"

    @pytest.mark.parametrize("before", [b"", b"1\n", b"1\ntorn"])
    def test_a_refused_append_leaves_every_byte_as_it_was(self, tmp_path: Path, before: bytes, short: bool) -> None:
        def append(path: Path, files: Files) -> object:
            path.write_bytes(before)
            return append_lines(path, [b"22", b"333"], files=files)

        for number, _ in enumerate(self.calls_of(append, tmp_path, short)):
            path = tmp_path / str(number)

            with pytest.raises(StorageFailed, match="No space left"):
                append(path, RefusingFiles(number, short=short))

            assert path.read_bytes() == before

    @staticmethod
    def calls_of(write: Callable[[Path, Files], object], folder: Path, short: bool) -> list[str]:
        files = RefusingFiles(short=short)
        write(folder / "undisturbed", files)
        return files.calls


def test_what_another_tool_appended_meanwhile_is_not_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"1\n")

    class Meanwhile(RefusingFiles):
        def write(self, descriptor: int, data: bytes) -> int:
            written = super().write(descriptor, data)
            with path.open("ab") as other_tool:
                other_tool.write(b"theirs\n")
            return written

    with pytest.raises(StorageFailed):
        append_lines(path, [b"2" * 10], files=Meanwhile(2, short=True))

    assert path.read_bytes().endswith(b"theirs\n")
