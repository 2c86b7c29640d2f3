"""Items, attempts and files: what is true now, from events and changes in any number of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.frames import at
from pipeline.records import lines
from queueyard.pipeline import schemas
from queueyard.pipeline.silver import attempts, files, items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WHOSE = {"system": "panqueue", "source": "redis", "queue": "mail"}
_STORY = (
    {"id": "1", "kind": "queued", "at": at("9:00"), "group": "tenant"},
    {"id": "2", "kind": "started", "at": at("9:01"), "actor": "w1"},
    {"id": "3", "kind": "stalled", "at": at("9:02")},
    {"id": "4", "kind": "started", "at": at("9:03"), "actor": "w2"},
    {"id": "5", "kind": "retried", "at": at("9:04"), "attempt": 2, "reason": "boom"},
    {"id": "6", "kind": "started", "at": at("9:05"), "attempt": 2},
    {"id": "7", "kind": "succeeded", "at": at("9:06"), "attempt": 2, "data": '{"duration_ms": 60000}'},
)
_FIRST = (at("9:00"), at("9:03"), at("9:04"), "failed", "boom", 1, None)
_SECOND = (at("9:04"), at("9:05"), at("9:06"), "succeeded", None, 0, 60000)


def test_an_item_is_what_its_last_event_says(spark: SparkSession) -> None:
    found = items.merged(items.of_events(_events(spark, *_STORY)))

    (row,) = found.collect()
    assert (row["last_kind"], row["last_id"], row["attempts"], row["events"]) == ("succeeded", "7", 2, 7)
    assert (row["first_at"], row["last_at"], row["group"]) == (_naive("9:00"), _naive("9:06"), "tenant")


def test_an_item_is_the_same_however_its_events_are_cut_into_batches(spark: SparkSession) -> None:
    late_first = items.of_events(_events(spark, *_STORY[4:])).unionByName(items.of_events(_events(spark, *_STORY[:4])))

    found = items.merged(late_first)

    whole = items.merged(items.of_events(_events(spark, *_STORY)))
    assert found.drop("batch").collect() == whole.drop("batch").collect()


def test_an_attempt_ends_when_the_next_one_is_asked_for(spark: SparkSession) -> None:
    found = attempts.view(attempts.of_events(_events(spark, *_STORY)))

    assert _tries(found) == [_FIRST, _SECOND]


def test_attempts_are_the_same_however_their_events_are_cut_into_batches(spark: SparkSession) -> None:
    for cut in range(1, len(_STORY)):
        parts = attempts.of_events(_events(spark, *_STORY[cut:])).unionByName(
            attempts.of_events(_events(spark, *_STORY[:cut]))
        )

        assert _tries(attempts.view(parts)) == [_FIRST, _SECOND], f"cut at {cut}"


def test_an_item_that_begins_as_a_second_attempt_has_no_first(spark: SparkSession) -> None:
    retried = {"id": "1", "kind": "retried", "at": at("9:00"), "attempt": 2}

    found = attempts.view(attempts.of_events(_events(spark, retried)))

    assert [row["attempt"] for row in found.collect()] == [2]


def test_messages_and_reservations_are_not_tried(spark: SparkSession) -> None:
    whose = {"system": "queen", "source": "repo"}
    told = _events(
        spark,
        {"id": "1", "kind": "queued", "at": at("9:00"), **whose, "queue": "messages"},
        {"id": "2", "kind": "started", "at": at("9:00"), **whose, "queue": "reservations"},
        {"id": "3", "kind": "started", "at": at("9:00"), **whose, "queue": "assignments"},
    )

    found = attempts.view(attempts.of_events(told))

    assert [row["queue"] for row in found.collect()] == ["assignments"]


def test_an_attempt_that_was_handed_back_and_started_again_has_not_ended(spark: SparkSession) -> None:
    story = (
        {"id": "1", "kind": "started", "at": at("9:00")},
        {"id": "2", "kind": "released", "at": at("9:10"), "reason": "the daemon stops", "data": '{"duration_ms": 7}'},
        {"id": "3", "kind": "started", "at": at("9:20")},
    )
    retried = {"id": "4", "kind": "retried", "at": at("9:30"), "attempt": 2, "reason": "boom"}

    running = attempts.view(attempts.of_events(_events(spark, *story)))
    superseded = attempts.view(attempts.of_events(_events(spark, *story, retried))).where("attempt = 1")

    assert _tries(running) == [(None, at("9:20"), None, None, None, 0, None)]
    assert _tries(superseded) == [(None, at("9:20"), at("9:30"), "failed", "boom", 0, None)]


def test_an_assignment_that_was_released_has_ended_whatever_the_clocks_say(spark: SparkSession) -> None:
    whose = {"system": "queen", "source": "repo", "queue": "assignments"}
    told = _events(
        spark,
        {"id": "1", "kind": "started", "at": at("9:10"), **whose},
        {"id": "2", "kind": "released", "at": at("9:00"), **whose},
    )

    found = attempts.view(attempts.of_events(told))

    assert _tries(found) == [(None, at("9:10"), at("9:00"), "released", None, 0, None)]


def test_of_two_that_ask_for_the_next_attempt_at_once_the_same_one_gives_the_reason(spark: SparkSession) -> None:
    asked = [
        {"id": str(number), "kind": "retried", "at": at("9:04"), "attempt": 2, "reason": reason}
        for number, reason in enumerate(("late", "boom"))
    ]

    for told in (asked, asked[::-1]):
        parts = [attempts.of_events(_events(spark, _STORY[1], one)) for one in told]
        first = attempts.view(parts[0].unionByName(parts[1]).coalesce(1)).where("attempt = 1")

        assert [row["reason"] for row in first.collect()] == ["boom"]


def test_a_length_that_is_no_whole_number_is_not_known(spark: SparkSession) -> None:
    wrong = ('{"duration_ms": 12.5}', '{"duration_ms": "fast"}', '{"duration_ms": 1e30}', None)
    ends = [
        {"id": str(number), "kind": "released", "at": at("9:00"), "attempt": number, "system": "jjq", "data": data}
        for number, data in enumerate(wrong, start=1)
    ]

    found = attempts.view(attempts.of_events(_events(spark, *ends)))

    assert [(row["duration_ms"], row["wasted_ms"]) for row in found.collect()] == [(None, 0)] * 4


def test_more_waste_than_a_long_holds_is_the_most_that_it_holds(spark: SparkSession) -> None:
    most = 2**63 - 1
    thrown_away = {"kind": "released", "at": at("9:00"), "system": "jjq", "data": f'{{"duration_ms": {most}}}'}
    told = [_events(spark, {"id": str(number), **thrown_away}) for number in range(3)]

    parts = attempts.of_events(told[0].unionByName(told[1])).unionByName(attempts.of_events(told[2]))

    assert [row["wasted_ms"] for row in attempts.view(parts).collect()] == [most]


def test_a_file_is_its_newest_version(spark: SparkSession) -> None:
    common = {
        "space": "docs",
        "baseVersion": 0,
        "requestId": "r",
        "batchIndex": 0,
        "acceptedAt": "2026-01-05T09:00:00Z",
    }
    feed = lines(
        spark,
        "ops.changes",
        {**common, "seq": 1, "op": "u", "fileId": "a", "version": 1, "serverPath": "a.md", "size": 3, "opId": "1"},
        {**common, "seq": 2, "op": "u", "fileId": "a", "version": 2, "serverPath": "b.md", "size": 5, "opId": "2"},
        {**common, "seq": 2, "op": "u", "fileId": "a", "version": 2, "serverPath": "b.md", "size": 5, "opId": "2"},
        {**common, "seq": 3, "op": "d", "fileId": "c", "version": 4, "serverPath": "c.md", "opId": "3"},
    )
    versions = files.distinct_versions(files.versions_of(feed))

    found = files.merged(files.of_versions(versions))

    assert versions.count() == 3
    assert sorted(
        (row["file"], row["version"], row["path"], row["bytes"], row["is_deleted"]) for row in found.collect()
    ) == [
        ("a", 2, "b.md", 5, False),
        ("c", 4, "c.md", 0, True),
    ]


def _events(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    names = schemas.EVENTS.schema.fieldNames()
    known = [{**_WHOSE, "item": "j1", "attempt": 1, "batch": 0, **row} for row in rows]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in known], schemas.EVENTS.schema)


def _tries(found: DataFrame) -> list[tuple[Any, ...]]:
    rows = found.orderBy("attempt").collect()
    return [
        (
            *(None if row[name] is None else row[name].replace(tzinfo=at("0:00").tzinfo) for name in _TIMES),
            row["outcome"],
            row["reason"],
            row["stalls"],
            row["duration_ms"],
        )
        for row in rows
    ]


def _naive(clock: str) -> Any:
    return at(clock).replace(tzinfo=None)


_TIMES = ("queued_at", "started_at", "finished_at")
