"""Warm children of one kind: taken for a job, given back, renewed before they grow old, sent home when idle.

A child is never used again after a fault. After a crash or a failed start the next start waits, longer each time, and
starts go one by one until a job has succeeded again.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.backoff import Backoff
from queueyard.kernel.errors import BadSettings
from queueyard.panqueue.errors import Closed
from queueyard.panqueue.executors.children import Child
from queueyard.panqueue.executors.errors import StartFailed

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from queueyard.panqueue.executors.children import Launch

_LOOK_AT_MEMORY_EVERY_S = 0.05


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long children live, and how they are ended."""

    #: a child is replaced after so many jobs
    max_jobs: int = 1_000
    #: a child that holds more than this after a job is replaced, MiB; None: never for that
    max_memory_mb: int | None = 512
    #: a child without work goes home after so long, seconds
    idle_s: float = 60.0
    #: so many children are kept ready while nobody needs them
    warm: int = 0
    #: a child that is not ready by then is given up, seconds
    start_timeout_s: float = 30.0
    #: a cancelled handler has so long to end, seconds; then its child is ended
    cancel_grace_s: float = 1.0
    #: a child that is asked to go has so long, seconds; then it gets TERM
    stop_grace_s: float = 2.0
    #: and so long after TERM, seconds; then KILL
    term_grace_s: float = 0.5
    #: the longest answer of a child, bytes
    max_reply_bytes: int = 16_000_000
    #: pauses between starts after crashes
    backoff: Backoff = Backoff(base_ms=100, cap_ms=5_000, jitter=0.5)

    def __post_init__(self) -> None:
        least = {"max_jobs": 1, "idle_s": 0, "warm": 0, "cancel_grace_s": 0, "stop_grace_s": 0, "term_grace_s": 0}
        faults = [f"{name} must be {value} or more" for name, value in least.items() if getattr(self, name) < value]
        if faults:
            raise BadSettings("these settings are wrong:\n" + "\n".join(f"  - {one}" for one in faults))


class Pool:
    """As many children as jobs run at once; never more than are asked for, and `warm`."""

    def __init__(self, launch: Launch, settings: PoolSettings) -> None:
        self._launch = launch
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._chores: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._crashes = 0
        self._not_before = 0.0
        self._starting = 0
        self._reaper: asyncio.TimerHandle | None = None
        self._looked_at_memory = 0.0
        self._is_closed = False
        #: how many were ever started
        self.started = 0
        self._keep_warm()

    @property
    def pids(self) -> list[int]:
        """The children that are there now."""
        return [child.pid for child in (*self._idle, *self._busy)]

    async def take(self) -> Child:
        """A child that is ready. StartFailed if none came up; Closed."""
        child = self._taken_from_idle() or await self._start()
        if self._is_closed:
            await child.end()
            raise Closed("the executor was closed")
        self._busy.add(child)
        return child

    def give_back(self, child: Child, *, crashed: bool = False) -> None:
        """The child has no job any more."""
        self._busy.discard(child)
        if crashed:
            self._note_crash()
        elif child.is_usable:
            self._crashes = 0
        if not child.is_usable:
            self._end(child)
        elif self._is_closed or child.jobs >= self._settings.max_jobs or self._is_too_large(child):
            self._do(child.stop())
        else:
            child.idle_since = self._loop.time()
            self._idle.append(child)
            self._reap_in(self._settings.idle_s)
        self._keep_warm()

    async def close(self) -> None:
        """Ask idle children to go, then make them; one that is still busy is ended, and its job fails."""
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        for child in self._idle:
            self._do(child.stop())
        self._idle.clear()
        for child in self._busy:
            self._end(child)
        while self._chores:
            await asyncio.wait(self._chores)

    def _taken_from_idle(self) -> Child | None:
        """The one that was used last: its memory is warm, and the others may go home."""
        while self._idle:
            child = self._idle.pop()
            if child.is_usable:
                return child
            self._end(child)
        return None

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _start(self) -> Child:
        if not self._crashes:
            return await self._start_now()
        async with self._one_at_a_time:
            await asyncio.sleep(max(0.0, self._not_before - self._loop.time()))
            return await self._start_now()

    async def _start_now(self) -> Child:
        self._starting += 1
        try:
            child = await Child.start(self._launch, self._settings)
        except StartFailed:
            self._note_crash()
            raise
        finally:
            self._starting -= 1
        self.started += 1
        return child

    def _note_crash(self) -> None:
        self._crashes += 1
        pause_ms = self._settings.backoff.delay_ms(self._crashes, random.random)
        self._not_before = self._loop.time() + pause_ms / 1_000

    def _keep_warm(self) -> None:
        # Not after a crash: the next job will show whether the trouble is over.
        if not self._is_closed and not self._crashes and len(self._idle) + self._starting < self._settings.warm:
            self._do(self._start_spare())

    async def _start_spare(self) -> None:
        try:
            child = await self._start_now()
        except StartFailed:
            return
        self.give_back(child)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _is_too_large(self, child: Child) -> bool:
        most, now = self._settings.max_memory_mb, self._loop.time()
        if most is None or now - self._looked_at_memory < _LOOK_AT_MEMORY_EVERY_S:
            return False
        self._looked_at_memory = now
        return child.memory_mb() > most

    def _reap_in(self, seconds: float) -> None:
        if self._reaper is None:
            self._reaper = self._loop.call_later(seconds, self._reap)

    def _reap(self) -> None:
        """Send home who was idle for long enough, the longest first; a few stay warm."""
        self._reaper = None
        latest = self._loop.time() - self._settings.idle_s
        spare = max(0, len(self._idle) - self._settings.warm)
        for child in [child for child in self._idle if child.idle_since <= latest][:spare]:
            self._idle.remove(child)
            self._do(child.stop())
        if len(self._idle) > self._settings.warm:
            self._reap_in(max(0.01, self._idle[0].idle_since - latest))

    def _end(self, child: Child) -> None:
        async def ended() -> None:
            await child.end()

        self._do(ended())

    def _do(self, work: Coroutine[None, None, None]) -> None:
        """Something that nobody waits for, but `close` does."""
        chore = self._loop.create_task(work)
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)
