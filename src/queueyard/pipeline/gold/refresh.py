"""Makes every gold table anew from the silver views, and puts it in place of the old one at once.

Gold tables are small, and replaced as a whole: whoever reads one sees the tables of one batch. A batch that is
refreshed twice commits nothing twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.pipeline.gold import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.pipeline.warehouse import Warehouse


def refresh(house: Warehouse, *, batch: int, advance: Callable[[str], None] = lambda _: None) -> list[str]:
    """Bring every gold table to the batch; gives the names of those that were not there yet."""
    stale = [metric for metric in METRICS if house.table(metric.spec).log.batch() < batch]
    needed = {name for metric in stale for name in metric.needs}
    views = {name: house.view(name).persist() for name in sorted(needed)}
    try:
        for metric in stale:
            advance(metric.name)
            table = house.table(metric.spec)
            made = metric.make(**{name: views[name] for name in metric.needs})
            table.commit(table.write(made.coalesce(1)), batch=batch, mode="overwrite")
    finally:
        for view in views.values():
            view.unpersist()
    return [metric.name for metric in stale]
