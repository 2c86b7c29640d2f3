"""What is measured on Spark, each role in a process of its own: ROLE ARGUMENTS. Starting the session is not counted.

Roles of ours use the session that `queueyard pipeline` starts. Those of Spark use one as it comes, with as much memory.
"""

from __future__ import annotations

from contextlib import contextmanager
import json
import os
from pathlib import Path
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as all of PySpark's readers expect
from pyspark.sql import types as T  # noqa: N812

from queueyard.kernel.events import System
from queueyard.kernel.output import Progress
from queueyard.pipeline.bronze.records import records_of
from queueyard.pipeline.run import run
from queueyard.pipeline.schemas import RECORD, RESERVATION, RESERVATIONS
from queueyard.pipeline.session import Spark, find_java, fit, start
from queueyard.pipeline.silver.folding import FOLD, folded, rows_of_read
from queueyard.pipeline.size import rows_ahead
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.sources.spans import Origin
from queueyard.pipeline.streams import STREAMS
from queueyard.pipeline.tables import Table
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place, open_yard

# A script has only its own folder on the path.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from pipeline_peers.lines import FILE, append_lines
from pipeline_peers.processes import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

_STREAM = "queen.reservations"
#: what is asked of our source: where a line stands, its fields, and its text where these do not tell all
_READ = T.StructType(
    [
        *(RECORD[name] for name in ("place", "generation", "position")),
        T.StructField("record", RESERVATION),
        T.StructField("rest", T.StringType()),
    ]
)
_EVERYTHING = 1 << 60
_MANY_ROWS = 1 << 30
_LONGEST_S = 3600


class _Timed(Progress):
    """When each step began."""

    def __init__(self) -> None:
        super().__init__("", 0, None)
        self.begun: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self.begun[name] = time.perf_counter()
        yield


def parse(spark: SparkSession, file: str) -> dict[str, float]:
    """Spark's own: every line is read and parsed, and nothing is done with it."""
    start = time.perf_counter()
    records = spark.read.text(file).select(F.from_json("value", RESERVATION).alias("record"))
    rows = records.agg(F.count("record")).collect()[0][0]
    return {"seconds": time.perf_counter() - start, "rows": rows}


def parse_file(spark: SparkSession, file: str) -> dict[str, float]:
    """The same by Spark's JSON source, which parses bytes and does not say where a line stands."""
    start = time.perf_counter()
    spark.read.schema(RESERVATION).json(file).write.format("noop").mode("overwrite").save()
    return {"seconds": time.perf_counter() - start}


def plain_fold(spark: SparkSession, file: str, target: str) -> dict[str, float]:
    """The latest state as anyone would write it: Spark's JSON source reads all of a file that nobody appends to."""
    start = time.perf_counter()
    lines = spark.read.schema(RESERVATION).json(file).withColumn("place", F.monotonically_increasing_id())
    latest = [
        F.expr(f"{'min_by' if name == 'created_at' else 'max_by'}({name}, place) FILTER (WHERE {name} IS NOT NULL)")
        for name in RESERVATION.fieldNames()
        if name != "id"
    ]
    lines.groupBy("id").agg(*latest).toDF(*RESERVATION.fieldNames()).write.parquet(target)
    return {"seconds": time.perf_counter() - start}


def fold(spark: SparkSession, yard: str, home: str) -> dict[str, float]:
    """Read by our source, which folds what stands together, folded by our fold, committed to a table of silver."""
    # Few rows of a task are about the same record by now: each goes straight to where its record is folded.
    spark.conf.set("spark.sql.execution.bypassPartialAggregation", "true")
    start = time.perf_counter()
    table = Table(spark, home, RESERVATIONS)
    found = plan(open_yard(Path(yard)).places, {}, most_bytes=_EVERYTHING)
    [read] = found.reads
    options = {**read.options, "fold": msgspec.json.encode(FOLD).decode()}
    lines = spark.read.format(read.format).options(**options).schema(_READ).load()
    rows = rows_of_read(lines.withColumn("batch", F.lit(0).cast("long")), RESERVATION)
    written = table.write(folded(rows, RESERVATION))
    table.commit(written, batch=0)
    return {"seconds": time.perf_counter() - start, "rows": written.rows}


def run_all(spark: SparkSession, yard: str, home: str) -> dict[str, float]:
    """What `queueyard pipeline run` does in its session, and when gold was there: quality comes last."""
    start = time.perf_counter()
    bar = _Timed()
    done = run(Warehouse(spark, home), open_yard(Path(yard)).places, bar=bar)
    return {"seconds": time.perf_counter() - start, "gold": bar.begun["quality"] - start, "rows": done.rows}


def fresh(spark: SparkSession, yard: str, home: str, python: str, gold: str, known: str, rounds: str) -> dict[str, Any]:
    """Everything, then after each hundredth that comes, as `--watch` goes on in its session; DuckDB takes turns."""
    file, more = Path(yard) / FILE, int(known) // 100
    whole = run_all(spark, yard, home)
    ours, theirs = [], []
    for number in range(int(rounds)):
        append_lines(file, more, first=int(known) + number * more)
        theirs.append(engine(Path(python), "duckdb-gold", file, Path(gold)).seconds)
        ours.append(run_all(spark, yard, home))
    return whole | {"ours": ours, "theirs": theirs}


def stream_of_spark(spark: SparkSession, file: str, target: str) -> dict[str, float]:
    """Spark's own file source."""
    lines = spark.readStream.schema(RESERVATION).json(str(Path(file).parent))
    return _streamed(lines, target)


def stream_of_ours(spark: SparkSession, file: str, target: str) -> dict[str, float]:
    """Our source, and the same columns in the same format."""
    origins = msgspec.json.encode([Origin(stream=_STREAM, place="here", path=file)]).decode()
    lines = spark.readStream.format("queueyard_lines").option("origins", origins).schema(_READ).load()
    record = F.coalesce("record", F.from_json("rest", RESERVATION)).alias("record")
    return _streamed(lines.select(record).select("record.*"), target)


def _streamed(rows: DataFrame, target: str) -> dict[str, float]:
    """All there is; called again with the same target it goes on from its checkpoint."""
    start = time.perf_counter()
    query = (
        rows.writeStream.format("parquet")
        # The session of ours would take another one, and it is the sources that are compared.
        .option("compression", "snappy")
        .option("checkpointLocation", f"{target}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{target}/rows")
    )
    query.awaitTermination(_LONGEST_S)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": rows.sparkSession.read.parquet(f"{target}/rows").count()}


def redis(spark: SparkSession, url: str, target: str) -> dict[str, float]:
    """Every entry of every stream of a server, with its fields as columns, batch after batch."""
    start = time.perf_counter()
    schema = STREAMS["panqueue.events"].schema
    note: dict[str, Any] = {}
    is_all = False
    while not is_all:
        found = plan([Place(system=System.PANQUEUE, at=url)], note, most_bytes=_EVERYTHING)
        entries = records_of(spark, found).select("file", "position", F.from_json("raw", schema).alias("record"))
        entries.select("file", "position", "record.*").write.mode("append").parquet(target)
        note, is_all = found.note, found.is_all
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "rows": spark.read.parquet(target).count()}


ROLES_OF_SPARK: dict[str, Callable[..., dict[str, float]]] = {
    "parse": parse,
    "parse-file": parse_file,
    "plain-fold": plain_fold,
    "stream-of-spark": stream_of_spark,
}
ROLES_OF_OURS: dict[str, Callable[..., dict[str, Any]]] = {
    "fold": fold,
    "run": run_all,
    "fresh": fresh,
    "stream-of-ours": stream_of_ours,
    "redis": redis,
}
#: those that go by the number of rows, as the command does
ROLES_OF_RUNS = ("run", "fresh")


def _session_of_spark() -> SparkSession:
    os.environ |= {"JAVA_HOME": str(find_java(os.environ)), "SPARK_LOCAL_IP": "127.0.0.1"}
    memory = Spark().driver_memory
    return SparkSession.builder.master("local[*]").config("spark.driver.memory", memory).getOrCreate()


def _session_for(words: list[str]) -> SparkSession:
    """As the command starts it; what else depends on the number of rows, a run sees to by itself."""
    yard, home, *_ = words
    return start(Spark(rows=rows_ahead(home, open_yard(Path(yard)).places)))


def _session_for_many() -> SparkSession:
    session = start(Spark(rows=_MANY_ROWS))
    fit(session, rows=_MANY_ROWS)
    return session


def main() -> None:
    role, *words = sys.argv[1:]
    if role in ROLES_OF_SPARK:
        session = _session_of_spark()
        said = ROLES_OF_SPARK[role](session, *words)
    else:
        session = _session_for(words) if role in ROLES_OF_RUNS else _session_for_many()
        said = ROLES_OF_OURS[role](session, *words)
    print(json.dumps(said))
    session.stop()


if __name__ == "__main__":
    main()
