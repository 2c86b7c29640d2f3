from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from pipeline.frames import DAY, assert_rows, at, events, view
from queueyard.pipeline.gold.sync import sync
from queueyard.pipeline.schemas import FILE_VERSIONS, SYNC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPACE = {"source": "server", "space": "notes"}
_NONE: dict[str, Any] = dict.fromkeys(
    ("batches", "applied", "conflicts", "rejected", "versions", "files_changed", "bytes"), 0
)
_NONE |= {"is_exact": True}


def _told(clock: str, item: str, kind: str, **data: Any) -> dict[str, Any]:
    base = {"system": "ops", "source": "server", "queue": "notes"}
    return base | {"at": at(clock), "item": item, "kind": kind, "data": data}


def test_the_lag_of_batches_and_what_their_answers_say(spark: SparkSession) -> None:
    told = events(
        spark,
        _told("9:00", "r1:1", "queued"),
        _told("9:00", "r1:2", "queued"),
        _told("9:00:02", "r1:1", "started"),
        _told("9:00:05", "r1:1", "succeeded", applied=2, conflict=1, rejected=1),
        _told("9:00:15", "r1:2", "succeeded", applied=4, conflict=0, rejected=0) | {"attempt": 2},
        _told("9:01", "r2:1", "queued"),
    )

    found = sync(events=told, file_versions=view(spark, FILE_VERSIONS))

    assert_rows(
        found,
        SYNC,
        _SPACE
        | _NONE
        | {"day": DAY, "batches": 2, "lag_mean_s": 10.0, "lag_max_s": 15.0, "lag_p50_s": 5.0, "lag_p95_s": 15.0}
        | {"applied": 6, "conflicts": 1, "rejected": 1, "conflict_rate": 1 / 8},
    )


def test_where_the_server_tells_each_op_its_word_goes_before_the_clients(spark: SparkSession) -> None:
    told = events(
        spark,
        _told("9:00", "r1:1", "queued"),
        _told("9:00:01", "r1:1", "succeeded", applied=1, conflict=0, rejected=0),
        _told("9:00:01", "r1:1:op-000001", "succeeded", bytes=10),
        _told("9:00:02", "r7:1:op-000001", "conflicted"),
        _told("9:00:02", "r7:1:op-000002", "failed"),
    )

    found = sync(events=told, file_versions=view(spark, FILE_VERSIONS))

    lag = dict.fromkeys(("lag_mean_s", "lag_max_s", "lag_p50_s", "lag_p95_s"), 1.0)
    counts = {"batches": 1, "applied": 1, "conflicts": 1, "rejected": 1, "conflict_rate": 1 / 3}
    assert_rows(found, SYNC, _SPACE | _NONE | {"day": DAY} | lag | counts)


def test_more_than_a_long_holds_is_the_most_that_it_holds(spark: SparkSession) -> None:
    most = 2**63 - 1
    told = events(
        spark,
        _told("9:00", "r1:1", "succeeded", applied=most, conflict=most, rejected=0),
        _told("9:01", "r1:2", "succeeded", applied=most, conflict=most, rejected=0),
    )
    one = _SPACE | {"version": 1, "bytes": most, "at": at("9:00")}
    versions = view(spark, FILE_VERSIONS, one | {"file": "f1", "seq": 1}, one | {"file": "f2", "seq": 2})

    found = sync(events=told, file_versions=versions)

    counts = {"batches": 2, "applied": most, "conflicts": most, "conflict_rate": 0.5}
    changed = {"versions": 2, "files_changed": 2, "bytes": most}
    assert_rows(found, SYNC, _SPACE | _NONE | {"day": DAY} | counts | changed)


def test_files_and_bytes_count_on_the_day_of_the_change(spark: SparkSession) -> None:
    tomorrow = date(2026, 1, 6)
    versions = view(
        spark,
        FILE_VERSIONS,
        _SPACE | {"file": "f1", "version": 1, "seq": 1, "bytes": 10, "at": at("9:00")},
        _SPACE | {"file": "f1", "version": 2, "seq": 2, "bytes": 12, "at": at("9:01")},
        _SPACE | {"file": "f2", "version": 1, "seq": 3, "bytes": 5, "at": at("9:02")},
        _SPACE | {"file": "f2", "version": 2, "seq": 4, "bytes": None, "at": at("9:03", day=tomorrow)},
    )

    found = sync(events=events(spark), file_versions=versions)

    assert_rows(
        found,
        SYNC,
        _SPACE | _NONE | {"day": DAY, "versions": 3, "files_changed": 2, "bytes": 27},
        _SPACE | _NONE | {"day": tomorrow, "versions": 1, "files_changed": 1, "bytes": 0},
    )
