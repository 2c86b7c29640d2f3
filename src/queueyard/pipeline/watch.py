"""Goes on with what is new as it comes: bronze at once, silver and gold behind it.

Two loops share one session. One looks for new records and commits them to bronze, which is soon over; the other builds
what the tables below lack, however many batches came meanwhile. Each table knows how far it has come, so a kill between
any two steps is gone on with by the next run.
"""

from __future__ import annotations

from threading import Event, Thread
from typing import TYPE_CHECKING

from queueyard.pipeline.compaction import compact
from queueyard.pipeline.run import BATCH_BYTES, alone, freshen, take
from queueyard.pipeline.session import fit, take_turns
from queueyard.pipeline.silver.build import build
from queueyard.pipeline.size import rows_of
from queueyard.pipeline.sources.positions import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.kernel.lifecycle import Lifecycle
    from queueyard.pipeline.bronze.ingest import Ingested
    from queueyard.pipeline.warehouse import Warehouse
    from queueyard.yard.places import Place

#: between two looks that find nothing
PAUSE_S = 0.2
_COMPACT_AFTER_ROUNDS = 100


def watch(
    house: Warehouse,
    places: Sequence[Place],
    lifecycle: Lifecycle,
    *,
    told: Callable[[Ingested], None],
    built: Callable[[int], None],
) -> None:
    """Until the lifecycle is asked to stop; then what was taken is built to the end.

    `told` hears of every batch of bronze, `built` of the batch that gold has come to. LockTimeout if another run is at
    work; a fault of either loop ends both and is raised.
    """
    with alone(house):
        fit(house.spark, rows=rows_of(house.home))
        take_turns(house.spark, pool="bronze")
        builder = _Builder(house, built, on_fault=lifecycle.ask_to_stop)
        builder.start()
        try:
            while lifecycle.running:
                found = plan(places, house.lines.log.note(), most_bytes=BATCH_BYTES)
                if found.reads:
                    told(take(house, found))
                    builder.wake()
                else:
                    lifecycle.wait(PAUSE_S)
        finally:
            builder.finish()


class _Builder(Thread):
    """Builds whenever bronze is ahead."""

    def __init__(self, house: Warehouse, built: Callable[[int], None], *, on_fault: Callable[[], None]) -> None:
        super().__init__(name="builder", daemon=True)
        self._house = house
        self._built = built
        self._on_fault = on_fault
        self._fault: BaseException | None = None
        self._news = Event()
        self._is_over = False
        # What an earlier run has left is built first.
        self._news.set()

    def wake(self) -> None:
        self._news.set()

    def finish(self) -> None:
        """Build what is left; raises what went wrong on the way."""
        self._is_over = True
        self._news.set()
        self.join()
        if self._fault is not None:
            raise self._fault

    def run(self) -> None:
        try:
            self._loop()
        except BaseException as fault:  # noqa: BLE001  raised again by `finish`, in the thread that started this one
            self._fault = fault
            self._on_fault()

    def _loop(self) -> None:
        rounds = 0
        is_over = False
        while not is_over:
            self._news.wait()
            self._news.clear()
            is_over = self._is_over
            build(self._house)
            freshen(self._house)
            self._built(self._house.events.log.batch())
            rounds += 1
            if rounds % _COMPACT_AFTER_ROUNDS == 0:
                compact(self._house)
