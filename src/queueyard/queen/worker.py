"""Waiting: for a message to arrive, for files to become free, for anything to change.

The caller waits on one call. Inside, the state of the file is asked twenty times a second, which costs a few
microseconds each; a file that did not change is not read.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.kernel.clock import Clock

_LOOK_EVERY_S = 0.05

_R = TypeVar("_R")


def wait_until(
    ask: Callable[[], _R],
    path: Path,
    *,
    timeout_s: float | None,
    clock: Clock,
    recheck_s: float | None = None,
) -> _R:
    """What `ask` answers as soon as that is something; its last, empty answer when the time is up.

    It is asked at once, then whenever the file at `path` changed, and every `recheck_s`, for what comes true by the
    passing of time alone (a reservation that expires).
    """
    deadline = None if timeout_s is None else clock.monotonic() + timeout_s
    while True:
        seen = _state(path)
        asked_at = clock.monotonic()
        answer = ask()
        while not answer:
            now = clock.monotonic()
            if deadline is not None and now >= deadline:
                return answer
            clock.sleep(_LOOK_EVERY_S if deadline is None else min(_LOOK_EVERY_S, deadline - now))
            if _state(path) != seen or (recheck_s is not None and clock.monotonic() - asked_at >= recheck_s):
                break
        else:
            return answer


def _state(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)  # noqa: PTH116  twenty times a second
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
