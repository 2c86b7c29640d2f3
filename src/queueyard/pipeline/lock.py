"""Who changes the tables of a home: one at a time."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Iterator


def lock_of(home: str) -> FileLock:
    return FileLock(Path(home) / "lock", timeout_s=0)


@contextmanager
def holding(lock: FileLock) -> Iterator[None]:
    """Hold it while the block runs, if it is not held already. LockTimeout, naming the holder, if another has it."""
    if lock.held:
        yield
        return
    lock.path.parent.mkdir(parents=True, exist_ok=True)
    with lock:
        yield
