"""What the log knows of files keeps most of a table from being read, and never changes what is found."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import functions as F
from pyspark.sql import types as T
import pytest

from queueyard.pipeline.gold.spans import may_reach
from queueyard.pipeline.schemas import TableSpec
from queueyard.pipeline.streams import moment
from queueyard.pipeline.tables import Table, is_near

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = T.StructType(
    [
        T.StructField("source", T.StringType()),
        T.StructField("id", T.StringType()),
        T.StructField("batch", T.LongType()),
    ]
)
_KEY = ("source", "id")
_Row = tuple[str, str, int]


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    return Table(spark, str(tmp_path), TableSpec(name="silver/things", schema=_SCHEMA, ranged_by="id"))


def test_a_file_is_committed_with_its_first_and_last_batch_and_id(spark: SparkSession, table: Table) -> None:
    _commit(spark, table, [("a", "q3", 4), ("b", "q1", 2), ("a", "é", 3)], batch=4)

    [file] = table.log.files()

    assert (file.since, file.upto) == (2, 4)
    assert (file.least["id"], file.most["id"]) == ("q1", "é")
    # Others read it from the log, too.
    assert DeltaTable(table.address).to_pyarrow_dataset().count_rows() == 3


def test_a_batch_without_rows_is_committed_without_a_file(spark: SparkSession, table: Table) -> None:
    _commit(spark, table, [("a", "q1", 0)], batch=0)
    _commit(spark, table, [], batch=1)

    assert table.log.batch() == 1
    assert [(file.since, file.upto) for file in table.log.files()] == [(0, 0)]
    assert _rows(table.since(0)) == []
    assert _rows(table.touched(_KEY, 0)) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_what_came_and_what_it_belongs_to_is_found_wherever_it_lies(
    spark: SparkSession, table: Table, seed: int
) -> None:
    chance = Random(seed)
    rows = [(chance.choice("ab"), f"q{chance.randrange(12)}", chance.randrange(5)) for _ in range(30)]
    # Files overlap in their batches, as those do that were compacted.
    for first, last in ((0, 1), (2, 2), (3, 4)):
        _commit(spark, table, [row for row in rows if first <= row[2] <= last], batch=last)

    for batch in range(-1, 5):
        newer = [row for row in rows if row[2] > batch]
        keys = {row[:2] for row in newer}
        assert _rows(table.since(batch)) == sorted(newer)
        assert _rows(table.touched(_KEY, batch)) == sorted(row for row in rows if row[:2] in keys)


def test_rows_far_from_what_came_are_not_read(spark: SparkSession, table: Table) -> None:
    _commit(spark, table, [("a", f"q{number:02}", 0) for number in range(50)], batch=0)
    _commit(spark, table, [("a", "q30", 1), ("a", "q32", 1)], batch=1)

    plan = _plan(table.touched(_KEY, 0))

    assert "GreaterThanOrEqual(id,q30), LessThanOrEqual(id,q32)" in plan
    # The number of a batch would make a new plan of every one.
    assert "batch" not in _plan(table.since(0).select("id"))


def test_an_id_too_long_for_the_log_is_found_all_the_same(spark: SparkSession, table: Table) -> None:
    long = "q" * 10_000
    _commit(spark, table, [("a", "q1", 0), ("a", long, 0)], batch=0)
    _commit(spark, table, [("a", long, 1)], batch=1)

    assert all(file.most.get("id") is None for file in table.log.files())
    assert _rows(table.touched(_KEY, 0)) == [("a", long, 0), ("a", long, 1)]


def test_near_is_from_the_least_to_the_greatest(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", f"q{number}", 0) for number in range(6)], _SCHEMA)
    some = rows.where(F.col("id").isin("q2", "q4"))

    assert [row[1] for row in _rows(rows.where(is_near("id", some)))] == ["q2", "q3", "q4"]
    assert _rows(rows.where(is_near("id", rows.limit(0)))) == []


@pytest.mark.parametrize("day", ["2026-01-01", "2026-03-02", "2026-10-10"])
def test_a_text_that_means_a_time_behind_the_day_is_never_passed_over(spark: SparkSession, day: str) -> None:
    texts = spark.createDataFrame([(one,) for one in _times_of_all_kinds()], "text string")
    first = F.lit(day).cast("date")
    judged = texts.select("text", (moment("text") >= first).alias("is_so"), may_reach(first, "text").alias("may_be"))

    assert [row["text"] for row in judged.where("is_so and not may_be").collect()] == []
    # And most others are passed over.
    others = judged.where("not is_so")
    assert others.where("may_be").count() < others.count() / 2


def _times_of_all_kinds() -> Iterable[str]:
    chance = Random(7)
    for _ in range(3_000):
        year, month, day = chance.choice([1999, 2025, 2026, 2026, 2027]), chance.randint(1, 12), chance.randint(1, 28)
        hour, offset = chance.randrange(24), chance.choice(["Z", "+14:00", "-12:00", "+18:00", "-18:00", "+0530", ""])
        narrow = chance.random() < 0.3
        date = f"{year}-{month}-{day}" if narrow else f"{year}-{month:02}-{day:02}"
        yield f"{date}{chance.choice('T ')}{hour:02}:{chance.randrange(60):02}:00{offset}"
    yield from ("10000-01-01T00:00:00Z", "+12026-01-01", " 2026-12-01T00:00:00Z", "\t2027-01-01", "0999-01-01", "2027")
    yield from ("", "soon", "T23:00:00", "2026-11-01\n")


def _commit(spark: SparkSession, table: Table, rows: list[_Row], *, batch: int) -> None:
    table.commit(table.write(spark.createDataFrame(rows, _SCHEMA).coalesce(1)), batch=batch)


def _rows(frame: DataFrame) -> list[_Row]:
    return sorted((row["source"], row["id"], row["batch"]) for row in frame.collect())


def _plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())
