"""Lengths of time and their percentiles: the one rule that all gold tables follow. Pure.

Lengths stay whole microseconds until the last step, so that sums do not depend on the order in which rows are met. A
percentile is the smallest value that at least this share of the values does not exceed. It is exact for fewer than
`EXACT_BELOW` values. From there on its rank is off by at most one in `ACCURACY` of the number of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.silver.sums import exact_sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

ACCURACY = 20_000
#: Spark's summary forgets a value only when 2 * n / ACCURACY reaches 1; until then it holds every one of them
EXACT_BELOW = ACCURACY // 2
_US_PER_S = 1_000_000


def may_reach(day: Column, *times: str) -> Column:
    """Whether one of these texts may mean a time on the day or behind it; false of most others, and read fast."""
    # A text begins with its date, which is that of UTC or the one beside it, unless the year has other than four digits
    # or something stands before it. So most texts can be compared as they are.
    earliest = F.date_sub(day, 1).cast("string")
    reach = [(F.col(name) >= earliest) | (F.substring(name, 5, 1) != "-") for name in times]
    return F.coalesce(*[F.when(one, F.lit(True)) for one in reach], F.lit(False))


def span_us(start: Column, end: Column) -> Column:
    """From start to end; null if one of them is not known, or if the end comes first (clocks that disagree)."""
    length = F.unix_micros(end) - F.unix_micros(start)
    return F.when(length >= 0, length)


def seconds(span: Column) -> Column:
    return span.cast("double") / F.lit(float(_US_PER_S))


def mean_s(span: str) -> Column:
    return exact_sum(span).cast("double") / F.count(span) / F.lit(float(_US_PER_S))


def max_s(span: str) -> Column:
    return seconds(F.max(span))


def percentiles_us(span: str, shares: Sequence[float]) -> Column:
    """All percentiles of one column out of one summary, as an array in the order of `shares`."""
    return F.percentile_approx(span, list(shares), ACCURACY)


def pick_s(sketch: str, place: int) -> Column:
    """One percentile of that array, in seconds; null if there were no values."""
    return seconds(F.get(F.col(sketch), F.lit(place)))


def is_exact(*spans: str) -> Column:
    """Whether there were few enough values in each of these columns."""
    few = [F.count(span) < EXACT_BELOW for span in spans]
    told = few[0]
    for one in few[1:]:
        told = told & one
    return told
