"""Whether the groups of a queue are served alike: Jain's index per hour and day. Pure.

A group takes part in a window if it was served in it or waited for it, so that a group that starves counts with
nothing. An item that still waits does so until the last thing that is known of its queue, and at most for
`LONGEST_WAIT_DAYS`, so that one clock in the far future does not fill the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from queueyard.pipeline.gold.spans import seconds, span_us
from queueyard.pipeline.schemas import FAIRNESS
from queueyard.pipeline.silver.sums import exact_sum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LONGEST_WAIT_DAYS = 31
_QUEUE = ("system", "source", "queue")
_GRAINS = ("hour", "day")


def fairness(*, attempts: DataFrame) -> DataFrame:
    """One row per grain, window and queue in which at least one group was served or waited."""
    grouped = attempts.select(*_QUEUE, "group", *_moments()).where(F.col("group").isNotNull())
    return (
        _served(grouped)
        .unionByName(_waiting(grouped))
        .transform(_per_window_and_group)
        .transform(_per_window)
        .select(*FAIRNESS.schema.fieldNames())
    )


def _moments() -> tuple[Column, ...]:
    return (
        F.coalesce("queued_at", "started_at").alias("came_at"),
        F.col("started_at"),
        F.coalesce("started_at", "finished_at").alias("left_at"),
        F.greatest("queued_at", "started_at", "finished_at").alias("last_at"),
        span_us(F.col("started_at"), F.col("finished_at")).alias("span_us"),
    )


def _served(grouped: DataFrame) -> DataFrame:
    """What each group got per hour, by the hour in which it started."""
    return (
        grouped.where(F.col("started_at").isNotNull())
        .groupBy(*_QUEUE, "group", F.date_trunc("hour", "started_at").alias("hour_at"))
        .agg(F.count("*").alias("services"), F.coalesce(exact_sum("span_us"), F.lit(0)).alias("run_us"))
    )


def _waiting(grouped: DataFrame) -> DataFrame:
    """The hours in which a group had something in the queue, with nothing got."""
    # Reduced to one row per group and hour of arrival before the hours are spelled out.
    arrivals = grouped.groupBy(*_QUEUE, "group", F.date_trunc("hour", "came_at").alias("from_at")).agg(
        F.bool_or(F.col("left_at").isNull()).alias("is_open"),
        F.max("left_at").alias("left_at"),
        F.max("last_at").alias("last_at"),
    )
    # Also of attempts that are known by their end alone, which are in no queue themselves.
    known_until = F.max("last_at").over(Window.partitionBy(*_QUEUE))
    latest = F.col("from_at") + F.make_dt_interval(F.lit(LONGEST_WAIT_DAYS))
    until = F.least(F.when(F.col("is_open"), known_until).otherwise(F.col("left_at")), latest)
    hours = F.sequence("from_at", F.greatest("from_at", "until_at"), F.make_dt_interval(hours=F.lit(1)))
    return (
        arrivals.withColumn("until_at", until)
        .where(F.col("from_at").isNotNull())
        .select(
            *_QUEUE,
            "group",
            F.explode(hours).alias("hour_at"),
            F.lit(0).cast("long").alias("services"),
            F.lit(0).cast("decimal(38,0)").alias("run_us"),
        )
    )


def _per_window_and_group(hours: DataFrame) -> DataFrame:
    grains = [
        F.struct(F.lit(grain).alias("grain"), F.date_trunc(grain, "hour_at").alias("bucket_at")) for grain in _GRAINS
    ]
    return (
        hours.select("*", F.inline(F.array(*grains)))
        .groupBy("grain", "bucket_at", *_QUEUE, "group")
        .agg(F.sum("services").alias("services"), exact_sum("run_us").alias("run_us"))
    )


def _per_window(groups: DataFrame) -> DataFrame:
    return groups.groupBy("grain", "bucket_at", *_QUEUE).agg(
        F.count("*").alias("groups"),
        jain("services").alias("jain_services"),
        jain("run_us").alias("jain_run"),
        F.sum("services").alias("services"),
        seconds(exact_sum("run_us")).alias("run_s"),
    )


def jain(name: str) -> Column:
    """(sum of x)^2 / (n * sum of x^2): 1 if all got the same, 1/n if one got everything; null if nobody got anything.

    Sums are decimals: exact, and the same in any order of rows. The division may come out a hair above 1. Where the
    squares are too great for a decimal, as of thirty thousand years of running, there is no index.
    """
    share = F.col(name).try_cast("decimal(18,0)")
    total, squares = F.sum(share).cast("double"), F.try_sum(share * share).cast("double")
    is_known = (F.count(share) == F.count("*")) & (squares > 0)
    return F.when(is_known, F.least(F.lit(1.0), total * total / (F.count("*") * squares)))
