"""A text is a time where the kernel calls it one: the kernel itself is the truth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.pipeline.moments import moment_sql
from queueyard.pipeline.streams import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEXTS = (
    "2026-01-05T09:00:00Z",
    "2026-01-05 09:00:00.5",
    " 2026-01-05T09:00:00.123456789+0530 ",
    "2026-01-05T09:00:00 -05:30",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59+05:00",
    "9999-12-31T23:59:59-05:00",
    "10000-01-01T00:00:00Z",
    "+2026-01-05T09:00:00Z",
    "0000-01-01T00:00:00Z",
    "2026-01-05T09:00:00 Europe/Rome",
    "2026-02-30T09:00:00Z",
    "2026-01-05",
    "2026",
    "12:30:00",
    "now",
    "",
)


def test_spark_reads_the_times_that_the_kernel_reads_and_no_others(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in _TEXTS], "text string")

    rows = frame.select("text", F.unix_micros(moment("text")), F.unix_micros(F.expr(moment_sql("text")))).collect()

    wanted = [(text, _micros(text), _micros(text)) for text in _TEXTS]
    assert [tuple(row) for row in rows] == wanted


def test_the_year_in_which_go_says_that_there_is_no_time_is_none(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("0001-01-01T00:00:00Z",), ("0001-01-01T00:00:00+05:00",)], "text string")

    found = frame.select(moment("text").alias("at")).collect()

    assert [row["at"] for row in found] == [None, None]


def _micros(text: str) -> int | None:
    try:
        span = from_rfc3339(text) - datetime(1970, 1, 1, tzinfo=UTC)
    except BadTime:
        return None
    return (span.days * 86_400 + span.seconds) * 1_000_000 + span.microseconds
