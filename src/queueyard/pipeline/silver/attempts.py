"""One row per try: when it was asked for, when it began, when and how it ended.

An attempt is asked for by `queued` or by the `retried` that names it, begins with its last `started`, and ends with its
last event of an ending kind. One that was handed back and started again has not ended. An attempt that has begun and
has no end of its own has failed when the next one was asked for. Messages and reservations are not tried, so they have
no attempts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline.schemas import ATTEMPT_KEY, ATTEMPTS, ITEM_KEY
from queueyard.pipeline.silver.sums import long_sum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ASKED = (Kind.QUEUED, Kind.RETRIED)
_ENDED = (Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED, Kind.EXPIRED, Kind.RELEASED)
_TOLD = (*_ASKED, *_ENDED, Kind.STARTED, Kind.STALLED)
_NAMES = ATTEMPTS.schema.fieldNames()


def of_events(events: DataFrame) -> DataFrame:
    """One part per attempt, of the events of one batch."""
    tried = events.where(
        ((F.col("system") != str(System.QUEEN)) | (F.col("queue") == "assignments")) & F.col("kind").isin(*_TOLD)
    )
    own = tried.select(*ITEM_KEY, "attempt", *_told_of_itself(), "batch")
    before = tried.where((F.col("kind") == str(Kind.RETRIED)) & (F.col("attempt") > 1)).select(
        *ITEM_KEY, (F.col("attempt") - 1).alias("attempt"), *_told_of_the_one_before(), "batch"
    )
    return merged(own.unionByName(before))


def merged(parts: DataFrame) -> DataFrame:
    """One row per attempt, still as a part: what the next batch brings can be added."""
    return (
        parts.groupBy(*ATTEMPT_KEY)
        .agg(
            F.max("group").alias("group"),
            F.max_by("actor", "actor_order").alias("actor"),
            F.max("actor_order").alias("actor_order"),
            F.min("queued_at").alias("queued_at"),
            F.max("started_at").alias("started_at"),
            F.max("finished_at").alias("finished_at"),
            _of_the_end("finished_id"),
            _of_the_end("outcome"),
            _of_the_end("reason"),
            F.min("superseded_at").alias("superseded_at"),
            _of_the_next_one("superseded_reason"),
            F.sum("stalls").alias("stalls"),
            _of_the_end("duration_ms"),
            long_sum("wasted_ms").alias("wasted_ms"),
            F.max("batch").alias("batch"),
        )
        .select(*_NAMES)
    )


def view(parts: DataFrame) -> DataFrame:
    """The attempts as people count them."""
    is_superseded = F.col("outcome").isNull() & F.col("started_at").isNotNull() & F.col("superseded_at").isNotNull()
    ends = ("finished_at", "outcome", "reason", "duration_ms")
    return (
        merged(parts)
        .withColumns({name: F.when(~_is_started_again(), F.col(name)) for name in ends})
        # Known by its successor alone: the item began its life with that one.
        .where(F.coalesce("queued_at", "started_at", "finished_at").isNotNull())
        .withColumn("reason", F.when(is_superseded, F.col("superseded_reason")).otherwise(F.col("reason")))
        .withColumn("finished_at", F.when(is_superseded, F.col("superseded_at")).otherwise(F.col("finished_at")))
        .withColumn("outcome", F.when(is_superseded, str(Kind.FAILED)).otherwise(F.col("outcome")))
        .drop("superseded_at", "superseded_reason", "finished_id", "actor_order", "batch")
    )


def _is_started_again() -> Column:
    """Handed back before it was last started. Assignments start once, and those two times come from two clocks."""
    is_before = (F.col("outcome") == str(Kind.RELEASED)) & (F.col("finished_at") < F.col("started_at"))
    return F.coalesce(is_before & (F.col("system") != str(System.QUEEN)), F.lit(False))


def _told_of_itself() -> list[Column]:
    kind = F.col("kind")
    ended = kind.isin(*_ENDED)
    duration_ms = F.get_json_object("data", "$.duration_ms").try_cast("long")
    is_wasted = (F.col("system") == str(System.JJQ)) & (kind == str(Kind.RELEASED))
    return [
        F.col("group"),
        F.col("actor"),
        _actor_order(kind).alias("actor_order"),
        F.when(kind.isin(*_ASKED), F.col("at")).alias("queued_at"),
        F.when(kind == str(Kind.STARTED), F.col("at")).alias("started_at"),
        F.when(ended, F.col("at")).alias("finished_at"),
        F.when(ended, F.col("id")).alias("finished_id"),
        F.when(ended, kind).alias("outcome"),
        F.when(ended, F.col("reason")).alias("reason"),
        F.lit(None).cast("timestamp").alias("superseded_at"),
        F.lit(None).cast("string").alias("superseded_reason"),
        F.when(kind == str(Kind.STALLED), 1).otherwise(0).cast("long").alias("stalls"),
        F.when(ended, duration_ms).alias("duration_ms"),
        F.when(is_wasted, F.coalesce(duration_ms, F.lit(0))).otherwise(0).cast("long").alias("wasted_ms"),
    ]


def _told_of_the_one_before() -> list[Column]:
    nothing = {
        "actor": "string",
        "actor_order": "string",
        "queued_at": "timestamp",
        "started_at": "timestamp",
        "finished_at": "timestamp",
        "finished_id": "string",
        "outcome": "string",
        "reason": "string",
        "duration_ms": "long",
    }
    return [
        F.col("group"),
        F.col("at").alias("superseded_at"),
        F.col("reason").alias("superseded_reason"),
        F.lit(0).cast("long").alias("stalls"),
        F.lit(0).cast("long").alias("wasted_ms"),
        *[F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()],
    ]


def _actor_order(kind: Column) -> Column:
    asked_or_none = F.when(kind.isin(*_ASKED), "1").otherwise("0")
    rank = F.when(kind.isin(*_ENDED), "3").when(kind == str(Kind.STARTED), "2").otherwise(asked_or_none)
    return F.concat(rank, F.lpad(F.unix_micros("at").cast("string"), 18, "0"), F.col("id"))


def _of_the_next_one(name: str) -> Column:
    order = f"struct(superseded_at, `{name}`)"
    return F.expr(f"min_by(`{name}`, {order}) FILTER (WHERE superseded_at IS NOT NULL)").alias(name)


def _of_the_end(name: str) -> Column:
    return F.expr(f"max_by(`{name}`, struct(finished_at, finished_id)) FILTER (WHERE finished_at IS NOT NULL)").alias(
        name
    )
