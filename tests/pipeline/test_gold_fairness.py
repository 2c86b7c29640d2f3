from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from pipeline.frames import assert_rows, at, attempts
from queueyard.pipeline.gold.fairness import LONGEST_WAIT_DAYS, fairness
from queueyard.pipeline.schemas import FAIRNESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAIL = {"system": "panqueue", "source": "redis", "queue": "mail"}


def test_the_index_is_over_starts_and_over_run_time(spark: SparkSession) -> None:
    known = attempts(
        spark,
        {"group": "a", "queued_at": at("9:00"), "started_at": at("9:00"), "finished_at": at("9:00:10")},
        {"group": "a", "queued_at": at("9:00"), "started_at": at("9:01"), "finished_at": at("9:01:20")},
        {"group": "b", "queued_at": at("9:00"), "started_at": at("9:02"), "finished_at": at("9:02:10")},
        {"queued_at": at("9:00"), "started_at": at("9:03"), "finished_at": at("9:59")},
    )

    found = fairness(attempts=known)

    jains = {"jain_services": 3**2 / (2 * (2**2 + 1**2)), "jain_run": 40**2 / (2 * (30**2 + 10**2))}
    window = _MAIL | {"groups": 2, "services": 3, "run_s": 40.0} | jains
    assert_rows(
        found,
        FAIRNESS,
        window | {"grain": "hour", "bucket_at": at("9:00")},
        window | {"grain": "day", "bucket_at": at("0:00")},
    )


def test_a_group_that_only_waits_counts_with_nothing(spark: SparkSession) -> None:
    known = attempts(
        spark,
        {"group": "fed", "queued_at": at("9:10"), "started_at": at("9:20"), "finished_at": at("9:30")},
        {"group": "fed", "queued_at": at("10:10"), "started_at": at("10:20"), "finished_at": at("10:30")},
        {"group": "starved", "queued_at": at("9:50")},
        {"group": "gone", "queued_at": at("9:00"), "finished_at": at("9:40"), "outcome": "canceled"},
    )

    found = fairness(attempts=known)

    alone = _MAIL | {"services": 1, "run_s": 600.0}
    third, half = {"jain_services": 1 / 3, "jain_run": 1 / 3}, {"jain_services": 0.5, "jain_run": 0.5}
    assert_rows(
        found,
        FAIRNESS,
        alone | {"grain": "hour", "bucket_at": at("9:00"), "groups": 3} | third,
        alone | {"grain": "hour", "bucket_at": at("10:00"), "groups": 2} | half,
        _MAIL | {"grain": "day", "bucket_at": at("0:00"), "groups": 3, "services": 2, "run_s": 1200.0} | third,
    )


def test_an_attempt_waits_until_the_last_that_is_known_of_its_queue_be_it_an_end_alone(spark: SparkSession) -> None:
    known = attempts(
        spark,
        {"group": "waits", "queued_at": at("9:00")},
        {"group": "gone", "finished_at": at("12:00"), "outcome": "canceled"},
    )

    hours = fairness(attempts=known).where("grain = 'hour'").orderBy("bucket_at").collect()

    assert [(row["bucket_at"].hour, row["groups"]) for row in hours] == [(9, 1), (10, 1), (11, 1), (12, 1)]


def test_an_hour_in_which_nobody_is_served_has_no_index(spark: SparkSession) -> None:
    known = attempts(spark, {"group": "a", "queued_at": at("9:59"), "started_at": at("10:01")})

    found = fairness(attempts=known).where("grain = 'hour'")

    assert_rows(
        found,
        FAIRNESS,
        _MAIL | {"grain": "hour", "bucket_at": at("9:00"), "groups": 1, "services": 0, "run_s": 0.0},
        _MAIL
        | {"grain": "hour", "bucket_at": at("10:00"), "groups": 1, "services": 1, "run_s": 0.0, "jain_services": 1.0},
    )


def test_a_clock_in_the_far_future_does_not_fill_the_table(spark: SparkSession) -> None:
    known = attempts(
        spark,
        {"group": "waits", "queued_at": at("9:00")},
        {
            "group": "late",
            "queued_at": at("9:00", day=date(2999, 1, 1)),
            "started_at": at("9:00", day=date(2999, 1, 1)),
        },
    )

    hours = fairness(attempts=known).where(F.col("grain") == "hour").count()

    assert hours == LONGEST_WAIT_DAYS * 24 + 2


def test_squares_of_long_run_times_do_not_overflow(spark: SparkSession) -> None:
    year_later = date(2027, 1, 5)
    known = attempts(
        spark,
        *[
            {"group": group, "started_at": at("9:00"), "finished_at": at("9:00", day=year_later)}
            for group in ("a", "b", "c")
        ],
    )

    rows = fairness(attempts=known).where("grain = 'hour'").collect()

    assert [(row["groups"], row["jain_run"]) for row in rows] == [(3, 1.0)]


def test_run_times_whose_squares_no_number_holds_have_no_index(spark: SparkSession) -> None:
    first, last = at("9:00", day=date(2, 1, 1)), at("9:00", day=date(9999, 12, 31))
    known = attempts(spark, *[{"group": "a", "started_at": first, "finished_at": last}] * 40)

    rows = fairness(attempts=known).where("grain = 'hour'").collect()

    run_s = 40 * (last - first).total_seconds()
    assert [(row["run_s"], row["jain_services"], row["jain_run"]) for row in rows] == [(run_s, 1.0, None)]
