"""Start, drain, stop: the two-phase shutdown that every long-running command shares.

The first TERM or INT asks for a drain: take nothing new, finish what runs. A second one, or the end of the grace
that the command allows itself, means stop now. `fileno()` becomes readable at each change of phase, so an event
loop can wait for it beside its other sources; nothing here polls.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from enum import IntEnum
import os
import select
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Phase(IntEnum):
    """Only ever goes up."""

    RUNNING = 0
    DRAINING = 1
    STOPPING = 2


class Lifecycle:
    """Where a long-running command is on its way from start to end."""

    def __init__(self) -> None:
        # One entry per wish. Appending is one step for signals and threads alike; reading, adding one and writing back
        # is not: a signal in between would be forgotten, or the phase would go down again.
        self._wishes: deque[None] = deque(maxlen=Phase.STOPPING)
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)

    @property
    def phase(self) -> Phase:
        return Phase(len(self._wishes))

    @property
    def running(self) -> bool:
        return self.phase is Phase.RUNNING

    def fileno(self) -> int:
        """Readable after a change of phase, until `acknowledge` is called."""
        return self._readable

    def acknowledge(self) -> Phase:
        """Empty the pipe and tell the phase."""
        with suppress(BlockingIOError):
            while os.read(self._readable, 64):
                pass
        return self.phase

    def ask_to_stop(self) -> None:
        """One phase further. Safe in signal handlers and from any thread."""
        self._wishes.append(None)
        with suppress(BlockingIOError):
            os.write(self._writable, b"!")

    def wait(self, timeout_s: float | None = None) -> Phase:
        """Block until the next change of phase, at most `timeout_s`."""
        # Not select(): it refuses descriptors above 1023.
        poller = select.poll()
        poller.register(self._readable, select.POLLIN)
        poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)
        return self.acknowledge()

    @contextmanager
    def on_signals(self) -> Iterator[Lifecycle]:
        """TERM and INT move the phase as long as the block runs; afterwards the old handlers are back."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals arrive in the main thread only")
        old = {number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)

    def close(self) -> None:
        os.close(self._readable)
        os.close(self._writable)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.ask_to_stop()
