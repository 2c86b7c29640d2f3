"""How often something may be done: not more often than agreed, and never for more than a share of the time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.kernel.clock import Clock


class Pace:
    """When the next time is. What took long must wait longer, so that it stays below its share."""

    def __init__(self, clock: Clock, *, every_s: float, share: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._factor = 1 / share - 1
        self._last_end_s = float("-inf")
        self._cost_s = 0.0

    @property
    def due_s(self) -> float:
        """Monotonic; not before."""
        return self._last_end_s + max(self._every_s, self._cost_s * self._factor)

    @property
    def due_if_asked_s(self) -> float:
        """Monotonic; when somebody waits for it: at once, but at most every other moment is spent on it."""
        return self._last_end_s + self._cost_s

    @contextmanager
    def doing(self) -> Iterator[None]:
        """Around the thing itself; a failure counts as well, so that it is not tried all the time."""
        start_s = self._clock.monotonic()
        try:
            yield
        finally:
            self._last_end_s = self._clock.monotonic()
            self._cost_s = self._last_end_s - start_s
