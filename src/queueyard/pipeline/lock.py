"""Who changes the tables of a home: one at a time."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.errors import explaining
from queueyard.kernel.locks import FileLock
from queueyard.pipeline.settings import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def lock_of(home: str) -> FileLock:
    """In the folder of the tables. Elsewhere there are no locks: it keeps out runs of this user and machine."""
    folder = folder_of(home)
    return FileLock(_own_lock(home) if folder is None else folder / "lock", timeout_s=0)


def _own_lock(home: str) -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "queueyard" / "pipeline" / f"{sha256(home.encode()).hexdigest()[:16]}.lock"


@contextmanager
def holding(lock: FileLock) -> Iterator[None]:
    """Hold it while the block runs, if it is not held already. LockTimeout, naming the holder, if another has it."""
    if lock.held:
        yield
        return
    with explaining("make", lock.path.parent):
        lock.path.parent.mkdir(parents=True, exist_ok=True)
    with lock:
        yield
