from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.frames import assert_rows, at, events
from queueyard.pipeline.gold.throughput import throughput
from queueyard.pipeline.schemas import THROUGHPUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAIL = {"system": "panqueue", "source": "redis", "queue": "mail"}
_NONE = dict.fromkeys(("queued", "started", "succeeded", "failed", "conflicted", "canceled"), 0)


def test_each_event_counts_once_in_its_minute_its_hour_and_its_day(spark: SparkSession) -> None:
    told = events(
        spark,
        {"at": at("9:00:01"), "kind": "queued"},
        {"at": at("9:00:59.999999"), "kind": "started"},
        {"at": at("9:01:00"), "kind": "succeeded"},
        {"at": at("9:01:30"), "kind": "queued", "item": "2"},
        {"at": at("9:01:31"), "kind": "progressed", "item": "2"},
        {"at": at("11:00"), "kind": "failed", "item": "2"},
    )

    found = throughput(events=told)

    mail = _MAIL | _NONE
    assert_rows(
        found,
        THROUGHPUT,
        mail | {"grain": "minute", "bucket_at": at("9:00"), "queued": 1, "started": 1},
        mail | {"grain": "minute", "bucket_at": at("9:01"), "queued": 1, "succeeded": 1},
        mail | {"grain": "minute", "bucket_at": at("11:00"), "failed": 1},
        mail | {"grain": "hour", "bucket_at": at("9:00"), "queued": 2, "started": 1, "succeeded": 1},
        mail | {"grain": "hour", "bucket_at": at("11:00"), "failed": 1},
        mail | {"grain": "day", "bucket_at": at("0:00"), "queued": 2, "started": 1, "succeeded": 1, "failed": 1},
    )


def test_the_single_ops_of_a_batch_are_not_items_of_their_own(spark: SparkSession) -> None:
    ops = {"system": "ops", "source": "server", "queue": "notes", "at": at("9:00")}
    told = events(
        spark,
        ops | {"item": "r1:1", "kind": "succeeded"},
        ops | {"item": "r1:1:op-000001", "kind": "succeeded"},
        ops | {"item": "r1:1:op-000002", "kind": "conflicted"},
    )

    found = throughput(events=told).where("grain = 'day'")

    queue = {"system": "ops", "source": "server", "queue": "notes"}
    assert_rows(found, THROUGHPUT, queue | _NONE | {"grain": "day", "bucket_at": at("0:00"), "succeeded": 1})
