"""One run: what is new since the last one, batch after batch, until all of it is taken.

The order of commits is bronze, silver, gold, quality. Whatever died is gone on with by the next run, because each table
knows how far it has come. One run at a time per home.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.output import UNSEEN
from queueyard.pipeline.bronze.ingest import Ingested, ingest
from queueyard.pipeline.bronze.records import records_of
from queueyard.pipeline.errors import TablesDisagree
from queueyard.pipeline.gold.refresh import STEPS_TO_REFRESH, refresh
from queueyard.pipeline.lock import holding
from queueyard.pipeline.quality import check
from queueyard.pipeline.session import fit
from queueyard.pipeline.silver.build import STEPS_TO_BUILD, build, remake_events
from queueyard.pipeline.size import rows_of
from queueyard.pipeline.sources.positions import plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from queueyard.kernel.output import Progress
    from queueyard.pipeline.sources.positions import Plan
    from queueyard.pipeline.warehouse import Warehouse
    from queueyard.yard.places import Place

#: how much one batch takes from growing files
BATCH_BYTES = 1 << 30
_STEPS_TO_FRESHEN = STEPS_TO_REFRESH + 1


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
    bar: Progress = UNSEEN,
) -> Done:
    """Bring all tables up to date. LockTimeout, naming the holder, if another run is at work."""
    done: list[Ingested] = []
    bar.expect(_STEPS_TO_FRESHEN)
    with alone(house):
        is_all = False
        # Places go on while they are read: what comes after the last look is for the next run.
        while not is_all:
            bar.expect(1 + STEPS_TO_BUILD)
            with bar.step("reading"):
                found = plan(places, house.lines.log.note(), most_bytes=batch_bytes)
                is_all = found.is_all
                fit(house.spark, rows=rows_of(house.home, found))
                if found.reads:
                    done.append(take(house, found))
            build(house, bar=bar)
        freshen(house, bar=bar)
    return Done(batches=done)


def backfill(house: Warehouse, *, first: str, last: str, bar: Progress = UNSEEN) -> list[str]:
    """Make the events of these days (YYYY-MM-DD) anew, and what follows from them; gives the days that there are."""
    bar.expect(2 * STEPS_TO_BUILD + 1 + _STEPS_TO_FRESHEN)
    with alone(house):
        build(house, bar=bar)
        with bar.step("days"):
            remade = remake_events(house, first=first, last=last)
        build(house, bar=bar)
        freshen(house, bar=bar)
    return remade


@contextmanager
def alone(house: Warehouse) -> Iterator[None]:
    """Hold the home while the block runs. LockTimeout if somebody else does, TablesDisagree if a log was lost."""
    with holding(house.lock):
        last = house.lines.log.batch()
        if last >= 0 and not house.lines.log.note():
            raise TablesDisagree(
                f"bronze has batch {last}, and its log no longer says how far the sources were read",
                hint=f"Put back what is missing, or read everything anew: rm -r {house.home}",
            )
        for table in (house.events, house.items, house.attempts):
            # What silver lacks is built from bronze, so only bronze cannot be missing.
            if (has := table.log.batch()) > last:
                raise TablesDisagree(
                    f"{table.spec.name} has batch {has}, and bronze has only {last}: its log was deleted or put back",
                    hint=f"Put back what is missing, or read everything anew: rm -r {house.home}",
                )
        yield


def take(house: Warehouse, found: Plan) -> Ingested:
    """Commit what a plan names as the next batch of bronze."""
    records = records_of(house.spark, found)
    return ingest(
        records,
        house.lines,
        house.quarantine,
        batch=house.lines.log.batch() + 1,
        positions=found.note,
        streams=found.streams,
    )


def freshen(house: Warehouse, *, bar: Progress = UNSEEN) -> None:
    """Gold and quality, up to where silver is."""
    refresh(house, bar=bar)
    with bar.step("quality"):
        check(house, house.events.log.batch())
