"""Sums of numbers that others wrote: whatever those are, a sum never stops a table. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def exact_sum(name: str) -> Column:
    """The sum of a column of whole numbers as a decimal, which holds more of them than there are rows."""
    return F.sum(F.col(name).cast("decimal(38,0)"))


def long_sum(name: str) -> Column:
    """The same as a long. What a long does not hold is the nearest that it does, so that parts still add up."""
    total = exact_sum(name)
    within = F.when(total > _HIGHEST, F.lit(_HIGHEST)).when(total < F.lit(_LOWEST), F.lit(_LOWEST)).otherwise(total)
    return within.cast("long")
