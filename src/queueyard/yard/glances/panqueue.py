"""All queues of one server together; who is subscribed to a queue's notifications is one of its workers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from queueyard.kernel.events import System
from queueyard.panqueue import service
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line, lines_to_all
from queueyard.panqueue.errors import ForeignData, ServerRefused
from queueyard.panqueue.store import QueueStore
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from queueyard.panqueue.address import Address
    from queueyard.panqueue.records import Counts


def glance(at: str, _: datetime) -> Glance:
    address = parse_address(at)
    found = list(_queues(address))
    counts = [one for one, _ in found]
    workers = sum(number for _, number in found)
    waiting = sum(one.waiting + one.delayed + one.held for one in counts)
    overdue = sum(one.overdue for one in counts)
    return Glance(
        system=System.PANQUEUE,
        at=at,
        waiting=waiting,
        running=sum(one.active for one in counts),
        failed=sum(one.failed for one in counts),
        oldest_wait_s=max((one.oldest_ms / 1000 for one in counts if one.oldest_ms is not None), default=None),
        health="no workers" if not workers else "1 worker" if workers == 1 else f"{workers} workers",
        is_well=not overdue and all(number or not (one.waiting or one.active) for one, number in found),
    )


def _queues(address: Address) -> Iterator[tuple[Counts, int]]:
    """Each queue, and how many workers it has; one that holds foreign data is left out."""
    lines = lines_to_all(address)
    try:
        ids = sorted({queue for line in lines for queue in line.hold(service.queues())})
        for queue in ids:
            store = QueueStore(queue)
            line = lines[0] if len(lines) == 1 else Line(address, store.keys.tag)
            try:
                with suppress(ForeignData):
                    yield line.hold(service.counts(store)), _workers(line, store)
            finally:
                if line not in lines:
                    line.close()
    finally:
        for line in lines:
            line.close()


def _workers(line: Line, store: QueueStore) -> int:
    try:
        _, number = line.call("PUBSUB", "NUMSUB", store.keys["notify"])
    except ServerRefused:
        return 0
    return int(number)
