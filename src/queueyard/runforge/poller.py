"""Waiting for many things at once: descriptors that become readable, each with what is to be done then.

The standard selectors do the same for any platform and any kind of readiness; here that would be a tenth of what a run
that does nothing costs.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Poller:
    """`wait` blocks until something is readable, and calls what belongs to it."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._acts: dict[int, Callable[[], None]] = {}

    def register(self, descriptor: int, act: Callable[[], None]) -> None:
        self._acts[descriptor] = act
        self._epoll.register(descriptor, select.EPOLLIN)

    def unregister(self, descriptor: int) -> None:
        del self._acts[descriptor]
        self._epoll.unregister(descriptor)

    def wait(self, timeout_s: float | None) -> None:
        """Wait at most `timeout_s`; None for ever."""
        for descriptor, _ in self._epoll.poll(timeout_s):
            # What was done for one may have made another one needless.
            act = self._acts.get(descriptor)
            if act is not None:
                act()

    def close(self) -> None:
        self._epoll.close()
