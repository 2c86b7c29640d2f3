"""Work that had to be done again, and workers that vanished. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind
from queueyard.pipeline.gold.kinds import counts, is_kind, share, whole_items
from queueyard.pipeline.schemas import RETRIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEYS = ("system", "source", "queue", "day")
_COUNTED = (Kind.STARTED, Kind.RETRIED, Kind.STALLED, Kind.RELEASED)


def retries(*, events: DataFrame) -> DataFrame:
    """One row per queue and day on which something started, was retried, stalled or was handed back."""
    return (
        whole_items(events)
        .where(is_kind(*_COUNTED))
        .select("system", "source", "queue", F.to_date("at").alias("day"), "item", "kind", "attempt")
        .groupBy(*_KEYS)
        .agg(
            *counts(*_COUNTED),
            F.count_distinct(F.when(is_kind(Kind.RETRIED), F.col("item"))).alias("retried_items"),
            F.max("attempt").cast("long").alias("highest_attempt"),
        )
        .withColumns(
            {
                "retry_rate": share(F.col("retried"), F.col("started")),
                "stall_rate": share(F.col("stalled"), F.col("started")),
            }
        )
        .select(*RETRIES.schema.fieldNames())
    )
