"""Work that need not be waited for: done while the server has its turn, in order, and none of it forgotten."""

from __future__ import annotations

from queue import SimpleQueue
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Aside(Protocol):
    """Somebody who does one thing after the other."""

    def do(self, act: Callable[[], None]) -> None:
        """Have it done, behind everything that was asked before."""

    def finish(self) -> None:
        """Wait until all of it is done. Raises what the first that failed has raised, once."""

    def close(self) -> None:
        """Do what is left, and let go."""


class InThread:
    """Has a thread for it."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._fault: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="aside")
        self._thread.start()

    def do(self, act: Callable[[], None]) -> None:
        self._asked.put(act)

    def finish(self) -> None:
        done = threading.Event()
        self._asked.put(done.set)
        done.wait()
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (act := self._asked.get()) is not None:
            try:
                act()
            except Exception as fault:  # noqa: BLE001  whoever asked for it hears of it
                self._fault = self._fault or fault


class InTurn:
    """Does it at once: one thread, always the same order."""

    def do(self, act: Callable[[], None]) -> None:
        act()

    def finish(self) -> None:
        """Nothing is ever left."""

    def close(self) -> None:
        """There is nothing to let go of."""
