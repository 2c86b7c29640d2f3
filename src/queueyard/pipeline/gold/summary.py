"""A day of a system in one row. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind
from queueyard.pipeline.gold.durations import measured
from queueyard.pipeline.gold.kinds import FLOW, counts, share, whole_items
from queueyard.pipeline.gold.spans import is_exact, percentiles_us, pick_s
from queueyard.pipeline.schemas import SUMMARY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS = ("system", "day")
_SHARES = (0.5, 0.95)
_MEASURES = ("wait", "run")
_COUNTED = (*FLOW, Kind.RETRIED, Kind.STALLED)


def summary(*, events: DataFrame, attempts: DataFrame) -> DataFrame:
    """One row per system and day on which it told anything."""
    ends = F.col("succeeded") + F.col("failed") + F.col("conflicted")
    return (
        _flow(events)
        .join(_times(attempts), on=list(_KEYS), how="left")
        .withColumns(
            {
                "success_rate": share(F.col("succeeded"), ends),
                "wait_p50_s": pick_s("wait", 0),
                "wait_p95_s": pick_s("wait", 1),
                "run_p50_s": pick_s("run", 0),
                "run_p95_s": pick_s("run", 1),
                "is_exact": F.coalesce("is_exact", F.lit(True)),
            }
        )
        .select(*SUMMARY.schema.fieldNames())
    )


def _flow(events: DataFrame) -> DataFrame:
    # In two steps, since Spark multiplies the rows of an aggregation with several distinct counts.
    per_item = (
        whole_items(events)
        .withColumn("day", F.to_date("at"))
        .groupBy(*_KEYS, "source", "queue", "item")
        .agg(F.count("*").alias("events"), *counts(*_COUNTED))
    )
    per_queue = per_item.groupBy(*_KEYS, "source", "queue").agg(F.count("*").alias("items"), *_sums("events"))
    return per_queue.groupBy(*_KEYS).agg(
        F.count_distinct("source").alias("sources"), F.count("*").alias("queues"), *_sums("events", "items")
    )


def _sums(*more: str) -> list[Column]:
    return [F.sum(name).alias(name) for name in (*more, *[kind.value for kind in _COUNTED])]


def _times(attempts: DataFrame) -> DataFrame:
    """Percentiles over all queues of a system, by the day on which the wait or the run ended."""
    apart = {f"{name}_us": F.when(F.col("measure") == name, F.col("span_us")) for name in _MEASURES}
    return (
        measured(attempts)
        .withColumns(apart)
        .groupBy(*_KEYS)
        .agg(
            *[percentiles_us(f"{name}_us", _SHARES).alias(name) for name in _MEASURES],
            is_exact(*apart).alias("is_exact"),
        )
    )
