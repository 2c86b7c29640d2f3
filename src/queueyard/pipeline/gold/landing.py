"""How long a change takes from the push to trunk, and how many checks were for nothing (jjq). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline.gold.kinds import is_kind, is_of, number, share
from queueyard.pipeline.gold.spans import is_exact, max_s, mean_s, percentiles_us, pick_s, span_us
from queueyard.pipeline.schemas import LANDING
from queueyard.pipeline.silver.sums import exact_sum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TRUNK = ("source", "queue")
_SHARES = (0.5, 0.95)
_TOLD = ("landed", "failed", "conflicted", "checks", "wasted_checks", "reused_checks")


def landing(*, events: DataFrame) -> DataFrame:
    """One row per trunk and day on which an item landed, failed or had a check thrown away."""
    told = events.where(is_of(System.JJQ)).select(*_TRUNK, "item", "kind", "at", "data")
    return (
        _ends(told)
        .unionByName(_times(told), allowMissingColumns=True)
        .groupBy(*_TRUNK, "day")
        .agg(
            *[F.sum(name).alias(name) for name in _TOLD],
            exact_sum("wasted_ms").alias("wasted_ms"),
            F.count("span_us").alias("timed"),
            mean_s("span_us").alias("land_mean_s"),
            max_s("span_us").alias("land_max_s"),
            percentiles_us("span_us", _SHARES).alias("sketch"),
            is_exact("span_us").alias("is_exact"),
        )
        .withColumns(
            {
                "wasted_s": F.col("wasted_ms").cast("double") / F.lit(1000.0),
                "wasted_share": share(F.col("wasted_checks"), F.col("checks")),
                "land_p50_s": pick_s("sketch", 0),
                "land_p95_s": pick_s("sketch", 1),
            }
        )
        .select(*LANDING.schema.fieldNames())
    )


def _ends(told: DataFrame) -> DataFrame:
    """One row per event that ends an item or a check, with ones where it counts."""
    duration_ms = number("duration_ms")
    is_reused = F.coalesce(F.get_json_object("data", "$.reused") == "true", F.lit(False))
    is_check = duration_ms.isNotNull() & ~is_reused
    is_wasted = is_kind(Kind.RELEASED)
    return told.where(is_kind(Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.RELEASED)).select(
        *_TRUNK,
        F.to_date("at").alias("day"),
        _one(is_kind(Kind.SUCCEEDED)).alias("landed"),
        _one(is_kind(Kind.FAILED)).alias("failed"),
        _one(is_kind(Kind.CONFLICTED)).alias("conflicted"),
        _one(is_check | is_wasted).alias("checks"),
        _one(is_wasted).alias("wasted_checks"),
        _one(is_kind(Kind.SUCCEEDED) & is_reused).alias("reused_checks"),
        F.when(is_wasted, F.coalesce(duration_ms, F.lit(0))).otherwise(F.lit(0)).alias("wasted_ms"),
    )


def _times(told: DataFrame) -> DataFrame:
    """One row per item that landed and whose push is known."""
    return (
        told.where(is_kind(Kind.QUEUED, Kind.SUCCEEDED))
        .groupBy(*_TRUNK, "item")
        .agg(
            F.min(F.when(is_kind(Kind.QUEUED), F.col("at"))).alias("queued_at"),
            F.min(F.when(is_kind(Kind.SUCCEEDED), F.col("at"))).alias("landed_at"),
        )
        .select(
            *_TRUNK,
            F.to_date("landed_at").alias("day"),
            span_us(F.col("queued_at"), F.col("landed_at")).alias("span_us"),
        )
        .where(F.col("span_us").isNotNull())
    )


def _one(is_true: Column) -> Column:
    return F.when(is_true, F.lit(1)).otherwise(F.lit(0)).cast("long")
