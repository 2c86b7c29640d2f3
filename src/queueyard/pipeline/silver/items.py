"""What every item is now: its first and its last event. Parts add up: each is told by smallest and greatest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.schemas import ITEM_KEY, ITEMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def of_events(events: DataFrame) -> DataFrame:
    """One part per item, of the events of one batch."""
    named = events.select(
        *ITEM_KEY,
        "group",
        F.col("at").alias("first_at"),
        F.col("at").alias("last_at"),
        F.col("id").alias("last_id"),
        F.col("kind").alias("last_kind"),
        F.col("reason").alias("last_reason"),
        F.col("actor").alias("last_actor"),
        F.col("attempt").alias("attempts"),
        F.lit(1).cast("long").alias("events"),
        "batch",
    )
    return merged(named)


def merged(parts: DataFrame) -> DataFrame:
    """One row per item."""
    order = F.struct("last_at", "last_id")
    return (
        parts.groupBy(*ITEM_KEY)
        .agg(
            F.expr("max_by(`group`, struct(last_at, last_id)) FILTER (WHERE `group` IS NOT NULL)").alias("group"),
            F.min("first_at").alias("first_at"),
            F.max("last_at").alias("last_at"),
            F.max_by("last_id", order).alias("last_id"),
            F.max_by("last_kind", order).alias("last_kind"),
            F.max_by("last_reason", order).alias("last_reason"),
            F.max_by("last_actor", order).alias("last_actor"),
            F.max("attempts").alias("attempts"),
            F.sum("events").alias("events"),
            F.max("batch").alias("batch"),
        )
        .select(*ITEMS.schema.fieldNames())
    )
