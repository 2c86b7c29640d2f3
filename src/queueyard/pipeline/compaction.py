"""Fewer files and fewer rows for the same tables: what many small batches have left is put together.

Parts of one item, record or file become one row, as the views would add them up; lines and events keep their rows and
only share files. Each table changes in one commit, so a reader sees the same before and behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.pipeline import schemas
from queueyard.pipeline.gold.refresh import refresh
from queueyard.pipeline.silver import attempts, files, folding, items

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from queueyard.pipeline.tables import Table
    from queueyard.pipeline.warehouse import Warehouse

#: a table with fewer files is left alone
MOST_FILES = 16


def compact(house: Warehouse, *, most_files: int = MOST_FILES) -> dict[str, int]:
    """Compact every table that has more files than this; gives how many files each lost."""
    # Which days of gold change is told by new parts beside old ones, so gold goes first.
    refresh(house)
    gone = {table.spec.name: _add_up(table, merged, most_files) for table, merged in _parts(house)}
    for table in (house.lines, house.quarantine, house.events, house.table(schemas.VIOLATIONS)):
        gone[table.spec.name] = table.log.compact() if len(table.log.files()) > most_files else 0
    return {name: count for name, count in gone.items() if count}


def _parts(house: Warehouse) -> list[tuple[Table, Callable[[DataFrame], DataFrame]]]:
    records = (
        (house.messages, schemas.MESSAGE),
        (house.assignments, schemas.ASSIGNMENT),
        (house.reservations, schemas.RESERVATION),
    )
    return [
        (house.items, items.merged),
        (house.attempts, attempts.merged),
        (house.files, files.merged),
        (house.file_versions, files.distinct_versions),
        *((table, lambda rows, schema=schema: folding.folded(rows, schema)) for table, schema in records),
    ]


def _add_up(table: Table, merged: Callable[[DataFrame], DataFrame], most_files: int) -> int:
    before = len(table.log.files())
    if before <= most_files:
        return 0
    table.overwrite(table.write(merged(table.read())))
    return before - len(table.log.files())
