"""One run: what is new since the last one, batch after batch, until all of it is taken.

The order of commits is bronze, silver, gold. Whatever died is gone on with by the next run: first the batch that bronze
has and silver has not, then gold, then what is new. One run at a time per home.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.locks import FileLock
from queueyard.pipeline.bronze.ingest import Ingested, ingest
from queueyard.pipeline.gold.refresh import refresh
from queueyard.pipeline.silver.build import build, is_built
from queueyard.pipeline.silver.events import union
from queueyard.pipeline.sources.positions import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from queueyard.pipeline.sources.positions import Plan, Read
    from queueyard.pipeline.warehouse import Warehouse
    from queueyard.yard.places import Place

#: how much one batch takes from growing files
BATCH_BYTES = 1 << 30


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did."""

    batches: list[Ingested]

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    @property
    def quarantined(self) -> int:
        return sum(batch.quarantined for batch in self.batches)


def run(
    house: Warehouse,
    places: Sequence[Place],
    *,
    batch_bytes: int = BATCH_BYTES,
    advance: Callable[[str], None] = lambda _: None,
) -> Done:
    """Bring all tables up to date. LockTimeout, naming the holder, if another run is at work."""
    done: list[Ingested] = []
    with _lock(house.home):
        _finish(house, advance)
        is_all = False
        # Places go on while they are read: what comes after the last look is for the next run.
        while not is_all:
            advance("looking")
            found = plan(places, house.lines.log.note(), most_bytes=batch_bytes)
            is_all = found.is_all
            if found.reads:
                done.append(_ingest(house, found, advance))
                build(house, done[-1].batch, advance=advance)
        refresh(house, batch=house.lines.log.batch(), advance=advance)
    return Done(batches=done)


def _finish(house: Warehouse, advance: Callable[[str], None]) -> None:
    """Build what an earlier run ingested and did not come to build."""
    last = house.lines.log.batch()
    if last >= 0 and not is_built(house, last):
        build(house, last, advance=advance)


def _ingest(house: Warehouse, found: Plan, advance: Callable[[str], None]) -> Ingested:
    advance("reading")
    records = union([_frame(house, read) for read in found.reads])
    return ingest(records, house.lines, house.quarantine, batch=house.lines.log.batch() + 1, positions=found.note)


def _frame(house: Warehouse, read: Read) -> DataFrame:
    return house.spark.read.format(read.format).options(**read.options).load()


def _lock(home: str) -> FileLock:
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "lock", timeout_s=0)
