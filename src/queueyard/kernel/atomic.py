"""Files that are always whole: replacement, append and tolerant reading.

Promises, for every function here that writes:
- when it returns, the content survives a power cut (unless `durable=False` was asked for);
- when it fails or the process dies inside, the old content is there, or the new one, never a mixture;
- an append that died halfway leaves at most one torn last line, which the next append closes with a newline.

All access goes through `Files`, so that `queueyard.kernel.testing.FaultyFiles` can die at each step.
"""

from __future__ import annotations

from contextlib import suppress
import fcntl
import os
from pathlib import Path
import re
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from queueyard.kernel.errors import CorruptFile, explaining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_T = TypeVar("_T")
_NEW_FILE_MODE = 0o644

#: what a decoder raises when bytes are not what they should be (RecursionError: JSON nested without end)
NOT_UNDERSTOOD = (ValueError, msgspec.MsgspecError, RecursionError)


class Files:
    """The system calls that a durable write is made of, one method each."""

    def open(self, path: str, flags: int, mode: int = _NEW_FILE_MODE) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data)

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)  # noqa: PTH104  strings all the way: this is the system call layer

    def unlink(self, path: str) -> None:
        os.unlink(path)  # noqa: PTH108

    def fsync_folder(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


FILES = Files()


def replace_file(path: Path, data: bytes, *, mode: int | None = None, files: Files = FILES) -> None:
    """Put `data` in place of the file at once: write, fsync, rename, fsync of the folder.

    The mode bits of the old file are kept unless `mode` is given. Temporary files that dead writers of the same
    file left behind are removed. StorageFailed if the disk refuses; the old content is then untouched, unless it was
    the very last step that failed: then the new content is there, and merely not known to survive a power cut.
    """
    with explaining("write", path):
        _sweep_strays(path, files)
        descriptor, temporary = _open_temporary(path, files)
        try:
            try:
                os.fchmod(descriptor, _mode_for(path, mode))
                _write_all(descriptor, data, files)
                files.fsync(descriptor)
                files.rename(temporary, str(path))
            finally:
                files.close(descriptor)
        except OSError:
            _remove_if_there(temporary, files)
            raise
        files.fsync_folder(str(path.parent))


def append_lines(path: Path, lines: Iterable[bytes], *, durable: bool = True, files: Files = FILES) -> tuple[int, int]:
    """Append whole lines by one write under an exclusive flock; gives the byte range that they now fill.

    A torn last line, left by a dead writer, is closed with a newline first. If the disk refuses, whatever part was
    written is taken back and StorageFailed raised. `durable=False` leaves out the fsync of the content.
    """
    data = b"".join(line + b"\n" for line in lines)
    with explaining("append to", path):
        descriptor = _open_for_append(path, files)
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                # The name is durable before the first byte, so a file with content never needs this again: also
                # where the first append was not durable and a later one is.
                files.fsync_folder(str(path.parent))
            mend = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            try:
                _write_all(descriptor, mend + data, files)
                # Appending nothing moves nothing, not even our position to the end.
                end = os.lseek(descriptor, 0, os.SEEK_CUR) if mend + data else size
                if durable:
                    files.fsync(descriptor)
            except OSError:
                _take_back(descriptor, size, files)
                raise
        finally:
            files.close(descriptor)
    return end - len(data), end


class Line(msgspec.Struct, Generic[_T], frozen=True):
    """One line of a JSONL file, understood."""

    #: counted from 1, from where the reading started
    number: int
    #: where its first byte stands in the file
    offset: int
    #: what the decoder made of it
    value: _T


class BadLine(msgspec.Struct, frozen=True):
    """One line that could not be understood; the reader goes on behind it."""

    path: Path
    number: int
    offset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: line {self.number} (byte {self.offset}): {self.reason}"


def read_lines(
    path: Path,
    decode: Callable[[bytes], _T],
    *,
    start: int = 0,
    first_number: int = 1,
    on_bad: Callable[[BadLine], None],
) -> Iterator[Line[_T]]:
    """Decode each line from byte `start` on. Never fails on a bad line: that one goes to `on_bad`.

    Blank lines are skipped. A last line without a newline is decoded too (another tool may end its file so); if it
    cannot be, it is reported as torn. A missing file has no lines. StorageFailed if the file cannot be read.
    """
    offset = start
    for number, raw in enumerate(_raw_lines(path, start), first_number):
        if raw.strip():
            try:
                value = decode(raw)
            except NOT_UNDERSTOOD as fault:
                reason = str(fault) if raw.endswith(b"\n") else "torn last line"
                on_bad(BadLine(path, number, offset, reason))
            else:
                yield Line(number, offset, value)
        offset += len(raw)


def read_document(path: Path, decode: Callable[[bytes], _T], *, repair: str) -> _T | None:
    """The decoded file, or None where there is none. CorruptFile, with `repair` as hint, if it makes no sense."""
    with explaining("read", path):
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
    try:
        return decode(raw)
    except NOT_UNDERSTOOD as fault:
        raise CorruptFile(f"{path} cannot be understood: {fault}", hint=repair) from fault


def is_still_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is still the one at `path`; false once somebody replaced or deleted it."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))  # noqa: PTH116  at every append
    except FileNotFoundError:
        return False


def _raw_lines(path: Path, start: int) -> Iterator[bytes]:
    # Plain reads, not a memory map: a tool that truncates a mapped file would kill the reader with SIGBUS.
    with explaining("read", path):
        try:
            stream = path.open("rb", buffering=1 << 20)
        except FileNotFoundError:
            return
        with stream:
            stream.seek(start)
            for raw in stream:
                yield raw
                if not raw.endswith(b"\n"):
                    # The end as we met it. A writer may be in the middle of this line: going on would take its second
                    # half for a line of its own.
                    return


def _write_all(descriptor: int, data: bytes, files: Files) -> None:
    # One call in practice: a regular file is written short only when the disk is full, and then the rest fails.
    left = data
    while left:
        left = left[files.write(descriptor, left) :]


def _open_for_append(path: Path, files: Files) -> int:
    while True:
        descriptor = files.open(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still_at(descriptor, path):
                return descriptor
        except BaseException:
            files.close(descriptor)
            raise
        # Replaced while we waited for its lock: what we hold is no longer the file.
        files.close(descriptor)


def _take_back(descriptor: int, size: int, files: Files) -> None:
    # Only what we wrote may go: our position is its end, and a tool that does not lock may have appended behind.
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    if position > size and os.fstat(descriptor).st_size == position:
        files.truncate(descriptor, size)


_STRAY_MARK = ".queueyard-"
_STRAY_KEY = re.compile(r"[0-9a-f]{12}")
_LONGEST_NAME_KEPT_BYTES = 200


def _stray_prefix(path: Path) -> str:
    raw = os.fsencode(path.name)
    if len(raw) <= _LONGEST_NAME_KEPT_BYTES:
        return f".{path.name}{_STRAY_MARK}"
    # A name of 255 bytes leaves no room for the mark: such a one is told by its digest.
    import hashlib  # noqa: PLC0415  costs 6 ms, and hardly any name is so long

    return f".{hashlib.sha256(raw).hexdigest()}{_STRAY_MARK}"


def _open_temporary(path: Path, files: Files) -> tuple[int, str]:
    """A new temporary file beside `path`, locked as long as its writer lives."""
    while True:
        temporary = str(path.with_name(_stray_prefix(path) + os.urandom(6).hex()))
        descriptor = files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return descriptor, temporary
        # A sweep saw it between open and flock and took it for a stray.
        files.close(descriptor)


def _sweep_strays(path: Path, files: Files) -> None:
    """Remove the temporary files of `path` whose writer is dead: nobody holds their lock."""
    prefix = _stray_prefix(path)
    with os.scandir(path.parent) as entries:
        strays = [entry.path for entry in entries if _is_temporary(entry, prefix)]
    for stray in strays:
        # One that is locked, gone, or not ours to open or remove must not keep us from writing.
        with suppress(OSError):
            _remove_if_dead(stray, files)


def _is_temporary(entry: os.DirEntry[str], prefix: str) -> bool:
    # The whole shape of the name: somebody's own `.notes.queueyard-copy` is not ours to remove.
    key = entry.name.removeprefix(prefix)
    return entry.name.startswith(prefix) and bool(_STRAY_KEY.fullmatch(key)) and entry.is_file(follow_symlinks=False)


def _remove_if_dead(stray: str, files: Files) -> None:
    descriptor = os.open(stray, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        files.unlink(stray)
    finally:
        os.close(descriptor)


def _remove_if_there(path: str, files: Files) -> None:
    try:
        files.unlink(path)
    except FileNotFoundError:
        return


def _mode_for(path: Path, asked: int | None) -> int:
    if asked is not None:
        return asked
    try:
        return path.stat().st_mode & 0o7777
    except FileNotFoundError:
        return _NEW_FILE_MODE & ~_umask()


def _umask() -> int:
    # Linux tells it without changing it; os.umask() would change it for all threads.
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0o022
    return next((int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:")), 0o022)
