"""The folder that is kept in step with the server: the only place that reads and writes the user's own files.

Symbolic links are never followed, neither out of the folder nor within it. A file is replaced or removed only if it
is still what it was when it was judged; whoever saves it in the very moment between loses that race, but nothing that
was there when the pull looked is overwritten.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256
import os
import stat
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, Files, replace_file
from queueyard.kernel.errors import StorageFailed, UnsafePath, explaining
from queueyard.kernel.paths import safe_join
from queueyard.ops.errors import BadServerPath, NoWorkspace
from queueyard.ops.folder_rules import Local
from queueyard.ops.ignores import IGNORE_NAME, Ignores
from queueyard.ops.names import path_key, server_path
from queueyard.ops.records import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

#: a file that was changed this recently may change again without looking different
_TOO_FRESH_NS = 2_000_000_000


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a scan could not take, and why."""

    path: str
    reason: str


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """A folder at one moment."""

    #: server path -> file
    files: dict[str, Local]
    #: server path -> path below the root, as the folder spells it
    spelled: dict[str, str]
    #: server path -> what need not be read again
    seen: dict[str, Seen]
    skipped: list[Skipped]


class Folder:
    """One workspace."""

    def __init__(self, root: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """NoWorkspace if there is no such folder."""
        self.root = root
        if not root.is_dir():
            raise NoWorkspace(f"no such folder: {root}", hint="Name the folder that is to be kept in step.")
        ignore_file = root / IGNORE_NAME
        with explaining("read", ignore_file):
            lines = ignore_file.read_text(encoding="utf-8").splitlines() if ignore_file.is_file() else []
        self._ignores = Ignores(include=include, exclude=[*lines, *exclude])

    def scan(self, seen: Mapping[str, Seen], *, max_bytes: int, now_ns: int) -> Scan:
        """Every file that can be sent. Files that look as they did in `seen` are not read again."""
        scan = Scan(files={}, spelled={}, seen={}, skipped=[])
        taken: dict[str, str] = {}
        for spelled in self._walk("", scan.skipped):
            try:
                path = server_path(spelled)
                _refuse_twins(taken.setdefault(path_key(path), spelled), spelled)
                looks = self._look(spelled, seen.get(path), max_bytes)
            except (BadServerPath, _Unsendable, StorageFailed) as fault:
                scan.skipped.append(Skipped(path=spelled, reason=str(fault)))
                continue
            scan.spelled[path] = spelled
            scan.files[path] = Local(content_hash=looks.content_hash, encoded_bytes=looks.encoded_bytes)
            if looks.mtime_ns + _TOO_FRESH_NS < now_ns:
                scan.seen[path] = looks
        return scan

    def read(self, spelled: str) -> str:
        """The text of one file that a scan found. StorageFailed if it cannot be read any more."""
        found = _read(self.root / spelled)
        try:
            if found is not None:
                return found[0].decode()
        except UnicodeDecodeError:
            pass
        raise StorageFailed(f"{spelled} is no longer there, or no longer text", hint="Run the same command again.")

    def hash_of(self, path: str) -> str | None:
        """The hash of the file at a server path; None if there is none. UnsafePath if something else is there."""
        found = _read(self._target(path))
        return None if found is None else sha256(found[0]).hexdigest()

    def write(self, path: str, content: str, *, instead_of: str | None, files: Files = FILES) -> bool:
        """Put a text at a server path, if what is there still has the hash `instead_of` (None: nothing is there).

        False, and nothing is written, if it has not.
        """
        target = self._target(path)
        with explaining("make", target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
        self._target(path)
        if self.hash_of(path) != instead_of:
            return False
        replace_file(target, content.encode(), files=files)
        return True

    def remove(self, path: str, *, instead_of: str, files: Files = FILES) -> bool:
        """Take a file away, and folders that are empty then, if it still has that hash; False if it has not."""
        found = self.hash_of(path)
        if found is None:
            return True
        if found != instead_of:
            return False
        target = self._target(path)
        with explaining("remove", target):
            files.unlink(str(target))
        for folder in target.parents:
            if folder == self.root:
                break
            with suppress(OSError):
                folder.rmdir()
        return True

    def _walk(self, below: str, skipped: list[Skipped]) -> Iterator[str]:
        with explaining("read", self.root / below), os.scandir(self.root / below) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = f"{below}/{entry.name}" if below else entry.name
            if not _is_text(entry.name):
                skipped.append(Skipped(path=ascii(path), reason="its name is not UTF-8"))
            elif entry.is_symlink():
                if not self._ignores.leaves_out_file(path):
                    skipped.append(Skipped(path=path, reason="it is a symbolic link"))
            elif entry.is_dir(follow_symlinks=False):
                if not self._ignores.leaves_out_folder(path):
                    yield from self._walk(path, skipped)
            elif not self._ignores.leaves_out_file(path):
                yield path

    def _look(self, spelled: str, before: Seen | None, max_bytes: int) -> Seen:
        status = (self.root / spelled).lstat()
        if not stat.S_ISREG(status.st_mode):
            raise _Unsendable("it is not a file")
        if status.st_size > max_bytes:
            raise _Unsendable(f"it has {status.st_size} bytes, more than max_file_bytes ({max_bytes})")
        if before and (before.mtime_ns, before.size, before.inode) == _looks(status):
            return before
        found = _read(self.root / spelled)
        if found is None:
            raise _Unsendable("it vanished while it was looked at")
        data, status = found
        try:
            text = data.decode()
        except UnicodeDecodeError:
            raise _Unsendable("it is not UTF-8 text") from None
        if "\0" in text:
            raise _Unsendable("it is not text: it holds a zero byte")
        return Seen(*_looks(status), sha256(data).hexdigest(), len(msgspec.json.encode(text)))

    def _target(self, path: str) -> Path:
        """The place of a server path; no step on the way may be a link, wherever it leads."""
        target = safe_join(self.root, path)
        for step in (target, *target.parents):
            if step == self.root:
                return target
            if step.is_symlink():
                raise UnsafePath(f"{path} goes through a symbolic link", hint=f"ls -l {step}")
            if step != target and step.exists() and not step.is_dir():
                raise UnsafePath(f"{path}: {step.name} is a file, not a folder", hint=f"ls -l {step}")
        raise UnsafePath(f"{path} is not below {self.root}")


class _Unsendable(Exception):
    pass


def _refuse_twins(first: str, second: str) -> None:
    if first != second:
        raise _Unsendable(f"{first} has the same name where case does not count")


def _read(path: Path) -> tuple[bytes, os.stat_result] | None:
    """A whole file, and what it looked like; None if it is not there. UnsafePath for a link or anything but a file."""
    with explaining("read", path):
        try:
            # Not blocking: a pipe would wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):
                return _all_of(descriptor, status.st_size), status
        finally:
            os.close(descriptor)
    raise UnsafePath(f"{path} is not a file", hint=f"ls -l {path}")


def _all_of(descriptor: int, size: int) -> bytes:
    parts = [os.read(descriptor, size + 1)]
    while parts[-1]:
        parts.append(os.read(descriptor, 1 << 20))
    return b"".join(parts)


def _looks(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
