"""How long items wait and run: percentiles per queue, per group and per day. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.gold.spans import is_exact, max_s, mean_s, percentiles_us, pick_s, span_us
from queueyard.pipeline.schemas import DURATIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_QUEUE = ("system", "source", "queue")
_SHARES = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99}


def durations(*, attempts: DataFrame) -> DataFrame:
    """One row per measure and scope; a scope's own columns are null in the rows of the others."""
    return (
        measured(attempts)
        .transform(_scoped)
        .groupBy(*_QUEUE, "measure", "scope", "group", "day")
        .agg(
            F.count("span_us").alias("attempts"),
            mean_s("span_us").alias("mean_s"),
            max_s("span_us").alias("max_s"),
            percentiles_us("span_us", [*_SHARES.values()]).alias("sketch"),
            is_exact("span_us").alias("is_exact"),
        )
        .withColumns({name: pick_s("sketch", place) for place, name in enumerate(_SHARES)})
        .select(*DURATIONS.schema.fieldNames())
    )


def measured(attempts: DataFrame) -> DataFrame:
    """One row per length that is known: (queue, group, measure, the day on which it ended, span_us)."""
    wait = _measure("wait", F.col("queued_at"), F.col("started_at"))
    run = _measure("run", F.col("started_at"), F.col("finished_at"))
    return attempts.select(*_QUEUE, "group", F.inline(F.array(wait, run))).where(F.col("span_us").isNotNull())


def _measure(name: str, start: Column, end: Column) -> Column:
    return F.struct(F.lit(name).alias("measure"), F.to_date(end).alias("day"), span_us(start, end).alias("span_us"))


def _scoped(spans: DataFrame) -> DataFrame:
    no_group, no_day = F.lit(None).cast("string"), F.lit(None).cast("date")
    scopes = F.array(
        _scope("queue", no_group, no_day),
        _scope("group", F.col("in_group"), no_day),
        _scope("day", no_group, F.col("on_day")),
    )
    return (
        spans.withColumnsRenamed({"group": "in_group", "day": "on_day"})
        .select(*_QUEUE, "measure", "span_us", F.inline(scopes))
        .where((F.col("scope") != "group") | F.col("group").isNotNull())
    )


def _scope(name: str, group: Column, day: Column) -> Column:
    return F.struct(F.lit(name).alias("scope"), group.alias("group"), day.alias("day"))
