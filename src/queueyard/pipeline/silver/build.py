"""From bronze to silver: reads what is new, adds parts, commits each table under the last batch that it has.

Everything here follows from the lines of the batches and from what earlier ones left, never from the clock or from how
the batches were taken together. `events` goes first and the others follow it, so what died in between is simply gone
on with: tables that have a batch already keep it, and the others get the same rows that they would have got.
"""

from __future__ import annotations

from functools import partial
import os
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.ids import new_ulid
from queueyard.kernel.output import UNSEEN
from queueyard.pipeline import schemas
from queueyard.pipeline.schemas import EVENT, RECORD_KEY
from queueyard.pipeline.silver import attempts, events, files, folding, items, queen, snapshots
from queueyard.pipeline.tables import is_near
from queueyard.pipeline.together import together

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

    from queueyard.kernel.output import Progress
    from queueyard.pipeline.tables import Table, Written
    from queueyard.pipeline.warehouse import Warehouse

#: of a build
STEPS_TO_BUILD = 2
_CHANGES = "ops.changes"
#: in the note of a table: which making of the events it follows from
REMADE = "remade"
#: streams whose events follow from each line alone
_TELLERS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    **{stream: lambda lines, stream=stream: events.of_journal(lines, stream) for stream in events.JOURNALS},  # type: ignore[misc]
    "runforge.queue": lambda lines: snapshots.of_snapshots(lines, zone=snapshots.local_zone(os.environ)),
    "panqueue.events": events.of_entries,
    _CHANGES: events.of_changes,
    "ops.audit": events.of_refusals,
}
#: streams that are told beside what another one says
_BESIDE = {"runforge.queue": "runforge.events"}
#: streams whose lines are folded: the shape of the record, and what happened as its lines went by
_FOLDED = {
    "queen.messages": (schemas.MESSAGES, schemas.MESSAGE, queen.message_events),
    "queen.assignments": (schemas.ASSIGNMENTS, schemas.ASSIGNMENT, queen.assignment_events),
    "queen.reservations": (schemas.RESERVATIONS, schemas.RESERVATION, queen.reservation_events),
}


def build(house: Warehouse, *, bar: Progress = UNSEEN) -> None:
    """Bring every silver table to the last batch of bronze."""
    told, last = house.events.log.batch(), house.lines.log.batch()
    with bar.step("events"):
        # What is told of a record follows from what the batches before have left of it: so those are finished first.
        _follow(house, upto=told)
        if last > told:
            _add_events(house, after=told, upto=last)
    with bar.step("records, items and attempts"):
        if last > told:
            _follow(house, upto=last)


def _streams_since(house: Warehouse, batch: int, *, upto: int) -> set[str]:
    files = house.lines.log.files()
    return {file.partition["stream"] or "" for file in files if file.upto > batch and file.since <= upto}


def remake_events(house: Warehouse, *, first: str, last: str) -> list[str]:
    """Make the events of these days (YYYY-MM-DD) anew from all of bronze; the tables below follow with `build`.

    Gives the days that had or have events.
    """
    upto = house.events.log.batch()
    wanted = events.distinct(_told(house, after=-1, upto=upto), batch=upto)
    made = house.events.write(wanted.where(F.col("day").between(first, last)))
    there = {file.partition["day"] or "" for file in house.events.log.files()}
    days = sorted(day for day in there | _days(made) if first <= day <= last)
    if days:
        house.events.overwrite(made, only=[("day", "in", days)], note={REMADE: new_ulid()})
    return days


def _add_events(house: Warehouse, *, after: int, upto: int) -> None:
    written = house.events.write(events.distinct(_told(house, after=after, upto=upto), batch=upto))
    days = _days(written)
    known = house.events.read(lambda file: file.partition["day"] in days)
    told = house.events.read_written(written)
    if not events.known_ones(told, known).isEmpty():
        # Rare, since sources are read once: so only then is everything written a second time.
        written = house.events.write(events.unknown_ones(told, known))
    house.events.commit(written, batch=upto)


def _days(written: Written) -> set[str]:
    return {file.partition_values["day"] or "" for file in written.files}


def _told(house: Warehouse, *, after: int, upto: int) -> DataFrame:
    """What the lines of all batches behind `after` tell; what came before is in the tables."""
    streams = _streams_since(house, after, upto=upto)
    told = [
        tell(_lines(house, after, stream, _BESIDE.get(stream, stream), upto=upto))
        for stream, tell in _TELLERS.items()
        if stream in streams
    ]
    for stream, (spec, schema, tell_changes) in _FOLDED.items():
        if stream in streams:
            new = folding.rows_of_lines(_lines(house, after, stream, upto=upto), stream)
            told.append(tell_changes(new, folding.folded(_known(house.table(spec), new, upto=after), schema)))
    return events.union(told) if told else house.spark.createDataFrame([], EVENT)


def _known(table: Table, new: DataFrame, *, upto: int) -> DataFrame:
    """What the batches up to this one have left of the records that these rows are about."""
    known = table.read(lambda file: file.since <= upto).where(F.col("batch") <= upto)
    if upto < 0:
        return known
    ids = new.select(*RECORD_KEY)
    return known.where(is_near("id", ids)).join(ids.distinct(), on=list(RECORD_KEY), how="left_semi")


def _follow(house: Warehouse, *, upto: int) -> None:
    """Bring the other tables to where `events` is; none of them needs another one."""
    together(
        [
            partial(_follow_events, house, house.items, items.of_events, upto=upto),
            partial(_follow_events, house, house.attempts, attempts.of_events, upto=upto),
            partial(_follow_changes, house, house.file_versions, files.distinct_versions, upto=upto),
            partial(_follow_changes, house, house.files, files.of_versions, upto=upto),
            *(partial(_follow_records, house, stream, upto=upto) for stream in _FOLDED),
        ]
    )


def _follow_events(house: Warehouse, table: Table, of_events: Callable[[DataFrame], DataFrame], *, upto: int) -> None:
    version = house.events.log.note().get(REMADE)
    if table.log.exists() and table.log.note().get(REMADE) != version:
        made = table.write(of_events(house.events.read()))
        table.overwrite(made, note={REMADE: version})
    if table.log.batch() < upto:
        written = table.write(of_events(house.events.since(table.log.batch())))
        table.commit(written, batch=upto, note={REMADE: version})


def _follow_changes(
    house: Warehouse, table: Table, of_versions: Callable[[DataFrame], DataFrame], *, upto: int
) -> None:
    after = table.log.batch()
    if after < upto and _CHANGES in _streams_since(house, after, upto=upto):
        _add(table, of_versions(files.versions_of(_lines(house, after, _CHANGES, upto=upto))), upto=upto)


def _follow_records(house: Warehouse, stream: str, *, upto: int) -> None:
    spec, schema, _ = _FOLDED[stream]
    table = house.table(spec)
    after = table.log.batch()
    if after < upto and stream in _streams_since(house, after, upto=upto):
        rows = folding.rows_of_lines(_lines(house, after, stream, upto=upto), stream)
        _add(table, folding.folded(rows, schema), upto=upto)


def _lines(house: Warehouse, after: int, *streams: str, upto: int) -> DataFrame:
    # Bronze may be ahead: what a table has under a batch must not hold what comes behind it, or the events that are
    # told next would be compared with records that have seen them already.
    return house.lines.since(after, lambda file: file.partition["stream"] in streams, upto=upto)


def _add(table: Table, rows: DataFrame, *, upto: int) -> None:
    table.commit(table.write(rows), batch=upto)
