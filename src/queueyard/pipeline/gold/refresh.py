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

from queueyard.kernel.output import UNSEEN
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.gold.days import can_be_narrowed, changed, is_within, narrowed
from queueyard.pipeline.silver.build import REMADE
from queueyard.pipeline.together import together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from queueyard.kernel.output import Progress
    from queueyard.pipeline.delta import Seen
    from queueyard.pipeline.gold import Metric
    from queueyard.pipeline.tables import Table
    from queueyard.pipeline.warehouse import Warehouse


_NEEDED = frozenset(name for metric in METRICS for name in metric.needs)
#: of a refresh
STEPS_TO_REFRESH = len(METRICS)


def refresh(house: Warehouse, *, bar: Progress = UNSEEN) -> list[str]:
    """Bring every gold table to its silver tables; gives the names of those that were made."""
    # The one that takes longest goes first, and the others beside it.
    in_turn = sorted(METRICS, key=lambda metric: metric.name != "contention")
    silver, views = _Silver(house), _Views(house)
    had = {metric.name: house.table(metric.spec).log.seen() for metric in METRICS}
    stale = [metric for metric in in_turn if silver.is_ahead(metric, had[metric.name])]
    bar.advance(STEPS_TO_REFRESH - len(stale), "gold")

    def make(metric: Metric) -> None:
        table, upto, origin = house.table(metric.spec), silver.upto(metric), silver.origin(metric)
        days = silver.days_for(metric, had[metric.name])
        made = metric.make(**{name: views.of(name, days) for name in metric.needs})
        rows = made if days is None or metric.day is None else _with_other_days(made, table, metric.day, days)
        # One file, written by a task of its own: `coalesce` would put the last step of the work into that one, too.
        written = table.write(rows.repartition(1))
        if had[metric.name].batch < upto:
            table.commit(written, batch=upto, mode="overwrite", note=origin)
        else:
            table.overwrite(written, note=origin)

    def make_and_tell(metric: Metric) -> None:
        with bar.step(metric.name):
            make(metric)

    try:
        together(partial(make_and_tell, metric) for metric in stale)
    finally:
        views.forget()
    return [metric.name for metric in stale]


class _Silver:
    """What silver had when gold was begun; what comes in the meantime is for the next time."""

    def __init__(self, house: Warehouse) -> None:
        self._house = house
        self._seen = {name: house.log_of(name).seen() for name in _NEEDED}
        # Behind the others, since bronze may be ahead of them.
        self._lines = house.lines.log.seen()

    def is_ahead(self, metric: Metric, had: Seen) -> bool:
        return had.batch < self.upto(metric) or had.note != self.origin(metric)

    def upto(self, metric: Metric) -> int:
        """The last batch that changed what it is made of; a table of which there is nothing yet counts as new."""
        last = max(0, *(self._seen[name].batch for name in metric.needs))
        if not metric.streams:
            return last
        came = (file.upto for file in self._lines.files if file.partition["stream"] in metric.streams)
        return min(last, max(came, default=0))

    def origin(self, metric: Metric) -> dict[str, Any]:
        """What it is made of and by which rule: as long as this is the same, what it says of a day can be kept."""
        return {
            "edition": metric.edition,
            "of": [self._seen[name].identity for name in metric.needs],
            REMADE: self._seen["events"].note.get(REMADE),
        }

    def days_for(self, metric: Metric, had: Seen) -> set[str] | None:
        """The days to be made; None for all of them."""
        if metric.day is None or had.note != self.origin(metric):
            return None
        return set().union(*(changed(self._house, name, after=had.batch) for name in metric.needs))


class _Views:
    """What metrics read, by the days that they want of it. Views that have to be merged are merged once, and kept."""

    def __init__(self, house: Warehouse) -> None:
        self._house = house
        self._kept: dict[tuple[str, frozenset[str] | None], DataFrame] = {}
        # One per view: narrowing looks at a table, and whoever wants another one need not wait for it.
        self._locks = {name: Lock() for name in _NEEDED}

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
