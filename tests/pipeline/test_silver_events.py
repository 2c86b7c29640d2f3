from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pipeline.records import lines
from queueyard.kernel.events import Kind, System, make_event
from queueyard.ops.events import change_events, refusal_events
from queueyard.ops.records import Change, Refusal
from queueyard.panqueue.events import event_from
from queueyard.pipeline.schemas import EVENT
from queueyard.pipeline.silver import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from queueyard.kernel.events import Event

_CHANGE = {
    "seq": 7,
    "space": "docs",
    "op": "u",
    "fileId": "f1",
    "version": 3,
    "baseVersion": 2,
    "serverPath": "a/ü.md",
    "size": 12,
    "requestId": "r1",
    "batchIndex": 0,
    "opId": "o1",
    "clientId": "laptop",
    "acceptedAt": "2026-01-05T09:30:00.25Z",
}
_REFUSAL = {
    "seq": 1,
    "space": "docs",
    "status": "conflict",
    "code": "version_conflict",
    "type": "upsert",
    "fileId": "f1",
    "serverPath": "a.md",
    "baseVersion": 1,
    "requestId": "r1",
    "batchIndex": 0,
    "opId": "o2",
    "at": "2026-01-05T09:30:00Z",
}


def test_a_line_of_a_journal_is_its_event(spark: SparkSession) -> None:
    event = make_event(
        datetime(2026, 1, 5, 9, 30, 0, 123456, tzinfo=UTC),
        system=System.JJQ,
        queue="main",
        item="000007",
        kind=Kind.FAILED,
        change="abc",
        source="/yard",
        reason="check failed",
        data={"exit_code": 1, "conflicts": ["a", "b"]},
    )

    found = events.of_journal(lines(spark, "jjq.events", msgspec.json.encode(event).decode()), "jjq.events")

    assert _told(found) == [_expected(event)]


def test_an_entry_of_a_stream_has_the_id_that_panqueue_gives_it(spark: SparkSession) -> None:
    fields = {"kind": "retried", "item": "j-1", "attempt": "2", "actor": "w1", "reason": "boom", "group": "tenant 1"}
    entry_id = "1767605400123-4"

    found = events.of_entries(lines(spark, "panqueue.events", {"id": entry_id, **fields}))

    event = event_from(entry_id, fields, source="/yard", queue="mail")
    assert event is not None
    assert _told(found) == [_expected(event)]


def test_an_entry_whose_id_is_no_time_has_none(spark: SparkSession) -> None:
    ids = ("99999999999999999999-0", "253402300800000-0", "1767605400123-4")
    entries = lines(spark, "panqueue.events", *[{"id": one, "kind": "queued", "item": "1"} for one in ids])

    found = events.distinct(events.of_entries(entries), batch=0)

    assert [str(row["day"]) for row in found.collect()] == ["2026-01-05"]


def test_a_change_of_the_feed_has_the_id_that_ops_gives_it(spark: SparkSession) -> None:
    change = msgspec.convert(_CHANGE, Change)

    found = events.of_changes(lines(spark, "ops.changes", _CHANGE))

    (event,) = change_events([change], source="/yard")
    assert _told(found) == [_expected(event)]


def test_a_refusal_has_the_id_that_ops_gives_it(spark: SparkSession) -> None:
    refusal = msgspec.convert(_REFUSAL, Refusal)

    found = events.of_refusals(lines(spark, "ops.audit", _REFUSAL))

    (event,) = refusal_events([refusal], source="/yard")
    assert _told(found) == [_expected(event)]


def test_what_is_known_or_told_twice_is_left_out(spark: SparkSession) -> None:
    told = events.of_entries(
        lines(
            spark,
            "panqueue.events",
            {"id": "1-0", "kind": "queued", "item": "a"},
            {"id": "1-0", "kind": "queued", "item": "a"},
            {"id": "2-0", "kind": "queued", "item": "b"},
            {"id": "3-0", "kind": "queued", "item": "c"},
        )
    )
    known = events.of_entries(lines(spark, "panqueue.events", {"id": "2-0", "kind": "queued", "item": "b"}))

    once = events.distinct(told, batch=5)
    found = events.unknown_ones(once, known)

    assert [row["id"] for row in events.known_ones(once, known).collect()] == [row["id"] for row in known.collect()]
    assert sorted((row["item"], row["batch"], str(row["day"])) for row in found.collect()) == [
        ("a", 5, "1970-01-01"),
        ("c", 5, "1970-01-01"),
    ]


def _told(found: DataFrame) -> list[dict[str, object]]:
    assert found.columns == EVENT.fieldNames()
    rows = [row.asDict() for row in found.collect()]
    for row in rows:
        row["at"] = row["at"].replace(tzinfo=UTC)
        row["data"] = msgspec.json.decode(row["data"]) if row["data"] else {}
    return rows


def _expected(event: Event) -> dict[str, object]:
    known = {name: getattr(event, name) for name in EVENT.fieldNames()}
    known["at"] = datetime.fromisoformat(event.at)
    return {name: str(value) if name in {"system", "kind"} else value for name, value in known.items()}
