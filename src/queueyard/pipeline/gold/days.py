"""Which days of gold change with what came to silver, and the rows that those days are made of.

A table that tells day by day is made for such days alone, and keeps the others. One day too many costs time, and one
too few would leave an old number behind: so every look here names all days that a row may have counted for before or
may count for now. Days are texts, YYYY-MM-DD; no day at all is an empty one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.gold.contention import LONGEST_HOLD_DAYS
from queueyard.pipeline.gold.spans import may_reach
from queueyard.pipeline.moments import LAST
from queueyard.pipeline.schemas import ATTEMPT_KEY, RECORD_KEY, RESERVATION
from queueyard.pipeline.silver import folding
from queueyard.pipeline.streams import moment
from queueyard.pipeline.tables import is_near

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyspark.sql import Column, DataFrame

    from queueyard.pipeline.warehouse import Warehouse


def changed(house: Warehouse, view: str, *, after: int) -> set[str]:
    """The days for which the batches behind `after` brought or changed something."""
    return _CHANGED[view](house, after)


def can_be_narrowed(view: str) -> bool:
    """Attempts cannot: they are merged as a whole, for all tables that need them at once."""
    return view in _NARROWED


def narrowed(house: Warehouse, view: str, days: Collection[str]) -> DataFrame:
    """A view with at least all rows that these days are made of."""
    return _NARROWED[view](house, days)


def is_within(day: str, days: Collection[str]) -> Column:
    """Whether the day of a row, an expression in SQL, is one of these."""
    return F.coalesce(F.expr(day).cast("string"), F.lit("")).isin(*days)


def _of_events(house: Warehouse, after: int) -> set[str]:
    return {file.partition["day"] or "" for file in house.events.log.files() if file.upto > after}


def _of_attempts(house: Warehouse, after: int) -> set[str]:
    # What an attempt began or ended with before it changed stands in its older parts.
    ends = F.array(*[F.to_date(name) for name in ("started_at", "finished_at", "superseded_at")])
    return _distinct(house.attempts.touched(ATTEMPT_KEY, after).select(F.explode(F.array_compact(ends)).alias("day")))


def _of_reservations(house: Warehouse, after: int) -> set[str]:
    """The days on which a changed reservation may have been waited for, or may have waited."""
    parts = house.reservations.touched(RECORD_KEY, after)
    latest = F.least(
        F.max(moment("created_at")) + F.make_dt_interval(F.lit(LONGEST_HOLD_DAYS)), F.lit(LAST).cast("timestamp")
    )
    held = parts.groupBy(*RECORD_KEY).agg(
        F.to_date(F.min(moment("created_at"))).alias("first"),
        F.to_date(F.least(F.max(F.greatest(moment("expires_at"), moment("released_at"))), latest)).alias("last"),
    )
    return _distinct(held.where("first <= last").select(F.explode(F.sequence("first", "last")).alias("day")))


def _distinct(days: DataFrame) -> set[str]:
    return {str(row["day"]) for row in days.distinct().collect()}


def _events(house: Warehouse, days: Collection[str]) -> DataFrame:
    return house.view_of_events(lambda file: (file.partition["day"] or "") in days)


def _reservations(house: Warehouse, days: Collection[str]) -> DataFrame:
    """Those that were made or in force on the first of the days or behind it."""
    parts = house.reservations.read()
    first = F.lit(min(days, default=None)).cast("date")
    last = F.greatest(moment("created_at"), moment("expires_at"), moment("released_at"))
    keys = parts.where(may_reach(first, "created_at", "expires_at", "released_at")).where(last >= first)
    near = is_near("id", keys)
    rows = parts.where(near).join(keys.where(near).select(*RECORD_KEY).distinct(), on=list(RECORD_KEY), how="left_semi")
    return folding.view(rows, RESERVATION)


_CHANGED: Mapping[str, Callable[[Warehouse, int], set[str]]] = {
    "events": _of_events,
    "attempts": _of_attempts,
    "reservations": _of_reservations,
}
_NARROWED: Mapping[str, Callable[[Warehouse, Collection[str]], DataFrame]] = {
    "events": _events,
    "reservations": _reservations,
}
