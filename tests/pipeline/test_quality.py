"""Expectations: every rule is broken by the row that breaks it and by no other, and what is broken is kept and told."""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pipeline.frames import DAY, at, text
from queueyard.kernel.events import System
from queueyard.pipeline import schemas
from queueyard.pipeline.expectations import RULES, SCHEMA_RULE, TOTALS
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.quality import broken, check, violations
from queueyard.pipeline.run import run
from queueyard.pipeline.warehouse import Warehouse
from queueyard.queen import Queen
from queueyard.yard.places import Place
from scripts import run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ULID = "01MX78F5FDC75KPPC4FGCRKAKY"
_QUEUE = {"system": "jjq", "source": "/yard", "queue": "main"}
_FLOW = dict.fromkeys(("queued", "started", "succeeded", "failed", "conflicted", "canceled"), 1)
_PERCENTILES = {"p50_s": 1.0, "p90_s": 2.0, "p95_s": 3.0, "p99_s": 4.0, "max_s": 5.0}
_SPECS = {spec.name: spec for spec in (*schemas.SILVER, *(metric.spec for metric in METRICS))}
#: columns that quality.py adds to a view before it is looked at
_ADDED = {
    "silver/events": [T.StructField("ingested_at", T.TimestampType())],
    "silver/attempts": [T.StructField("is_item", T.BooleanType())],
    "silver/messages": [T.StructField("is_answer_to_known", T.BooleanType())],
    "silver/files": [T.StructField("is_version", T.BooleanType())],
}
_GOOD: dict[str, dict[str, Any]] = {
    "silver/events": {"id": _ULID, "at": at("9:00"), "system": "jjq", "kind": "queued", "attempt": 1}
    | {"ingested_at": at("9:00")},
    "silver/items": _QUEUE | {"item": "1", "first_at": at("9:00"), "last_at": at("9:00"), "events": 1, "attempts": 1},
    "silver/attempts": _QUEUE
    | {"item": "1", "attempt": 1, "stalls": 0, "is_item": True, "outcome": "failed"}
    | {"queued_at": at("9:00"), "started_at": at("9:01"), "finished_at": at("9:02")},
    "silver/messages": {"source": "/yard", "id": "qm-1", "from": "ana", "to": "ben", "is_answer_to_known": True}
    | {"created_at": text("9:00"), "read_at": text("9:01"), "importance": "high"},
    "silver/assignments": {"source": "/yard", "id": "as-1", "droid": "ana", "status": "active"}
    | {"created_at": text("9:00"), "updated_at": text("9:01")},
    "silver/reservations": {"source": "/yard", "id": "rs-1", "pattern": "src/**", "status": "released"}
    | {"created_at": text("9:00"), "released_at": text("9:01"), "expires_at": text("10:00")},
    "silver/file_versions": {"source": "/yard", "space": "s", "seq": 1, "version": 1, "op": "c", "bytes": 0},
    "silver/files": {"source": "/yard", "space": "s", "file": "f", "is_version": True},
    "gold/throughput": _QUEUE | _FLOW | {"grain": "day", "bucket_at": at("0:00")},
    "gold/durations": _QUEUE | _PERCENTILES | {"measure": "wait", "scope": "queue", "attempts": 5, "mean_s": 3.0},
    "gold/failures": _QUEUE
    | {"day": DAY, "kind": "failed", "reason": "no", "failures": 2, "items": 1}
    | {"first_at": at("9:00"), "last_at": at("9:00")},
    "gold/retries": _QUEUE | {"day": DAY, "started": 0, "retried": 1, "stalled": 0, "released": 0, "retried_items": 1},
    "gold/fairness": _QUEUE
    | {"grain": "day", "bucket_at": at("0:00"), "groups": 4, "services": 3, "run_s": 1.0, "jain_services": 0.25},
    "gold/landing": {"source": "/yard", "queue": "main", "day": DAY, "landed": 2, "timed": 1, "checks": 1}
    | {"wasted_checks": 1, "wasted_share": 1.0, "land_p50_s": 1.0, "land_p95_s": 1.0, "land_max_s": 1.0},
    "gold/agents": {"source": "/yard", "agent": "ana", "received": 2, "answered": 1, "unread": 1}
    | {"assignments": 2, "open_assignments": 1, "completed": 1},
    "gold/contention": {"source": "/yard", "day": DAY, "holder": "ana", "waiter": "ben"}
    | {"overlaps": 1, "blocking_overlaps": 1, "overlap_s": 0.5},
    "gold/sync": {"source": "/yard", "space": "s", "day": DAY, "versions": 1, "files_changed": 1}
    | {"lag_p50_s": 1.0, "lag_p95_s": 1.0, "lag_max_s": 1.0, "conflict_rate": 0.0},
    "gold/summary": {"system": "jjq", "day": DAY, "items": 1, "events": 1, "success_rate": 1.0},
}
#: for each rule, what makes the good row one that breaks it and no other
_BAD: dict[str, dict[str, dict[str, Any]]] = {
    "silver/events": {
        "id_is_a_ulid": {"id": "7"},
        "known_kind": {"kind": "vanished"},
        "known_system": {"system": "cron"},
        "attempt_counts_from_one": {"attempt": 0},
        "has_a_time": {"at": at("9:00") - timedelta(days=20_000)},
        "not_in_the_future": {"at": at("9:06")},
    },
    "silver/items": {"first_before_last": {"last_at": at("8:59")}, "has_events": {"events": 0}},
    "silver/attempts": {
        "queued_before_started": {"queued_at": at("9:01:30")},
        "started_before_finished": {"started_at": at("9:02:30")},
        "queued_before_finished": {"queued_at": at("9:03"), "started_at": None},
        "ended_with_an_outcome": {"outcome": None},
        "has_an_item": {"is_item": False},
        "never_below_zero": {"stalls": -1},
    },
    "silver/messages": {
        "has_both_ends": {"to": ""},
        "times_are_readable": {"created_at": "yesterday"},
        "sent_before_read": {"read_at": text("8:59")},
        "known_importance": {"importance": "huge"},
        "answers_a_known_message": {"is_answer_to_known": False},
    },
    "silver/assignments": {
        "has_an_agent": {"droid": ""},
        "known_status": {"status": "lost"},
        "times_are_readable": {"updated_at": "yesterday"},
        "made_before_changed": {"updated_at": text("8:59")},
    },
    "silver/reservations": {
        "has_a_pattern": {"pattern": None},
        "known_status": {"status": "lost"},
        "times_are_readable": {"expires_at": "tomorrow"},
        "made_before_released": {"released_at": text("8:59")},
        "made_before_expired": {"expires_at": text("8:59")},
    },
    "silver/file_versions": {
        "version_counts_from_one": {"version": 0},
        "known_op": {"op": "x"},
        "never_below_zero": {"bytes": -1},
    },
    "silver/files": {"newest_is_a_version": {"is_version": False}},
    "gold/throughput": {"never_below_zero": {"canceled": -1}},
    "gold/durations": {
        "percentiles_in_order": {"p90_s": 3.5},
        "mean_within": {"mean_s": 6.0},
        "has_attempts": {"attempts": 0},
    },
    "gold/failures": {"items_within": {"items": 3}, "first_before_last": {"last_at": at("8:59")}},
    "gold/retries": {"items_within": {"retried_items": 2}, "never_below_zero": {"stalled": -1}},
    "gold/fairness": {"jain_within": {"jain_services": 0.2}, "never_below_zero": {"run_s": -1.0}},
    "gold/landing": {
        "timed_within": {"timed": 3},
        "wasted_within": {"wasted_checks": 2},
        "percentiles_in_order": {"land_p50_s": 2.0},
        "shares": {"wasted_share": 1.5},
    },
    "gold/agents": {
        "answered_within": {"answered": 3},
        "unread_within": {"unread": 3},
        "assignments_within": {"completed": 2},
        "percentiles_in_order": {"response_p50_s": 2.0, "response_p95_s": 1.0},
    },
    "gold/contention": {
        "two_agents": {"waiter": "ana"},
        "blocking_within": {"blocking_overlaps": 2},
        "never_below_zero": {"overlap_s": -1.0},
    },
    "gold/sync": {
        "percentiles_in_order": {"lag_max_s": 0.5},
        "shares": {"conflict_rate": -0.1},
        "files_within": {"files_changed": 2},
    },
    "gold/summary": {
        "shares": {"success_rate": 1.1},
        "percentiles_in_order": {"run_p50_s": 2.0, "run_p95_s": 1.0},
        "items_within": {"items": 2},
    },
}


def test_every_rule_has_a_row_that_breaks_it() -> None:
    assert {(rule.table, rule.name) for rule in RULES} == {
        (table, name) for table, rules in _BAD.items() for name in rules
    }


def test_the_page_about_quality_names_every_rule() -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline" / "quality.md").read_text()

    for table in {rule.table for rule in RULES}:
        section = page.partition(f"### {table}\n")[2].partition("###")[0]
        wanted = {f"| `{rule.name}` | {rule.sentence} |" for rule in (*RULES, *TOTALS) if rule.table == table}
        assert {line for line in section.splitlines() if line.startswith("| `")} == wanted, table


def test_each_rule_is_broken_by_its_row_and_by_no_other(spark: SparkSession) -> None:
    looks = [
        broken(_cases(spark, table), [rule for rule in RULES if rule.table == table], key=("case",), is_whole=False)
        for table in _GOOD
    ]

    found = {(row["table"], row["rule"], row["key"]) for row in reduce(DataFrame.union, looks).collect()}

    assert found == {(table, name, name) for table, rules in _BAD.items() for name in rules}


def test_an_event_without_an_id_is_none_with_a_ulid(spark: SparkSession) -> None:
    good = _cases(spark, "silver/events").where("case = 'good'")
    rules = [rule for rule in RULES if rule.table == "silver/events"]

    found = broken(good.withColumn("id", F.lit(None).cast("string")), rules, key=("case",), is_whole=False)

    assert [row["rule"] for row in found.collect()] == ["id_is_a_ulid"]


def test_what_is_broken_is_kept_with_its_batch_and_told_by_status(spark: SparkSession, tmp_path: Path) -> None:
    places = [Place(system=System.QUEEN, at=str(tmp_path))]
    (tmp_path / ".beads").mkdir()
    with Queen.open(tmp_path, agent="ana", environment={}) as ana:
        ana.send("ben", "hello")
    house = Warehouse(spark, str(tmp_path / ".queueyard" / "pipeline"))
    run(house, places)
    sound = house.table(schemas.VIOLATIONS).read().collect()

    _tell_nonsense(tmp_path / ".beads" / "queen_messages.jsonl")
    run(house, places)
    check(house, 1)

    told = {(row["table"], row["rule"]): row for row in house.table(schemas.VIOLATIONS).read().collect()}
    answer = run_script("queueyard", "pipeline", "status", "--json", "--yard", str(tmp_path), cwd=tmp_path)
    listed = run_script("queueyard", "pipeline", "status", "--yard", str(tmp_path), cwd=tmp_path)
    assert sound == []
    assert {key: row["violations"] for key, row in told.items()} == {
        ("silver/events", "not_in_the_future"): 1,
        ("silver/messages", "answers_a_known_message"): 1,
        ("silver/messages", "known_importance"): 1,
    }
    assert {(row["since"], row["batch"], row["is_whole"]) for row in told.values()} == {(1, 1, False)}
    assert told["silver/messages", "known_importance"]["examples"] == [f"{tmp_path} qm-1"]
    assert {(one["table"], one["rule"]) for one in answer.json["violations"]} == told.keys()
    assert all(one["sentence"] and one["examples"] for one in answer.json["violations"])
    assert "BROKEN RULE" in listed.stdout

    _spoil(house)
    assert {(row["table"], row["rule"], row["violations"]) for row in violations(house, after=1).collect()} == {
        ("silver/items", "events_add_up", 1),
        ("gold/agents", SCHEMA_RULE, 1),
    }


def _cases(spark: SparkSession, table: str) -> DataFrame:
    """The good row, and for each rule the one that breaks it; `case` names the rule."""
    schema = T.StructType([*_SPECS[table].schema.fields, *_ADDED.get(table, []), T.StructField("case", T.StringType())])
    rows = [_GOOD[table] | bad | {"case": case} for case, bad in {"good": {}, **_BAD[table]}.items()]
    assert all(row.keys() <= set(schema.fieldNames()) for row in rows)
    return spark.createDataFrame([tuple(row.get(name) for name in schema.fieldNames()) for row in rows], schema)


def _tell_nonsense(path: Path) -> None:
    ahead = {"id": "qm-1", "from": "ben", "to": "ana", "created_at": "2090-01-01T00:00:00Z"}
    with path.open("a") as stream:
        stream.write(json.dumps(ahead | {"reply_to": "qm-none", "importance": "huge"}) + "\n")


def _spoil(house: Warehouse) -> None:
    """A part of an item that nobody wrote, and a column that somebody else added."""
    twice = house.items.write(house.items.read().limit(1))
    house.items.log.commit(twice.files, DeltaTable(house.items.address).schema(), (), batch=None)
    DeltaTable(f"{house.home}/gold/agents").alter.add_columns(Field("mood", PrimitiveType("string")))
