"""How long to wait before the next try. Pure: the randomness is passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Exponential with a cap and optional jitter."""

    #: delay before the second attempt, milliseconds
    base_ms: int = 1_000
    #: no delay is longer, milliseconds
    cap_ms: int = 60_000
    #: each delay is this many times the one before, at least 1
    factor: float = 2.0
    #: share of the delay that is left to chance: 0 none, 1 full jitter
    jitter: float = 1.0

    def delay_ms(self, attempt: int, random: Callable[[], float]) -> int:
        """The delay after `attempt` (1, 2, ...) failed; `random` gives numbers in [0, 1)."""
        if attempt < 1:
            raise ValueError(f"attempts count from 1, not {attempt}")
        ceiling = self._ceiling_ms(attempt)
        return round(ceiling - ceiling * self.jitter * random())

    def _ceiling_ms(self, attempt: int) -> float:
        try:
            return min(float(self.cap_ms), self.base_ms * self.factor ** (attempt - 1))
        except OverflowError:
            # factor ** attempt left the floats long after it passed the cap, which nothing times it never does.
            return float(self.cap_ms if self.base_ms else 0)
