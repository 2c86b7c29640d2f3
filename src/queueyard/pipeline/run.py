"""One run: what is new since the last one, batch after batch, until nothing is.

The order of commits is bronze, silver, gold. Whatever died is gone on with by the next run: first the batch that bronze
has and silver has not, then gold, then what is new. One run at a time per home.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.locks import FileLock
from queueyard.pipeline.bronze.ingest import Ingested, ingest
from queueyard.pipeline.gold.refresh import refresh
from queueyard.pipeline.silver.build import build, is_built
from queueyard.pipeline.sources.looking import look
from queueyard.pipeline.sources.places import origins_of
from queueyard.pipeline.sources.spans import Mark, Marks, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame

    from queueyard.pipeline.sources.spans import Span
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
        while True:
            advance("looking")
            step = _ingest_what_is_new(house, places, batch_bytes, advance)
            if step is None:
                break
            done.append(step)
            build(house, step.batch, advance=advance)
        refresh(house, batch=house.lines.log.batch(), advance=advance)
    return Done(batches=done)


def _finish(house: Warehouse, advance: Callable[[str], None]) -> None:
    """Build what an earlier run ingested and did not come to build."""
    last = house.lines.log.batch()
    if last >= 0 and not is_built(house, last):
        build(house, last, advance=advance)


def _ingest_what_is_new(
    house: Warehouse, places: Sequence[Place], batch_bytes: int, advance: Callable[[str], None]
) -> Ingested | None:
    positions = house.lines.log.note()
    spans, marks = plan(_marks(positions), look(origins_of(places)), most_bytes=batch_bytes)
    if not spans:
        return None
    advance("reading")
    records = _records(house, spans)
    after: dict[str, Any] = {**positions, "lines": msgspec.to_builtins(marks)}
    return ingest(records, house.lines, house.quarantine, batch=house.lines.log.batch() + 1, positions=after)


def _records(house: Warehouse, spans: Sequence[Span]) -> DataFrame:
    return house.spark.read.format("queueyard_lines").option("spans", msgspec.json.encode(spans).decode()).load()


def _marks(positions: dict[str, Any]) -> Marks:
    return msgspec.convert(positions.get("lines", {}), dict[str, Mark])


def _lock(home: str) -> FileLock:
    folder = Path(home)
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / "lock", timeout_s=0)
