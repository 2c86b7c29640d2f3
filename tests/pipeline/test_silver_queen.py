"""queen's own functions are the truth: whatever the lines, the same records and the same events come out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from itertools import pairwise
import json
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType
import pytest

from pipeline.records import lines
from pipeline.streams_support import as_text
from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import System
from queueyard.pipeline import schemas
from queueyard.pipeline.run import take
from queueyard.pipeline.silver import folding, queen
from queueyard.pipeline.silver.build import build
from queueyard.pipeline.sources import positions
from queueyard.pipeline.sources.looking import look
from queueyard.pipeline.sources.spans import Origin, plan
from queueyard.pipeline.warehouse import Warehouse
from queueyard.queen import events as truth
from queueyard.queen.rules import fold
from queueyard.yard.places import Place
from scripts import run_script

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_Tell = Callable[["DataFrame", "DataFrame"], "DataFrame"]

_ID = "qm-01KEXAMPLE00000000000000AB"
_MESSAGES: list[dict[str, Any]] = [
    {"id": _ID, "created_at": "2026-01-05T09:00:00Z", "from": "ana", "to": "ben", "subject": "s", "body": "b"},
    {"id": _ID, "read": True, "read_at": "2026-01-05T09:05:00Z"},
    {"id": "qm-2", "created_at": "2026-01-05T09:01:00Z", "from": "ben", "to": "ana", "reply_to": _ID, "thread_id": _ID},
    {"id": _ID, "created_at": "2026-01-05T10:00:00Z", "issue_id": "qy-1", "subject": None, "read": True},
    {"id": "qm-2", "deleted": True},
    {"_migration": {"from": 1, "to": 2}},
]
_ASSIGNMENTS: list[dict[str, Any]] = [
    {"id": "qa-1", "created_at": "2026-01-05T09:00:00Z", "issue_id": "qy-1", "agent": "ana", "assigned_by": "queen"},
    {"id": "qa-1", "status": "completed", "updated_at": "2026-01-05T09:30:00Z"},
    {"id": "qa-2", "created_at": "2026-01-05T09:10:00Z", "issue_id": "qy-2", "droid": "ben", "status": "active"},
    {"id": "qa-2", "status": "reassigned", "updated_at": "2026-01-05T09:20:00Z", "reason": "too busy"},
]
_RESERVATIONS: list[dict[str, Any]] = [
    {"id": "qr-1", "created_at": "2026-01-05T09:00:00Z", "expires_at": "2026-01-05T11:00:00Z", "pattern": "src/**"},
    {"id": "qr-1", "agent": "ana", "expires_at": "2026-01-05T12:00:00Z", "renewed_at": "2026-01-05T10:00:00Z"},
    {"id": "qr-1", "expires_at": "2026-01-05T10:30:00Z"},
    {"id": "qr-1", "status": "released", "released_at": "2026-01-05T10:45:00Z"},
    {"id": "qr-2", "created_at": "no time", "expires_at": "2026-01-05T10:00:00Z", "pattern": "a", "exclusive": False},
    {"id": "qr-2", "status": "expired"},
]
_CASES: dict[str, tuple[list[dict[str, Any]], StructType, _Tell, Callable[..., Any]]] = {
    "queen.messages": (_MESSAGES, schemas.MESSAGE, queen.message_events, truth.message_events),
    "queen.assignments": (_ASSIGNMENTS, schemas.ASSIGNMENT, queen.assignment_events, truth.assignment_events),
    "queen.reservations": (_RESERVATIONS, schemas.RESERVATION, queen.reservation_events, truth.reservation_events),
}


@pytest.mark.parametrize("stream", _CASES)
def test_lines_fold_into_the_records_that_queen_shows(spark: SparkSession, stream: str) -> None:
    records, schema, _, _ = _CASES[stream]

    rows = folding.rows_of_lines(lines(spark, stream, *records), stream)
    found = folding.view(rows, schema)

    assert _records(found) == _folded(records)


@pytest.mark.parametrize("is_folded", [False, True], ids=["by Spark alone", "by the source first"])
@pytest.mark.parametrize("stream", _CASES)
def test_lines_that_their_source_has_read_fold_into_the_same_records(
    spark: SparkSession, tmp_path: Path, stream: str, is_folded: bool
) -> None:
    records, schema, _, _ = _CASES[stream]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    spans, _ = plan({}, look([Origin(stream=stream, place="/yard", path=str(file))]), most_bytes=1 << 20)
    where = (schemas.RECORD[name] for name in ("place", "generation", "position"))
    wanted = StructType([*where, StructField("rest", StringType()), StructField("record", schema)])

    options = {"spans": as_text(spans)} | ({"fold": as_text(folding.FOLD)} if is_folded else {})
    read = spark.read.format("queueyard_lines").schema(wanted).options(**options).load()
    found = folding.view(folding.rows_of_read(read.withColumn("batch", F.lit(0)), schema), schema)

    # Where a line has a null of its own, all lines around it come as they are.
    is_in_parts = is_folded and not any(None in record.values() for record in records)
    rows = len({record["id"] for record in records}) if is_in_parts else len(records)
    assert read.where("record IS NOT NULL").count() == rows
    assert _records(found) == _folded(records)


def test_only_lines_without_an_id_are_left_out(spark: SparkSession) -> None:
    raw = ['{"id":"a"}', '{ "id": "b"}', '{"to":"_migration","id":"c"}', '{"_migration":{"id":"d"}}']

    found = folding.rows_of_lines(lines(spark, "queen.messages", *raw), "queen.messages")

    assert sorted(row["id"] for row in found.collect()) == ["a", "b", "c"]


def test_a_part_names_just_the_fields_whose_latest_value_is_null(spark: SparkSession) -> None:
    raw = ['{"id":"a","subject":"s","body":null,"to":null}', '{"id":"a","body":"the null"}', '{"id":"a","to":"t"}']

    rows = folding.rows_of_lines(lines(spark, "queen.messages", *raw), "queen.messages")
    [first] = folding.folded(rows.limit(1), schemas.MESSAGE).collect()
    [last] = folding.folded(rows, schemas.MESSAGE).collect()

    assert sorted(first["cleared"]) == ["body", "to"]
    assert (last["cleared"], last["subject"], last["body"], last["to"]) == ([], "s", "the null", "t")


@pytest.mark.parametrize("stream", _CASES)
def test_parts_of_several_batches_fold_into_the_same_records(spark: SparkSession, stream: str) -> None:
    records, schema, _, _ = _CASES[stream]

    parts = [folding.folded(folding.rows_of_lines(batch, stream), schema) for batch in _batches(spark, stream, records)]
    found = folding.view(parts[0].unionByName(parts[1]).unionByName(parts[2]), schema)

    assert _records(found) == _folded(records)


def test_the_newest_generation_counts_before_any_position(spark: SparkSession) -> None:
    last = (1 << 40) - 1
    order = {-1_000_000: last, -1: 0, 0: last, 1: 5, 8_000_000: 0}

    rows = [
        folding.rows_of_lines(
            lines(spark, "queen.messages", {"id": "a", "subject": str(generation)}, start=position), "queen.messages"
        ).withColumn("generation", F.lit(generation))
        for generation, position in order.items()
    ]
    found = [
        folding.folded(one.unionByName(other), schemas.MESSAGE).select("subject", "generation", "position").first()
        for one, other in pairwise(rows)
    ]

    assert [tuple(row or ()) for row in found] == [(str(number), number, order[number]) for number in list(order)[1:]]


def test_a_record_that_was_archived_unread_ends_as_its_last_line_says(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "yard" / ".beads" / "queen_messages.jsonl"
    file.parent.mkdir(parents=True)
    house = Warehouse(spark, str(tmp_path / "home"))
    sent = {"id": "qm-1", "from": "a", "to": "b", "body": "", "created_at": "2026-01-01T00:00:00Z", "read": False}
    file.write_text(f"{json.dumps(sent)}\n")

    _take(house, tmp_path / "yard")
    with file.open("a") as stream:
        stream.write(f"{json.dumps(sent | {'read': True, 'read_at': '2026-01-02T00:00:00Z'})}\n")
    archived = run_script("queen", "archive", "--older-than", "0s", cwd=tmp_path / "yard")
    _take(house, tmp_path / "yard")

    assert (archived.code, file.read_text()) == (0, "")
    assert [row["read"] for row in house.view("messages").collect()] == [True]


def _take(house: Warehouse, yard: Path) -> None:
    """Bronze and silver of all that is new."""
    places = [Place(system=System.QUEEN, at=str(yard))]
    take(house, positions.plan(places, house.lines.log.note(), most_bytes=1 << 20))
    build(house)


@pytest.mark.parametrize("stream", _CASES)
def test_lines_are_told_as_the_events_that_queen_tells(spark: SparkSession, stream: str) -> None:
    records, schema, tell, true_tell = _CASES[stream]
    nothing = folding.folded(folding.rows_of_lines(lines(spark, stream), stream), schema)

    found = tell(folding.rows_of_lines(lines(spark, stream, *records), stream), nothing)

    assert _events(found) == _true_events(true_tell, records)


@pytest.mark.parametrize("stream", _CASES)
def test_events_are_the_same_however_the_lines_are_cut_into_batches(spark: SparkSession, stream: str) -> None:
    records, schema, tell, true_tell = _CASES[stream]
    batches = [folding.rows_of_lines(batch, stream) for batch in _batches(spark, stream, records)]
    before = [folding.folded(batches[0].limit(0), schema)]
    for batch in batches:
        before.append(folding.folded(before[-1].unionByName(batch), schema))

    found = [event for old, batch in zip(before, batches, strict=False) for event in _events(tell(batch, old))]

    assert sorted(found, key=str) == _true_events(true_tell, records)


def _batches(spark: SparkSession, stream: str, records: Sequence[dict[str, Any]]) -> list[DataFrame]:
    cuts = [0, 1, 3, len(records)]
    return [
        lines(spark, stream, *records[first:last], batch=number, start=first * 1000)
        for number, (first, last) in enumerate(pairwise(cuts))
    ]


def _folded(records: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    state: dict[str, dict[str, Any]] = {}
    for record in records:
        if "id" in record:
            state[record["id"]] = fold(state.get(record["id"]), record)
    return state


def _records(found: DataFrame) -> dict[str, dict[str, Any]]:
    rows = [row.asDict() for row in found.drop("source").collect()]
    return {row["id"]: {name: value for name, value in row.items() if value is not None} for row in rows}


def _events(found: DataFrame) -> list[dict[str, Any]]:
    told = []
    for row in found.collect():
        event = {name: value for name, value in row.asDict().items() if value is not None}
        event["at"] = row["at"].replace(tzinfo=UTC).isoformat(timespec="microseconds")
        event["data"] = msgspec.json.decode(event.get("data", "{}"))
        told.append(event)
    return sorted(told, key=str)


def _true_events(tell: Callable[..., Any], records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    told = []
    for event in tell(records, source="/yard"):
        known = msgspec.to_builtins(event) | {"attempt": event.attempt, "data": event.data}
        known["at"] = from_rfc3339(event.at).isoformat(timespec="microseconds")
        told.append({name: value for name, value in known.items() if value is not None})
    return sorted(told, key=lambda event: str(dict(sorted(event.items(), key=lambda pair: _ORDER.index(pair[0])))))


_ORDER = [*schemas.EVENT.fieldNames()]
