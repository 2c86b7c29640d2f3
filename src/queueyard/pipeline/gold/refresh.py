"""Brings gold tables to their silver tables, each put in place of the old one at once.

Gold tables are small, and replaced as a whole: whoever reads one sees the tables of one batch. What is read for that
follows what came, where a table tells day by day: the other days are taken from the old table. A table is left alone if
nothing that it is made of has changed; a batch that is refreshed twice commits nothing twice.
"""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.gold.days import can_be_narrowed, changed, is_within, narrowed
from queueyard.pipeline.silver.build import REMADE
from queueyard.pipeline.together import together

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from queueyard.pipeline.gold import Metric
    from queueyard.pipeline.tables import Table
    from queueyard.pipeline.warehouse import Warehouse


def refresh(house: Warehouse, *, advance: Callable[[str], None] = lambda _: None) -> list[str]:
    """Bring every gold table to its silver tables; gives the names of those that were made."""
    # The one that takes longest goes first, and the others beside it.
    in_turn = sorted(METRICS, key=lambda metric: metric.name != "contention")
    stale = [metric for metric in in_turn if _is_stale(house, metric)]
    views = _Views(house)

    def make(metric: Metric) -> None:
        table, upto, origin = house.table(metric.spec), _upto(house, metric), _origin(house, metric)
        days = _changed_days(house, metric)
        made = metric.make(**{name: views.of(name, days) for name in metric.needs})
        rows = made if days is None or metric.day is None else _with_other_days(made, table, metric.day, days)
        # One file, written by a task of its own: `coalesce` would put the last step of the work into that one, too.
        written = table.write(rows.repartition(1))
        if table.log.batch() < upto:
            table.commit(written, batch=upto, mode="overwrite", note=origin)
        else:
            table.overwrite(written, note=origin)
        advance(metric.name)

    try:
        together(partial(make, metric) for metric in stale)
    finally:
        views.forget()
    return [metric.name for metric in stale]


class _Views:
    """What metrics read, by the days that they want of it. Views that have to be merged are merged once, and kept."""

    def __init__(self, house: Warehouse) -> None:
        self._house = house
        self._kept: dict[tuple[str, frozenset[str] | None], DataFrame] = {}
        # One per view: narrowing looks at a table, and whoever wants another one need not wait for it.
        self._locks = {name: Lock() for metric in METRICS for name in metric.needs}

    def of(self, name: str, days: set[str] | None) -> DataFrame:
        wanted = None if days is None or not can_be_narrowed(name) else frozenset(days)
        with self._locks[name]:
            if (name, wanted) not in self._kept:
                view = self._house.view(name) if wanted is None else narrowed(self._house, name, wanted)
                # Events are merged already. On disk, so that memory does not grow with the history.
                self._kept[name, wanted] = view if name == "events" else view.persist(StorageLevel.DISK_ONLY)
            return self._kept[name, wanted]

    def forget(self) -> None:
        for view in self._kept.values():
            view.unpersist()


def _with_other_days(made: DataFrame, table: Table, day: str, days: set[str]) -> DataFrame:
    is_made = is_within(day, days)
    return made.where(is_made).unionByName(table.read().where(~is_made))


def _changed_days(house: Warehouse, metric: Metric) -> set[str] | None:
    """The days to be made; None for all of them."""
    log = house.table(metric.spec).log
    if metric.day is None or log.note() != _origin(house, metric):
        return None
    return set().union(*(changed(house, name, after=log.batch()) for name in metric.needs))


def _is_stale(house: Warehouse, metric: Metric) -> bool:
    log = house.table(metric.spec).log
    return log.batch() < _upto(house, metric) or log.note() != _origin(house, metric)


def _origin(house: Warehouse, metric: Metric) -> dict[str, Any]:
    """What a table is made of and by which rule: as long as this is the same, what it says of a day can be kept."""
    return {
        "edition": metric.edition,
        "of": [house.identity_of(name) for name in metric.needs],
        REMADE: house.events.log.note().get(REMADE),
    }


def _upto(house: Warehouse, metric: Metric) -> int:
    """The last batch that changed what it is made of; a table of which there is nothing yet counts as new."""
    last = max(0, *(house.batch_of(name) for name in metric.needs))
    if not metric.streams:
        return last
    came = (file.upto for file in house.lines.log.files() if file.partition["stream"] in metric.streams)
    # Bronze may be ahead of silver.
    return min(last, max(came, default=0))
