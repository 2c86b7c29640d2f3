from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.frames import DAY, assert_rows, at, attempts, events
from queueyard.pipeline.gold.summary import summary
from queueyard.pipeline.schemas import SUMMARY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NONE: dict[str, Any] = dict.fromkeys(
    ("queued", "started", "succeeded", "failed", "conflicted", "canceled", "retried", "stalled"), 0
)
_NONE |= {"day": DAY, "is_exact": True}


def test_a_day_of_a_system_is_one_row(spark: SparkSession) -> None:
    told = events(
        spark,
        {"at": at("9:00"), "kind": "queued", "item": "1"},
        {"at": at("9:01"), "kind": "started", "item": "1"},
        {"at": at("9:03"), "kind": "succeeded", "item": "1"},
        {"at": at("9:03"), "kind": "failed", "item": "1", "queue": "other"},
        {"at": at("9:04"), "kind": "read", "item": "m", "system": "queen", "source": "repo", "queue": "messages"},
    )
    known = attempts(
        spark,
        {"queued_at": at("9:00"), "started_at": at("9:01"), "finished_at": at("9:03")},
        {"queue": "other", "queued_at": at("9:00"), "started_at": at("9:02"), "finished_at": at("9:03")},
    )

    found = summary(events=told, attempts=known)

    assert_rows(
        found,
        SUMMARY,
        _NONE
        | {"system": "panqueue", "sources": 1, "queues": 2, "items": 2, "events": 4}
        | {"queued": 1, "started": 1, "succeeded": 1, "failed": 1, "success_rate": 0.5}
        | {"wait_p50_s": 60.0, "wait_p95_s": 120.0, "run_p50_s": 60.0, "run_p95_s": 120.0},
        _NONE | {"system": "queen", "sources": 1, "queues": 1, "items": 1, "events": 1},
    )
