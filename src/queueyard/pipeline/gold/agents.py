"""What each agent of queen has to do: mail, answers, assignments, and the time between them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from queueyard.pipeline.gold.spans import is_exact, percentiles_us, pick_s, seconds, span_us
from queueyard.pipeline.schemas import AGENTS
from queueyard.pipeline.silver.sums import exact_sum
from queueyard.pipeline.streams import moment

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_AGENT = ("source", "agent")
_SHARES = (0.5, 0.95)
_COUNTS = ("sent", "received", "unread", "answered", "assignments", "open_assignments", "completed", "idle_gaps")
_NEVER = "9999-12-31 00:00:00"


def agents(*, messages: DataFrame, assignments: DataFrame) -> DataFrame:
    """One row per agent who ever sent, received or was assigned something."""
    return (
        _mail(messages)
        .join(_answers(messages), on=list(_AGENT), how="full")
        .join(_work(assignments), on=list(_AGENT), how="full")
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in _COUNTS})
        .withColumns(
            {
                "response_p50_s": pick_s("sketch", 0),
                "response_p95_s": pick_s("sketch", 1),
                "idle_s": seconds(F.col("idle_us")),
                "is_exact": F.coalesce("is_exact", F.lit(True)),
            }
        )
        .select(*AGENTS.schema.fieldNames())
    )


def owner() -> Column:
    """Who holds an assignment or a reservation: `agent`, or `droid` where another tool wrote only that."""
    return F.coalesce(F.nullif(F.col("agent"), F.lit("")), F.col("droid"))


def _mail(messages: DataFrame) -> DataFrame:
    is_unread = ~F.coalesce("read", F.lit(False)) & ~F.coalesce("deleted", F.lit(False))
    sides = F.array(
        _side(F.col("from"), sent=F.lit(1), received=F.lit(0), unread=F.lit(0)),
        _side(F.col("to"), sent=F.lit(0), received=F.lit(1), unread=is_unread.cast("int")),
    )
    return (
        messages.select("source", F.inline(sides))
        .where(F.col("agent").isNotNull())
        .groupBy(*_AGENT)
        .agg(*[F.sum(name).alias(name) for name in ("sent", "received", "unread")])
    )


def _side(agent: Column, *, sent: Column, received: Column, unread: Column) -> Column:
    return F.struct(agent.alias("agent"), sent.alias("sent"), received.alias("received"), unread.alias("unread"))


def _answers(messages: DataFrame) -> DataFrame:
    """How long it took to the first answer, for each message that its recipient answered."""
    asked = messages.select("source", F.col("to").alias("agent"), "id", moment("created_at").alias("asked_at"))
    replies = messages.select(
        "source", F.col("from").alias("agent"), F.col("reply_to").alias("id"), moment("created_at").alias("answered_at")
    )
    return (
        asked.join(replies, on=["source", "agent", "id"], how="inner")
        .groupBy("source", "agent", "id")
        .agg(F.min(span_us(F.col("asked_at"), F.col("answered_at"))).alias("span_us"))
        .groupBy(*_AGENT)
        .agg(
            F.count("span_us").alias("answered"),
            percentiles_us("span_us", _SHARES).alias("sketch"),
            is_exact("span_us").alias("is_exact"),
        )
    )


def _work(assignments: DataFrame) -> DataFrame:
    status = F.coalesce("status", F.lit("active"))
    ended_at = F.when(F.col("status") != "active", moment("updated_at"))
    held = (
        assignments.withColumn("status", status)
        .select(
            "source", owner().alias("agent"), "id", "status", moment("created_at").alias("at"), ended_at.alias("to")
        )
        .where(F.col("agent").isNotNull())
    )
    return (
        held.withColumn("idle_us", _idle_before())
        .groupBy(*_AGENT)
        .agg(
            F.count("*").alias("assignments"),
            F.count_if(F.col("status") == "active").alias("open_assignments"),
            F.count_if(F.col("status") == "completed").alias("completed"),
            F.count("idle_us").alias("idle_gaps"),
            exact_sum("idle_us").alias("idle_us"),
        )
    )


def _idle_before() -> Column:
    """The time since the agent's last earlier assignment ended; null if one was still open, or there was none.

    One whose begin is not known is neither earlier nor later than any other.
    """
    earlier = Window.partitionBy(*_AGENT).orderBy("at", "id").rowsBetween(Window.unboundedPreceding, -1)
    # An end that is not known has not come.
    end = F.coalesce("to", F.lit(_NEVER).cast("timestamp"))
    busy_until = F.max(F.when(F.col("at").isNotNull(), end)).over(earlier)
    idle = span_us(busy_until, F.col("at"))
    return F.when(idle > 0, idle)
