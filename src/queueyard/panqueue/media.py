"""The way from a worker to the server: connections, notifications, and the thread that renews leases.

`Redis` is the real one. The simulation in the tests puts another in its place, and the worker cannot tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from queueyard.panqueue.blocking import Line
from queueyard.panqueue.link import Channel, Port
from queueyard.panqueue.renewal import Renewal, RenewalThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.address import Address
    from queueyard.panqueue.link import Asker


class Subscription(Protocol):
    """Notifications that arrive until the connection ends."""

    async def ended(self) -> None: ...

    def close(self) -> None: ...


class Stoppable(Protocol):
    def stop(self) -> None: ...


class Medium(Protocol):
    """What a worker needs of the world."""

    def asker(self) -> Asker:
        """A connection of its own for one call at a time."""

    async def subscribe(self, channels: Sequence[str], on_message: Callable[[bytes], None]) -> Subscription: ...

    def start_renewal(self, renewal: Renewal, *, every_s: float) -> Stoppable: ...


class Redis:
    """A Redis or Valkey server, a set of sentinels, or a cluster."""

    def __init__(self, address: Address, tag: str) -> None:
        self._address = address
        self._tag = tag

    def asker(self) -> Port:
        return Port(self._address, self._tag)

    async def subscribe(self, channels: Sequence[str], on_message: Callable[[bytes], None]) -> Channel:
        return await Channel.open(self._address, self._tag, channels, on_message)

    def start_renewal(self, renewal: Renewal, *, every_s: float) -> RenewalThread:
        thread = RenewalThread(renewal, Line(self._address, self._tag), every_s=every_s)
        thread.start()
        return thread
