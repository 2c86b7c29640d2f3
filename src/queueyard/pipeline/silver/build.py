"""From one batch of bronze to silver: reads what is new, adds parts, commits each table under the batch's number.

Everything here follows from the lines of the batch and from what earlier batches left, never from the clock or from
how far another table has come. So a batch that died in the middle is simply built again: tables that have it already
keep it, and the others get the same rows that they would have got.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline import schemas
from queueyard.pipeline.silver import attempts, events, files, folding, items, queen, snapshots
from queueyard.pipeline.tables import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from queueyard.pipeline.tables import Table
    from queueyard.pipeline.warehouse import Warehouse

#: streams whose events follow from each line alone
_TELLERS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    **{stream: lambda lines, stream=stream: events.of_journal(lines, stream) for stream in events.JOURNALS},  # type: ignore[misc]
    "runforge.queue": lambda lines: snapshots.of_snapshots(lines, zone=snapshots.local_zone(os.environ)),
    "panqueue.events": events.of_entries,
    "ops.changes": events.of_changes,
    "ops.audit": events.of_refusals,
}
#: streams whose lines are folded: the shape of the record, and what happened as its lines went by
_FOLDED = {
    "queen.messages": (schemas.MESSAGES, schemas.MESSAGE, queen.message_events),
    "queen.assignments": (schemas.ASSIGNMENTS, schemas.ASSIGNMENT, queen.assignment_events),
    "queen.reservations": (schemas.RESERVATIONS, schemas.RESERVATION, queen.reservation_events),
}


def build(house: Warehouse, batch: int, *, advance: Callable[[str], None] = lambda _: None) -> None:
    """Bring every silver table to this batch."""
    streams = {
        values["stream"]
        for values in (values for _, values in house.lines.log.files())
        if values["batch"] == str(batch) and values["stream"]
    }
    lines = house.lines.read(lambda values: values["batch"] == str(batch)).persist()
    try:
        advance("events")
        _add_events(house, lines, streams, batch=batch)
        advance("records")
        _add_records(house, lines, streams, batch=batch)
    finally:
        lines.unpersist()
    advance("items and attempts")
    days = house.events.log.note().get("days", [])
    new = house.events.read(lambda values: values["day"] in days).where(F.col("batch") == batch).persist()
    try:
        _add(house.items, items.of_events(new), batch=batch)
        _add(house.attempts, attempts.of_events(new), batch=batch)
    finally:
        new.unpersist()


def is_built(house: Warehouse, batch: int) -> bool:
    """Whether every silver table has what the batch brought."""
    return min(house.events.log.batch(), house.items.log.batch(), house.attempts.log.batch()) >= batch


def _add_events(house: Warehouse, lines: DataFrame, streams: set[str], *, batch: int) -> None:
    if house.events.log.batch() >= batch:
        return
    told = [tell(lines) for stream, tell in _TELLERS.items() if stream in streams]
    for stream, (spec, schema, tell_changes) in _FOLDED.items():
        if stream in streams:
            before = folding.folded(house.table(spec).read().where(F.col("batch") < batch), schema)
            told.append(tell_changes(folding.rows_of_lines(lines, stream), before))
    if not told:
        house.events.commit(NOTHING, batch=batch, note={"days": []})
        return
    all_told = events.union(told).persist()
    try:
        days = {str(row["day"]) for row in all_told.select(F.to_date("at").alias("day")).distinct().collect()}
        known = house.events.read(lambda values: values["day"] in days).where(F.col("batch") < batch)
        written = house.events.write(events.distinct(all_told, known, batch=batch))
        house.events.commit(written, batch=batch, note={"days": sorted(days)})
    finally:
        all_told.unpersist()


def _add_records(house: Warehouse, lines: DataFrame, streams: set[str], *, batch: int) -> None:
    for stream, (spec, schema, _) in _FOLDED.items():
        if stream in streams:
            _add(house.table(spec), folding.folded(folding.rows_of_lines(lines, stream), schema), batch=batch)
    if "ops.changes" in streams:
        versions = files.distinct_versions(files.versions_of(lines))
        _add(house.file_versions, versions, batch=batch)
        _add(house.files, files.of_versions(versions), batch=batch)


def _add(table: Table, rows: DataFrame, *, batch: int) -> None:
    if table.log.batch() < batch:
        table.commit(table.write(rows), batch=batch)
