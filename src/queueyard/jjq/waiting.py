"""Waiting for anything to change in a repository, whoever changes it.

The caller waits on one call. Inside, the names of the operation heads are listed twenty times a second, which costs a
few microseconds each; jj is asked only after they changed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.kernel.clock import Clock

_LOOK_EVERY_S = 0.05


class OperationWatch:
    """Notices that the repository changed since it last looked; nothing that happens between two looks is missed."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._seen = self._heads()

    def look(self) -> bool:
        """Whether something changed since the last look."""
        now = self._heads()
        changed = now != self._seen
        self._seen = now
        return changed

    def wait(self, timeout_s: float | None, *, until: Callable[[], bool] | None = None) -> bool:
        """Block until something changed; False if `timeout_s` passed or `until` came true first."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not self.look():
            left = _LOOK_EVERY_S if deadline is None else deadline - self._clock.monotonic()
            if left <= 0 or (until is not None and until()):
                return False
            self._clock.sleep(min(_LOOK_EVERY_S, left))
        return True

    def _heads(self) -> frozenset[str]:
        try:
            return frozenset(os.listdir(self._folder))  # noqa: PTH208  twenty times a second
        except OSError:
            return frozenset()
