"""Which agents reserved the same files at the same time (queen). Pure.

Spark has no engine for globs, so two patterns are said to meet by what stands before their first wildcard: they are
equal, or one has a wildcard and its fixed start is the beginning of the other's. That names every pair that queen
itself would call an overlap, and some that it would not (`src/*.py` and `src/a.css`).

Which patterns meet is found among the patterns, of which there are few, by the folders above them; only then are
reservations looked at, those of one hour and of two patterns that meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.gold.agents import owner
from queueyard.pipeline.gold.spans import seconds, span_us
from queueyard.pipeline.schemas import CONTENTION
from queueyard.pipeline.silver.sums import exact_sum
from queueyard.pipeline.streams import moment

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: a reservation is looked at for so long, so that an end in the far future does not fill the memory
LONGEST_HOLD_DAYS = 31
_FIXED_START = r"^([^*?\[{\\]*)"
_KEYS = ("source", "day", "holder", "holder_pattern", "waiter", "waiter_pattern")
_FOLDER = r"^(.*/)"
_HELD = ("id", "agent", "pattern", "is_exclusive", "start_at", "end_at")


def contention(*, reservations: DataFrame) -> DataFrame:
    """One row per day and pair of agents and patterns; the holder is who reserved first."""
    held = _held(reservations)
    return (
        _hours_of_holders(held)
        .join(_meetings(held), on=["source", "holder_pattern"], how="inner")
        .join(_first_hour_of_waiters(held), on=["source", "hour_at", "waiter_pattern"], how="inner")
        .where(_clash())
        .select(*_pair())
        .groupBy(*_KEYS)
        .agg(
            F.count("*").alias("overlaps"),
            F.count_if("is_blocking").alias("blocking_overlaps"),
            seconds(exact_sum("span_us")).alias("overlap_s"),
        )
        .select(*CONTENTION.schema.fieldNames())
    )


def _held(reservations: DataFrame) -> DataFrame:
    """Each reservation with what it means: the files, and the time in which it was in force."""
    # A pattern that ends with a slash means everything below.
    pattern = F.regexp_replace(F.regexp_replace("pattern", r"^(?:\./+)+", ""), "/+$", "/**")
    fixed = F.regexp_extract(pattern, _FIXED_START, 1)
    end_at = F.least(moment("released_at"), moment("expires_at"))
    return (
        reservations.select(
            "source",
            "id",
            owner().alias("agent"),
            pattern.alias("pattern"),
            fixed.alias("fixed"),
            (F.length(fixed) < F.length(pattern)).alias("has_wildcard"),
            F.coalesce("exclusive", F.lit(True)).alias("is_exclusive"),
            moment("created_at").alias("start_at"),
            end_at.alias("end_at"),
        )
        .where(F.col("start_at") < F.col("end_at"))
        .where(F.col("agent").isNotNull() & F.col("pattern").isNotNull())
    )


def _hours_of_holders(held: DataFrame) -> DataFrame:
    """Every hour that a reservation touches: the waiter's first hour is found among them without comparing all."""
    latest = F.col("start_at") + F.make_dt_interval(F.lit(LONGEST_HOLD_DAYS))
    hours = F.sequence(
        F.date_trunc("hour", "start_at"), F.least(F.col("end_at"), latest), F.make_dt_interval(hours=F.lit(1))
    )
    return held.select(
        "source", F.explode(hours).alias("hour_at"), *[F.col(name).alias(f"holder_{name}") for name in _HELD]
    )


def _first_hour_of_waiters(held: DataFrame) -> DataFrame:
    return held.select(
        "source",
        F.date_trunc("hour", "start_at").alias("hour_at"),
        *[F.col(name).alias(f"waiter_{name}") for name in _HELD],
    )


def _clash() -> Column:
    is_first = F.struct("holder_start_at", "holder_id") < F.struct("waiter_start_at", "waiter_id")
    is_still_held = F.col("waiter_start_at") < F.col("holder_end_at")
    is_for_writing = F.col("holder_is_exclusive") | F.col("waiter_is_exclusive")
    is_another = F.col("holder_agent") != F.col("waiter_agent")
    return is_another & is_first & is_still_held & is_for_writing


def _meetings(held: DataFrame) -> DataFrame:
    """Every two patterns of a source that meet, in both orders; each meets itself."""
    patterns = held.select("source", "pattern", "fixed", "has_wildcard").distinct()
    # `src/**` means `src`, too: a path without wildcards is compared as if it were a directory.
    path = F.when(F.col("has_wildcard"), F.col("fixed")).otherwise(F.concat("fixed", F.lit("/")))
    outer = patterns.where("has_wildcard").select(
        "source", F.regexp_extract("fixed", _FOLDER, 1).alias("folder"), F.col("pattern").alias("outer"), "fixed"
    )
    inner = patterns.select("source", F.explode(_folders_of(path)).alias("folder"), "pattern", path.alias("path"))
    contained = outer.join(inner, on=["source", "folder"]).where(F.startswith("path", "fixed"))
    pairs = F.array(_met("outer", "pattern"), _met("pattern", "outer"))
    itself = patterns.select("source", F.inline(F.array(_met("pattern", "pattern"))))
    return contained.select("source", F.inline(pairs)).unionByName(itself).distinct()


def _folders_of(path: Column) -> Column:
    """Every beginning of a path that is a folder: none at all, and each that ends with a slash."""
    parts = F.split(path, "/")
    return F.transform(
        F.sequence(F.lit(0), F.size(parts) - 1),
        lambda depth: F.array_join(F.transform(F.slice(parts, 1, depth), lambda part: F.concat(part, F.lit("/"))), ""),
    )


def _met(holder: str, waiter: str) -> Column:
    return F.struct(F.col(holder).alias("holder_pattern"), F.col(waiter).alias("waiter_pattern"))


def _pair() -> tuple[Column, ...]:
    end_at = F.least("holder_end_at", "waiter_end_at")
    return (
        F.col("source"),
        F.to_date("waiter_start_at").alias("day"),
        F.col("holder_agent").alias("holder"),
        F.col("holder_pattern"),
        F.col("waiter_agent").alias("waiter"),
        F.col("waiter_pattern"),
        (F.col("holder_is_exclusive") & F.col("waiter_is_exclusive")).alias("is_blocking"),
        span_us(F.col("waiter_start_at"), end_at).alias("span_us"),
    )
