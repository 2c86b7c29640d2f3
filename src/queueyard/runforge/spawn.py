"""Starting the program of a run: `kernel.proc.start` with everything left out that a run does not need.

A child has a session and a group of its own, as those of the kernel, and gets its streams as descriptors. It starts in
the current folder of this process; for any other, the kernel's way is taken. It costs a third of it, which is most of
what a run that does nothing costs at all.
"""

from __future__ import annotations

from functools import lru_cache
import os
from pathlib import Path
import shutil
import signal
from typing import TYPE_CHECKING, Protocol

from queueyard.kernel import proc

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Python ignores these two; a program expects to be ended by them.
_BACK_TO_DEFAULT = (signal.SIGPIPE, signal.SIGXFSZ)


class Process(Protocol):
    """A child of ours, however it was started."""

    @property
    def pid(self) -> int: ...

    @property
    def identity(self) -> proc.Identity: ...

    def wait(self) -> int | None: ...


class Spawned:
    """A child that was started by `spawn`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def identity(self) -> proc.Identity:
        """Asked for late, and only of runs that live long enough; until `wait` nobody else can have the pid."""
        return proc.identity_of(self.pid) or proc.Identity(self.pid, "unknown")

    def wait(self) -> int:
        """The exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def spawn(argv: Sequence[str], *, cwd: str, env: Mapping[str, str], output: int) -> Process:
    """Start a program whose stdout and stderr are `output`. OSError if it cannot be started."""
    program = _program(argv[0], env.get("PATH", os.defpath))
    if program is None or not is_current_folder(cwd):
        return proc.start(argv, cwd=Path(cwd), env=env, stdout=output, stderr=output)
    pid = os.posix_spawn(
        program,
        list(argv),
        env,
        file_actions=(
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, output, 1),
            (os.POSIX_SPAWN_DUP2, output, 2),
        ),
        setsid=True,
        setsigdef=_BACK_TO_DEFAULT,
        setsigmask=(),
    )
    return Spawned(pid)


def is_current_folder(path: str) -> bool:
    """Whether a program that inherits our folder starts there."""
    try:
        return os.path.samestat(os.stat(path), os.stat("."))  # noqa: PTH116  on the way of every start
    except OSError:
        return False


def _program(word: str, search: str) -> str | None:
    """Where a program is, as the shell finds it; None leaves the search, and the complaint, to the kernel's way."""
    if os.sep in word:
        return word
    found = _found(word, search)
    # What was there may have been removed since.
    return found if found and os.access(found, os.X_OK) else None


@lru_cache(maxsize=256)
def _found(word: str, search: str) -> str | None:
    return shutil.which(word, path=search)
