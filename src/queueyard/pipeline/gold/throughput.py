"""How many items came, started and ended per minute, hour and day. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.gold.kinds import FLOW, counts, is_kind, whole_items
from queueyard.pipeline.schemas import THROUGHPUT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_QUEUE = ("system", "source", "queue")
_GRAINS = ("minute", "hour", "day")


def throughput(*, events: DataFrame) -> DataFrame:
    """One row per grain, bucket and queue in which something happened."""
    return whole_items(events).transform(_per_minute).transform(_per_grain).select(*THROUGHPUT.schema.fieldNames())


def _per_minute(events: DataFrame) -> DataFrame:
    return (
        events.where(is_kind(*FLOW))
        .select(*_QUEUE, "kind", F.date_trunc("minute", "at").alias("minute_at"))
        .groupBy(*_QUEUE, "minute_at")
        .agg(*counts(*FLOW))
    )


def _per_grain(minutes: DataFrame) -> DataFrame:
    # Hours and days are sums of minutes: the events themselves are shuffled once.
    grains = [
        F.struct(F.lit(grain).alias("grain"), F.date_trunc(grain, "minute_at").alias("bucket_at")) for grain in _GRAINS
    ]
    return (
        minutes.select("*", F.inline(F.array(*grains)))
        .groupBy("grain", "bucket_at", *_QUEUE)
        .agg(*[F.sum(kind.value).alias(kind.value) for kind in FLOW])
    )
