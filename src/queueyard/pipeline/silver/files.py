"""Files that ops keeps in step: every version, and the newest of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.ops.records import FeedOp
from queueyard.pipeline.schemas import FILE_VERSIONS, FILES
from queueyard.pipeline.streams import moment, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def versions_of(lines: DataFrame) -> DataFrame:
    """One row per entry of the change feed."""
    return (
        parsed(lines, "ops.changes")
        .select("place", "batch", "record.*")
        .select(
            F.col("place").alias("source"),
            "space",
            F.col("fileId").alias("file"),
            "version",
            "seq",
            "op",
            F.col("serverPath").alias("path"),
            F.col("previousPath").alias("previous_path"),
            F.col("contentHash").alias("content_hash"),
            F.coalesce("size", F.lit(0)).alias("bytes"),
            F.col("requestId").alias("request"),
            F.coalesce("clientId", "userId").alias("actor"),
            moment("acceptedAt").alias("at"),
            "batch",
        )
        .select(*FILE_VERSIONS.schema.fieldNames())
    )


def distinct_versions(versions: DataFrame) -> DataFrame:
    """Each entry of a feed once, whatever number of segments and pages it was read from."""
    return versions.dropDuplicates(["source", "space", "seq"])


def of_versions(versions: DataFrame) -> DataFrame:
    """One part per file, of the versions of one batch."""
    return merged(
        versions.select(
            "source",
            "space",
            "file",
            "version",
            "seq",
            "path",
            "content_hash",
            "bytes",
            (F.col("op") == str(FeedOp.DELETE)).alias("is_deleted"),
            F.col("at").alias("changed_at"),
            "batch",
        )
    )


def merged(parts: DataFrame) -> DataFrame:
    """One row per file."""
    newest = [name for name in FILES.schema.fieldNames() if name not in {"source", "space", "file", "batch"}]
    return (
        parts.groupBy("source", "space", "file")
        .agg(*[F.max_by(name, "seq").alias(name) for name in newest], F.max("batch").alias("batch"))
        .select(*FILES.schema.fieldNames())
    )
