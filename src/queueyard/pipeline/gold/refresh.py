"""Makes gold tables anew from the silver views, each put in place of the old one at once.

Gold tables are small, and replaced as a whole: whoever reads one sees the tables of one batch. A table is made only if
something that it is made of has changed or was made anew; a batch that is refreshed twice commits nothing twice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.silver.build import REMADE

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from queueyard.pipeline.gold import Metric
    from queueyard.pipeline.warehouse import Warehouse

#: metrics that are planned and run at once: small tables are mostly planning, which is the driver's work
_AT_ONCE = 3


def refresh(house: Warehouse, *, advance: Callable[[str], None] = lambda _: None) -> list[str]:
    """Bring every gold table to its silver tables; gives the names of those that were made."""
    version = house.events.log.note().get(REMADE)
    stale = [metric for metric in METRICS if _is_stale(house, metric, version)]
    views = {name: _kept(house, name) for name in sorted({name for metric in stale for name in metric.needs})}

    def make(metric: Metric) -> None:
        table = house.table(metric.spec)
        upto = _upto(house, metric)
        made = metric.make(**{name: views[name] for name in metric.needs})
        written, note = table.write(made.coalesce(1), upto=upto), {REMADE: version}
        if table.log.batch() < upto:
            table.commit(written, batch=upto, mode="overwrite", note=note)
        else:
            table.overwrite(written, note=note)
        advance(metric.name)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(make, stale))
    finally:
        for view in views.values():
            view.unpersist()
    return [metric.name for metric in stale]


def _kept(house: Warehouse, name: str) -> DataFrame:
    """A view that is read several times, and merged once; events are merged already, so they are read from files."""
    view = house.view(name)
    return view if name == "events" else view.persist()


def _is_stale(house: Warehouse, metric: Metric, version: str | None) -> bool:
    log = house.table(metric.spec).log
    return log.batch() < _upto(house, metric) or log.note().get(REMADE) != version


def _upto(house: Warehouse, metric: Metric) -> int:
    """The last batch that changed what it is made of; a table of which there is nothing yet counts as new."""
    last = max(0, *(house.batch_of(name) for name in metric.needs))
    if not metric.streams:
        return last
    came = (file.upto for file in house.lines.log.files() if file.partition["stream"] in metric.streams)
    # Bronze may be ahead of silver.
    return min(last, max(came, default=0))
