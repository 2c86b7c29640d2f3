from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from pipeline.frames import DAY, assert_rows, at, events
from queueyard.pipeline.gold.landing import landing
from queueyard.pipeline.schemas import LANDING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRUNK = {"source": "repo", "queue": "main"}
_NONE: dict[str, Any] = dict.fromkeys(
    ("landed", "failed", "conflicted", "timed", "checks", "wasted_checks", "reused_checks"), 0
)
_NONE |= {"wasted_s": 0.0, "is_exact": True}


def _told(clock: str, item: str, kind: str, **data: Any) -> dict[str, Any]:
    return _TRUNK | {"system": "jjq", "at": at(clock), "item": item, "kind": kind, "data": data}


def test_the_time_from_push_to_trunk_and_what_checks_were_worth(spark: SparkSession) -> None:
    told = events(
        spark,
        _told("9:00", "1", "queued"),
        _told("9:00", "2", "queued"),
        _told("9:01", "1", "released", duration_ms=1_500),
        _told("9:05", "1", "succeeded", duration_ms=60_000),
        _told("9:10", "2", "succeeded", duration_ms=0, reused=True),
        _told("9:20", "3", "failed", duration_ms=2_000),
    )

    found = landing(events=told)

    assert_rows(
        found,
        LANDING,
        _TRUNK
        | _NONE
        | {"day": DAY, "landed": 2, "failed": 1, "timed": 2}
        | {"land_mean_s": 450.0, "land_max_s": 600.0, "land_p50_s": 300.0, "land_p95_s": 600.0}
        | {"checks": 3, "wasted_checks": 1, "wasted_s": 1.5, "wasted_share": 1 / 3, "reused_checks": 1},
    )


def test_any_number_of_lost_milliseconds_adds_up(spark: SparkSession) -> None:
    most = 2**63 - 1
    told = events(spark, *[_told("9:00", item, "released", duration_ms=most) for item in "123"])

    found = landing(events=told)

    wasted = {"checks": 3, "wasted_checks": 3, "wasted_s": 3 * most / 1000, "wasted_share": 1.0}
    assert_rows(found, LANDING, _TRUNK | _NONE | {"day": DAY} | wasted)


def test_a_change_counts_on_the_day_on_which_it_lands(spark: SparkSession) -> None:
    tomorrow = date(2026, 1, 6)
    told = events(
        spark,
        _told("23:59", "1", "queued"),
        _told("23:59", "2", "conflicted"),
        _told("0:01", "1", "succeeded") | {"at": at("0:01", day=tomorrow)},
        _told("0:02", "9", "succeeded") | {"at": at("0:02", day=tomorrow)},
        _told("0:03", "8", "succeeded") | {"system": "panqueue"},
    )

    found = landing(events=told)

    times = dict.fromkeys(("land_mean_s", "land_max_s", "land_p50_s", "land_p95_s"), 120.0)
    assert_rows(
        found,
        LANDING,
        _TRUNK | _NONE | {"day": DAY, "conflicted": 1},
        _TRUNK | _NONE | {"day": tomorrow, "landed": 2, "timed": 1} | times,
    )
