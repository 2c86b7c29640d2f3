"""One look at the yard every few seconds, shared by all who watch: the latest, a short history, and a signal.

However many browsers are open, the places are asked once. While nobody watches, they are asked less often.
"""

from __future__ import annotations

import asyncio
from collections import deque
import logging
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.kernel.errors import QueueyardError
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_log = logging.getLogger("queueyard.dashboard")
_REMEMBERED = 150
_IDLE_S = 15.0
#: a proxy or browser gives up a stream on which nothing comes
_HEARTBEAT_S = 20.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The yard at one moment."""

    number: int
    #: RFC 3339
    at: str
    glances: list[Glance]
    #: how long the look took
    took_ms: float
    #: why nobody could look at all
    problem: str | None = None


class Live:
    """Looks, remembers, and wakes whoever waits. `run` is a task of the server; everything else is called beside it."""

    def __init__(self, look: Callable[[], list[Glance]], *, every_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._look = look
        self._every_s = every_s
        self._clock = clock
        self._changed = asyncio.Condition()
        self._wish = asyncio.Event()
        self._watchers = 0
        self._closed = False
        self._snapshot: Snapshot | None = None
        #: (system, place) -> waiting, running, failed at each look
        self._history: dict[tuple[str, str], deque[tuple[int, int, int]]] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._look_once()
            pause_s = self._every_s if self._watchers else max(self._every_s, _IDLE_S)
            try:
                await asyncio.wait_for(self._wish.wait(), pause_s)
            except TimeoutError:
                continue
            self._wish.clear()

    def hurry(self) -> None:
        """Somebody changed something, or has just come: look now."""
        self._wish.set()

    async def snapshot(self) -> Snapshot:
        """The latest look; waits for the very first one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._snapshot is not None)
        assert self._snapshot is not None  # noqa: S101  just waited for
        return self._snapshot

    def history(self, glance: Glance) -> list[tuple[int, int, int]]:
        return list(self._history.get((glance.system, glance.at), ()))

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events: `tick` with the number of each look from now on. Ends when the server does."""
        self._watchers += 1
        self.hurry()
        seen = self._snapshot.number if self._snapshot else 0
        try:
            yield b"retry: 2000\n\n"
            while not self._closed:
                number = await self._newer_than(seen)
                if number is None:
                    yield b": still here\n\n"
                    continue
                seen = number
                yield b"event: tick\ndata: %d\n\n" % seen
        finally:
            self._watchers -= 1

    async def close(self) -> None:
        """Let go of everybody who listens."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    async def _newer_than(self, seen: int) -> int | None:
        def is_newer() -> bool:
            return self._closed or (self._snapshot is not None and self._snapshot.number > seen)

        try:
            async with asyncio.timeout(_HEARTBEAT_S), self._changed:
                await self._changed.wait_for(is_newer)
        except TimeoutError:
            return None
        return self._snapshot.number if self._snapshot else seen

    async def _look_once(self) -> None:
        started = self._clock.monotonic()
        problem, found = None, []
        try:
            found = await asyncio.to_thread(self._look)
        except QueueyardError as fault:
            problem = f"{fault} {fault.hint or ''}".strip()
        except Exception:  # noqa: BLE001  the next look may go well, and somebody should see that this one did not
            _log.exception("the yard could not be looked at")
            problem = "The yard could not be looked at; where the dashboard was started it is said why."
        for one in found:
            known = self._history.setdefault((one.system, one.at), deque(maxlen=_REMEMBERED))
            known.append((one.waiting, one.running, one.failed))
        async with self._changed:
            self._snapshot = Snapshot(
                number=self._snapshot.number + 1 if self._snapshot else 1,
                at=to_rfc3339(self._clock.now()),
                glances=found,
                took_ms=(self._clock.monotonic() - started) * 1000,
                problem=problem,
            )
            self._changed.notify_all()
