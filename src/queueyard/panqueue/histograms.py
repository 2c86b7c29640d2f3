"""How long jobs wait and run, as Prometheus histograms made from a queue's events. Pure.

An attempt waits from its `queued`, `retried`, `released` or `stalled` event to its `started` one, and runs from there
to the event that ends it. The delay of a delayed job therefore counts as waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import Event, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: upper bounds, seconds
BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0)
#: jobs whose next event is awaited; the oldest are forgotten beyond that
MOST_OPEN = 100_000
_WAITS = frozenset({Kind.QUEUED, Kind.RETRIED, Kind.RELEASED, Kind.STALLED})
_ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.RETRIED, Kind.RELEASED, Kind.STALLED, Kind.CANCELED})


class Histogram:
    """Counts per bound, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.total += seconds
        place = next((at for at, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        self.counts[place] += 1


class QueueTimes:
    """The two histograms of one queue, fed with its events in their order."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.wait = Histogram()
        self.run = Histogram()
        self._waiting: dict[str, float] = {}
        self._running: dict[str, float] = {}

    def feed(self, event: Event) -> None:
        at = from_rfc3339(event.at).timestamp()
        if event.kind is Kind.STARTED:
            since = self._waiting.pop(event.item, None)
            if since is not None:
                self.wait.add(max(0.0, at - since))
            _remember(self._running, event.item, at)
        elif event.kind in _ENDS:
            since = self._running.pop(event.item, None)
            if since is not None:
                self.run.add(max(0.0, at - since))
        if event.kind in _WAITS:
            _remember(self._waiting, event.item, at)


def _remember(times: dict[str, float], item: str, at: float) -> None:
    times[item] = at
    if len(times) > MOST_OPEN:
        del times[next(iter(times))]


def histogram_lines(queues: Iterable[QueueTimes]) -> Iterator[str]:
    """Both histograms of every queue as Prometheus text, each with its help and type."""
    told = list(queues)
    for name, about in (("wait", "From the moment a job waits to its start."), ("run", "From start to end.")):
        metric = f"panqueue_{name}_seconds"
        yield f"# HELP {metric} {about}"
        yield f"# TYPE {metric} histogram"
        for one in told:
            yield from _lines(metric, one.queue, getattr(one, name))


def _lines(metric: str, queue: str, histogram: Histogram) -> Iterator[str]:
    label = queue.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    count = 0
    for bound, more in zip([*map("{:g}".format, BOUNDS), "+Inf"], histogram.counts, strict=True):
        count += more
        yield f'{metric}_bucket{{queue="{label}",le="{bound}"}} {count}'
    yield f'{metric}_sum{{queue="{label}"}} {histogram.total:g}'
    yield f'{metric}_count{{queue="{label}"}} {count}'
