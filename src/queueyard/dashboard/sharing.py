"""What several people ask for at the same time is fetched once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

_T = TypeVar("_T")

#: as many different questions are remembered; more are asked each time
_MOST = 64


class Shared:
    """Answers that are good for a short while. Belongs to one event loop."""

    def __init__(self, keep_s: float, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._keep_s = keep_s
        self._clock = clock
        self._known: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(self, question: Hashable, fetch: Callable[[], _T]) -> _T:
        """The answer to a question, fetched in a thread unless somebody has just asked the same."""
        now = self._clock.monotonic()
        self._known = {one: known for one, known in self._known.items() if known[0] + self._keep_s > now}
        _, task = self._known.get(question, (now, None))
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(fetch))
            if len(self._known) < _MOST:
                self._known[question] = (now, task)
        # Somebody who goes away must not take the answer from the others.
        answer: _T = await asyncio.shield(task)
        return answer

    def forget(self) -> None:
        """Something was changed: every answer is an old one."""
        self._known = {}
