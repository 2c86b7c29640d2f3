"""Waiting: for a message to arrive, for files to become free, for anything to change.

The caller waits on one call. Inside, the state of the files is asked twenty times a second, which costs a few
microseconds each; a file that did not change is not read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from queueyard.kernel.clock import Clock

_LOOK_EVERY_S = 0.05

_R = TypeVar("_R")


class FileWatch:
    """Notices that files changed since it last looked; nothing that happens between two looks is missed."""

    def __init__(self, paths: Sequence[Path], clock: Clock) -> None:
        self._paths = paths
        self._clock = clock
        self._seen = self._states()

    def wait(self, timeout_s: float | None) -> bool:
        """Block until a file changed; False if `timeout_s` passed first."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while (now := self._states()) == self._seen:
            left = _LOOK_EVERY_S if deadline is None else deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(_LOOK_EVERY_S, left))
        self._seen = now
        return True

    def _states(self) -> list[tuple[int, ...]]:
        return [_state(path) for path in self._paths]


def wait_until(
    ask: Callable[[], _R], path: Path, *, timeout_s: float | None, clock: Clock, recheck_s: float | None = None
) -> _R:
    """What `ask` answers as soon as that is something; its last, empty answer when the time is up.

    It is asked at once, then whenever the file at `path` changed, and every `recheck_s`, for what comes true by the
    passing of time alone (a reservation that expires).
    """
    deadline = None if timeout_s is None else clock.monotonic() + timeout_s
    watch = FileWatch([path], clock)
    while True:
        answer = ask()
        left = None if deadline is None else deadline - clock.monotonic()
        if answer or (left is not None and left <= 0):
            return answer
        limits = [limit for limit in (left, recheck_s) if limit is not None]
        watch.wait(min(limits) if limits else None)


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)  # noqa: PTH116  twenty times a second
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
