"""The latest state of every record of a file of JSON lines, in a Spark job of your own.

A later line about the same id need only name what has changed. The source folds lines that stand near each other while
it reads them, so Spark has a fraction of the rows to sort.

Run it anywhere: python examples/pipeline_latest_state.py
It needs the extra `pipeline` and, where there is no Java, `embedded`.
"""

from __future__ import annotations

from pathlib import Path
import tempfile

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of PySpark's readers expect

from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.sources.looking import look
from queueyard.pipeline.sources.parts import Fold
from queueyard.pipeline.sources.spans import Origin, plan

FIELDS = "id string, started_at string, status string, worker string"


def latest(spark: SparkSession, file: Path) -> DataFrame:
    """One row per id: of each field the last value that a line names, of `started_at` the first."""
    spans, _ = plan({}, look([Origin(stream="builds", place="here", path=str(file))]), most_bytes=1 << 40)
    parts = (
        spark.read.format("queueyard_lines")
        .schema(f"position bigint, record struct<{FIELDS}>, rest string")
        .option("spans", msgspec.json.encode(spans).decode())
        .option("fold", msgspec.json.encode(Fold(key="id", first=["started_at"])).decode())
        .load()
    )
    # What the source does not read by itself is left to Spark, as a text.
    record = F.coalesce("record", F.from_json("rest", FIELDS)).alias("record")
    rows = parts.select("position", record).select("position", "record.*")
    return rows.groupBy("id").agg(
        F.expr("min_by(started_at, position) FILTER (WHERE started_at IS NOT NULL)").alias("started_at"),
        F.expr("max_by(status, position) FILTER (WHERE status IS NOT NULL)").alias("status"),
        F.expr("max_by(worker, position) FILTER (WHERE worker IS NOT NULL)").alias("worker"),
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "builds.jsonl"
        file.write_text(
            '{"id": "b1", "started_at": "09:00", "status": "running", "worker": "w1"}\n'
            '{"id": "b2", "started_at": "09:05", "status": "running"}\n'
            '{"id": "b1", "started_at": "09:10", "status": "done"}\n'
        )
        spark = start(Spark())
        for row in latest(spark, file).orderBy("id").collect():
            print(f"{row['id']} began at {row['started_at']} and is {row['status']} ({row['worker']})")
        spark.stop()


if __name__ == "__main__":
    main()
