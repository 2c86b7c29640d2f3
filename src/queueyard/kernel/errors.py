"""The one family of errors that a user may see.

    QueueyardError            exit 1
    ├── UsageFault            exit 2   the command line asks for something that makes no sense
    ├── StorageFailed         exit 1   the disk refused: full, read-only, not permitted
    ├── CorruptFile           exit 1   a state file cannot be understood; it is never read as empty
    ├── LockTimeout           exit 1   somebody else holds the lock for too long
    ├── UnsafePath            exit 1   a text would lead out of its folder
    └── BadSettings           exit 1   every fault of every setting, at once

Each system derives its own errors from these in its `errors.py`. An error says what is wrong and, in `hint`,
what to type next. Anything else that escapes is a bug and keeps its traceback.
"""

from __future__ import annotations

from contextlib import contextmanager
import errno
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class QueueyardError(Exception):
    """A failure that was foreseen: one sentence for the user, and the next command to type."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def facts(self) -> dict[str, Any]:
        """What a program wants to know beyond the sentence, as JSON values; added to the error under --json."""
        return {}


class UsageFault(QueueyardError):
    """The options contradict each other or miss something; same exit code as an unknown option."""

    exit_code = 2


class StorageFailed(QueueyardError):
    """The file system refused to read or write; what was there before is still there."""


class CorruptFile(QueueyardError):
    """A state file cannot be understood."""


class LockTimeout(QueueyardError):
    """The lock was not free in time."""


class UnsafePath(QueueyardError):
    """A text was refused at the door from text to path."""


class BadSettings(QueueyardError):
    """One or more settings are wrong; the message lists all of them."""


_HINTS = {
    errno.ENOSPC: "Free some space on that disk, then run the same command again.",
    errno.EDQUOT: "Your disk quota is used up: free some space, then run the same command again.",
    errno.EROFS: "The file system is read-only: use another folder, or mount it writable.",
    errno.EACCES: "Check who owns it: ls -ld {path}",
    errno.EPERM: "Check who owns it: ls -ld {path}",
    errno.ENOENT: "Check that the folder exists: ls -ld {parent}",
    errno.ENOTDIR: "A file stands where a folder should be: ls -ld {parent}",
    errno.EISDIR: "A folder stands where a file should be: ls -ld {path}",
    errno.EIO: "The disk reports an error: look at the system log before you write there again.",
    errno.EMFILE: "Too many open files: raise the limit with ulimit -n.",
}


@contextmanager
def explaining(verb: str, path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an OSError into StorageFailed that names the file, the reason and the next command."""
    try:
        yield
    except OSError as fault:
        name = os.fspath(path)
        hint = _HINTS.get(fault.errno or 0)
        raise StorageFailed(
            f"cannot {verb} {name}: {os.strerror(fault.errno) if fault.errno else fault}",
            hint=hint.format(path=name, parent=os.path.dirname(name) or ".") if hint else None,  # noqa: PTH120
        ) from fault
