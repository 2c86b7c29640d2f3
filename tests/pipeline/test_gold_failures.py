from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline import oracle_gold
from pipeline.frames import DAY, assert_rows, at, events
from queueyard.pipeline.gold.failures import failures, normalised
from queueyard.pipeline.schemas import FAILURES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAIL = {"system": "panqueue", "source": "redis", "queue": "mail", "day": DAY}


def test_equal_faults_count_as_one_per_queue_day_and_kind(spark: SparkSession) -> None:
    told = events(
        spark,
        {"at": at("9:00"), "kind": "failed", "item": "1", "reason": "timed out after 30 s"},
        {"at": at("9:05"), "kind": "failed", "item": "2", "reason": "timed out after 4.5 s"},
        {"at": at("9:06"), "kind": "failed", "item": "2", "reason": "timed out after 31 s"},
        {"at": at("9:07"), "kind": "retried", "item": "2", "reason": "timed out after 31 s"},
        {"at": at("9:08"), "kind": "conflicted", "item": "3"},
        {"at": at("9:09"), "kind": "succeeded", "item": "4", "reason": "timed out after 1 s"},
    )

    found = failures(events=told)

    timed_out = _MAIL | {"reason": "timed out after <n> s"}
    assert_rows(
        found,
        FAILURES,
        timed_out
        | {"kind": "failed", "failures": 3, "items": 2, "example": "timed out after 30 s"}
        | {"first_at": at("9:00"), "last_at": at("9:06")},
        timed_out
        | {"kind": "retried", "failures": 1, "items": 1, "example": "timed out after 31 s"}
        | {"first_at": at("9:07"), "last_at": at("9:07")},
        _MAIL
        | {"kind": "conflicted", "reason": "(none)", "failures": 1, "items": 1}
        | {"first_at": at("9:08"), "last_at": at("9:08")},
    )


_REASONS = {
    "exit code 137": "exit code <n>",
    "worker3 is gone since 2026-01-05T09:00:00.123Z": "worker<n> is gone since <time>",
    "no file 'a b.txt' in \"tmp\", can't go on": "no file <text> in <text>, can't go on",
    "cannot read /var/lib/x.json: permission denied": "cannot read <path>: permission denied",
    "src/ui/theme.css and ./a/b differ": "<path> and <path> differ",
    "run 01KA2B3C4D5E6F7G8H9JKMNPQR was lost": "run <id> was lost",
    "key 6f9619ff-8b86-d011-b42d-00c04fc964ff is old": "key <id> is old",
    "commit 3f2a9c1 at 0xdeadbeef": "commit <hex> at <hex>",
    "a defaced facade": "a defaced facade",
    "GET http://127.0.0.1:8080/a?b=1 said 503": "GET <url> said <n>",
    "  two\n\tlines ": "two lines",
    "": "(none)",
}


def test_what_varies_in_a_reason_has_a_placeholder(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(reason,) for reason in _REASONS], "reason string")

    rows = frame.select("reason", normalised(F.col("reason")).alias("found")).collect()

    assert {row["reason"]: row["found"] for row in rows} == _REASONS
    assert {reason: oracle_gold.normalised(reason) for reason in _REASONS} == _REASONS


def test_a_very_long_reason_is_cut(spark: SparkSession) -> None:
    many = ",".join(map(str, range(20_000)))
    reasons = ("x" * 5_000, "1," * 5_000, f"'{many}'", many, None)
    frame = spark.createDataFrame([(reason,) for reason in reasons], "reason string")

    rows = frame.select(normalised(F.col("reason")).alias("found")).collect()

    assert [row["found"] for row in rows] == ["x" * 200, "<n>,", "'<n>", "<n>", "(none)"]
