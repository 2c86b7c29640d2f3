from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from pipeline.frames import DAY, assert_rows, at, events
from queueyard.pipeline.gold.retries import retries
from queueyard.pipeline.schemas import RETRIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_retries_and_stalls_are_counted_beside_the_starts_of_their_day(spark: SparkSession) -> None:
    tomorrow = date(2026, 1, 6)
    told = events(
        spark,
        {"at": at("9:00"), "kind": "started"},
        {"at": at("9:01"), "kind": "retried", "attempt": 2},
        {"at": at("9:02"), "kind": "started", "attempt": 2},
        {"at": at("9:03"), "kind": "retried", "attempt": 3},
        {"at": at("9:04"), "kind": "queued", "attempt": 9},
        {"at": at("0:00", day=tomorrow), "kind": "stalled", "attempt": 3},
    )

    found = retries(events=told)

    mail = {"system": "panqueue", "source": "redis", "queue": "mail", "released": 0}
    assert_rows(
        found,
        RETRIES,
        mail
        | {"day": DAY, "started": 2, "retried": 2, "stalled": 0, "retried_items": 1, "highest_attempt": 3}
        | {"retry_rate": 1.0, "stall_rate": 0.0},
        mail | {"day": tomorrow, "started": 0, "retried": 0, "stalled": 1, "retried_items": 0, "highest_attempt": 3},
    )
