"""A file of JSON lines grows, and a Spark stream of your own follows it: no line twice, none half, none lost.

Run it anywhere: python examples/pipeline_growing_file.py
It needs the extra `pipeline` and, where there is no Java, `embedded`.
"""

from __future__ import annotations

from pathlib import Path
import tempfile

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of PySpark's readers expect

from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.sources.spans import Origin

FIELDS = "id string, status string"


def follow(spark: SparkSession, file: Path, folder: Path) -> None:
    """Take what is new since the last call, as the checkpoint knows it."""
    origins = msgspec.json.encode([Origin(stream="builds", place="here", path=str(file))]).decode()
    lines = (
        spark.readStream.format("queueyard_lines")
        .schema(f"position bigint, record struct<{FIELDS}>, rest string")
        .option("origins", origins)
        .load()
    )
    # What the source does not read by itself is left to Spark, as a text.
    record = F.coalesce("record", F.from_json("rest", FIELDS)).alias("record")
    query = (
        lines.select("position", record)
        .select("position", "record.*")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination(60)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "builds.jsonl"
        spark = start(Spark())

        file.write_text('{"id": "b1", "status": "queued"}\n{"id": "b2", "sta')
        follow(spark, file, folder)
        with file.open("a") as more:
            more.write('tus": "queued"}\n{"id": 3, "status": "an id that is no text"}\n')
        follow(spark, file, folder)

        for row in spark.read.parquet(str(folder / "rows")).orderBy("position").collect():
            print(f"at byte {row['position']}: {row['id']} is {row['status']}")
        spark.stop()


if __name__ == "__main__":
    main()
