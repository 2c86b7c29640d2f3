from __future__ import annotations

from datetime import date
import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
import pytest

from pipeline.frames import DAY, assert_rows, at, attempts
from queueyard.pipeline.gold.durations import durations
from queueyard.pipeline.gold.spans import EXACT_BELOW, percentiles_us
from queueyard.pipeline.schemas import DURATIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAIL = {"system": "panqueue", "source": "redis", "queue": "mail", "is_exact": True}
_SHARES = (0.5, 0.9, 0.95, 0.99)


def _row(measure: str, scope: str, values: tuple[float, ...], **more: object) -> dict[str, object]:
    """The row that plain Python computes."""
    ordered = sorted(map(float, values))
    picked = {f"p{round(share * 100)}_s": ordered[math.ceil(share * len(ordered)) - 1] for share in _SHARES}
    numbers = {"attempts": len(values), "mean_s": sum(values) / len(values), "max_s": ordered[-1]}
    return _MAIL | {"measure": measure, "scope": scope} | numbers | picked | more


def test_waits_and_runs_per_queue_group_and_day(spark: SparkSession) -> None:
    tomorrow = date(2026, 1, 6)
    known = attempts(
        spark,
        {"group": "a", "queued_at": at("9:00"), "started_at": at("9:01"), "finished_at": at("9:01:30")},
        {"group": "a", "queued_at": at("9:00"), "started_at": at("9:03"), "finished_at": at("0:00", day=tomorrow)},
        {"queued_at": at("9:00"), "started_at": at("9:00:00.5")},
        {"group": "b", "queued_at": at("9:00")},
    )

    found = durations(attempts=known)

    long_run_s = 14.95 * 3600
    assert_rows(
        found,
        DURATIONS,
        _row("wait", "queue", (60, 180, 0.5)),
        _row("wait", "group", (60, 180), group="a"),
        _row("wait", "day", (60, 180, 0.5), day=DAY),
        _row("run", "queue", (30, long_run_s)),
        _row("run", "group", (30, long_run_s), group="a"),
        _row("run", "day", (30,), day=DAY),
        _row("run", "day", (long_run_s,), day=tomorrow),
    )


def test_an_attempt_that_ends_before_it_begins_is_left_out(spark: SparkSession) -> None:
    known = attempts(
        spark,
        {"queued_at": at("9:00"), "started_at": at("8:59"), "finished_at": at("8:58")},
        {"queued_at": at("9:00"), "started_at": at("9:00"), "finished_at": at("9:00:01")},
    )

    found = durations(attempts=known).where("scope = 'queue'")

    assert_rows(found, DURATIONS, _row("wait", "queue", (0,)), _row("run", "queue", (1,)))


def test_any_number_of_years_has_a_mean(spark: SparkSession) -> None:
    first, last = at("0:00", day=date(2, 1, 1)), at("0:00", day=date(9999, 12, 31))
    known = attempts(spark, *[{"queued_at": first, "started_at": last}] * 40)

    found = durations(attempts=known).where("scope = 'queue'")

    assert_rows(found, DURATIONS, _row("wait", "queue", ((last - first).total_seconds(),) * 40))


@pytest.mark.parametrize("size", [EXACT_BELOW - 1, 20 * EXACT_BELOW])
def test_percentiles_are_exact_for_few_values_and_as_near_as_promised_for_many(spark: SparkSession, size: int) -> None:
    # Multiples of a number without a common factor: every rank once, in no order.
    values = spark.range(0, size, 1, 7).select((F.col("id") * 7919 % size).alias("value"))

    row = values.agg(percentiles_us("value", _SHARES).alias("found")).first()

    assert row is not None
    wanted = [math.ceil(share * size) - 1 for share in _SHARES]
    allowed = 0 if size < EXACT_BELOW else size / (2 * EXACT_BELOW)
    assert [abs(found - rank) <= allowed for found, rank in zip(row["found"], wanted, strict=True)] == [True] * 4


def test_a_group_of_many_values_says_that_it_is_not_exact(spark: SparkSession) -> None:
    start = F.timestamp_seconds(F.lit(1_700_000_000))
    known = (
        attempts(spark, {})
        .drop("queued_at", "started_at")
        .crossJoin(
            spark.range(EXACT_BELOW).select(
                start.alias("queued_at"), F.timestamp_seconds(F.lit(1_700_000_000) + F.col("id")).alias("started_at")
            )
        )
    )

    rows = durations(attempts=known).where("scope = 'queue'").collect()

    assert [(row["attempts"], row["is_exact"], row["max_s"]) for row in rows] == [(EXACT_BELOW, False, EXACT_BELOW - 1)]
