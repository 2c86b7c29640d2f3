"""The event streams of every queue of a server. Only queues whose events are switched on have one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.panqueue import service
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line, lines_to_all
from queueyard.panqueue.errors import ForeignData
from queueyard.panqueue.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.kernel.events import Event

#: finding queues looks at every key of the server
_FIND_QUEUES_EVERY_S = 5.0
_START = "-"


class PanqueueTail:
    def __init__(self, url: str, source: str, note: Callable[[str], None]) -> None:
        self._address = parse_address(url)
        self._source = source
        self._note = note
        self._found_at = float("-inf")
        self._queues: dict[str, tuple[QueueStore, Line]] = {}
        #: queue -> the entry that was read last
        self._read_to: dict[str, str] = {}
        self._told_silent: set[str] = set()

    def read(self) -> Iterator[Event]:
        """After ServerUnreachable the next call goes on where this one was."""
        if SYSTEM_CLOCK.monotonic() >= self._found_at + _FIND_QUEUES_EVERY_S:
            self._find_queues()
        for queue in self._queues:
            with suppress(ForeignData):
                yield from self._read_stream(queue)

    def _find_queues(self) -> None:
        lines = lines_to_all(self._address)
        try:
            found = {queue for line in lines for queue in line.hold(service.queues())}
        finally:
            for line in lines:
                line.close()
        for queue in sorted(found - self._queues.keys()):
            store = QueueStore(queue)
            self._queues[queue] = store, Line(self._address, store.keys.tag)
            self._tell_if_silent(queue)
        self._found_at = SYSTEM_CLOCK.monotonic()

    def _tell_if_silent(self, queue: str) -> None:
        store, line = self._queues[queue]
        with suppress(ForeignData):
            if line.hold(service.counts(store)).events_kept is None and queue not in self._told_silent:
                self._told_silent.add(queue)
                self._note(f"queue {queue} records no events; switch them on: panqueue events {queue} --on")

    def _read_stream(self, queue: str) -> Iterator[Event]:
        store, line = self._queues[queue]
        while True:
            after = self._read_to.get(queue, _START)
            page = line.hold(service.read_events(store, source=self._source, after=after))
            if not page:
                return
            yield from (event for _, event in page)
            self._read_to[queue] = page[-1][0]
