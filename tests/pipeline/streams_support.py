"""Reading a source of ours in both ways that Spark knows: a whole plan at once, and micro-batches with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession


def as_text(work: Any) -> str:
    return msgspec.json.encode(work).decode()


def batch(spark: SparkSession, name: str, **options: str) -> list[Row]:
    """What a plan gives, in the order of position and minor."""
    frame = spark.read.format(name).options(**options).load()
    return sorted(frame.collect(), key=lambda row: (row["file"], row["generation"], row["position"], row["minor"]))


def micro_batches(spark: SparkSession, folder: Path, name: str, **options: str) -> list[str]:
    """Let a stream take all there is, then stop it; the raw texts of all that it ever took.

    Called again with the same folder it starts from its checkpoint.
    """
    query = (
        spark.readStream.format(name)
        .options(**options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    assert query.awaitTermination(120)
    return sorted(row["raw"] for row in spark.read.parquet(str(folder / "rows")).collect())
