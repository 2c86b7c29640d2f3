"""How far sync lags behind, and how often it meets somebody else's change (ops). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline.gold.kinds import is_kind, is_of, is_single_op, number, share, whole_items
from queueyard.pipeline.gold.spans import is_exact, max_s, mean_s, percentiles_us, pick_s, span_us
from queueyard.pipeline.schemas import SYNC
from queueyard.pipeline.silver.sums import long_sum

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_KEYS = ("source", "space", "day")
_SHARES = (0.5, 0.95)
#: column of the table -> what the server calls an op that it applied, and what a client's answer counts
_ANSWERS = {
    "applied": (Kind.SUCCEEDED, "applied"),
    "conflicts": (Kind.CONFLICTED, "conflict"),
    "rejected": (Kind.FAILED, "rejected"),
}
_COUNTS = ("batches", *_ANSWERS, "versions", "files_changed", "bytes")


def sync(*, events: DataFrame, file_versions: DataFrame) -> DataFrame:
    """One row per space and day on which a batch was answered, an op was judged or a file changed."""
    told = events.where(is_of(System.OPS)).withColumnsRenamed({"queue": "space"})
    return (
        _batches(told)
        .join(_ops(told), on=list(_KEYS), how="full")
        .join(_files(file_versions), on=list(_KEYS), how="full")
        # The server knows the ops of all clients; where its feed is not read, clients know their own.
        .withColumns({name: F.coalesce(f"server_{name}", f"client_{name}") for name in _ANSWERS})
        .withColumns({name: F.coalesce(name, F.lit(0)) for name in _COUNTS})
        .withColumns(
            {
                "conflict_rate": share(F.col("conflicts"), _judged()),
                "lag_p50_s": pick_s("sketch", 0),
                "lag_p95_s": pick_s("sketch", 1),
                "is_exact": F.coalesce("is_exact", F.lit(True)),
            }
        )
        .select(*SYNC.schema.fieldNames())
    )


def _batches(told: DataFrame) -> DataFrame:
    """Batches by the day on which they were answered; the first answer counts."""
    answered = is_kind(Kind.SUCCEEDED)
    per_batch = (
        whole_items(told)
        .groupBy("source", "space", "item")
        .agg(
            F.min(F.when(is_kind(Kind.QUEUED), F.col("at"))).alias("queued_at"),
            F.min(F.when(answered, F.col("at"))).alias("answered_at"),
            *[
                F.min_by(number(word), F.when(answered, F.col("at"))).alias(f"client_{name}")
                for name, (_, word) in _ANSWERS.items()
            ],
        )
        .where(F.col("answered_at").isNotNull())
    )
    return (
        per_batch.withColumns(
            {"day": F.to_date("answered_at"), "span_us": span_us(F.col("queued_at"), F.col("answered_at"))}
        )
        .groupBy(*_KEYS)
        .agg(
            F.count("*").alias("batches"),
            mean_s("span_us").alias("lag_mean_s"),
            max_s("span_us").alias("lag_max_s"),
            percentiles_us("span_us", _SHARES).alias("sketch"),
            is_exact("span_us").alias("is_exact"),
            *[long_sum(f"client_{name}").alias(f"client_{name}") for name in _ANSWERS],
        )
    )


def _ops(told: DataFrame) -> DataFrame:
    return (
        told.where(is_single_op())
        .groupBy("source", "space", F.to_date("at").alias("day"))
        .agg(*[F.count_if(is_kind(kind)).alias(f"server_{name}") for name, (kind, _) in _ANSWERS.items()])
    )


def _judged() -> Column:
    # Added up as doubles: what clients tell may be any number.
    applied, conflicts, rejected = [F.col(name).cast("double") for name in _ANSWERS]
    return applied + conflicts + rejected


def _files(file_versions: DataFrame) -> DataFrame:
    return file_versions.groupBy("source", "space", F.to_date("at").alias("day")).agg(
        F.count("*").alias("versions"),
        F.count_distinct("file").alias("files_changed"),
        long_sum("bytes").alias("bytes"),
    )
