"""Whether tasks read or the driver does, the records are the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.testing import assertDataFrameEqual

from queueyard.kernel.events import System
from queueyard.pipeline.bronze import records
from queueyard.pipeline.generator import generate
from queueyard.pipeline.session import fit
from queueyard.pipeline.sources import parsing
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.streams import judged
from queueyard.yard.places import Place

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    import pytest


def test_tasks_read_what_the_driver_reads(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = generate(tmp_path / "histories", events=500, seed=3)
    places = [Place(system=system, at=str(made.folder / name)) for system, name in made.places]
    found = plan(places, {}, most_bytes=1 << 30)
    assert {System.QUEEN, System.RUNFORGE, System.JJQ, System.OPS} == {place.system for place in places}
    assert 0 < found.bytes < records.FEW_BYTES

    by_driver = sorted(map(str, records.records_of(spark, found).collect()))
    monkeypatch.setattr(records, "FEW_BYTES", 0)
    by_tasks = sorted(map(str, records.records_of(spark, found).collect()))

    assert by_driver == by_tasks != []


def test_a_rewritten_file_that_is_gone_by_now_is_no_record(spark: SparkSession, tmp_path: Path) -> None:
    queue = tmp_path / ".runforge" / "queue" / "queue.json"
    queue.parent.mkdir(parents=True)
    queue.write_text("{}")
    found = plan([Place(system=System.RUNFORGE, at=str(tmp_path))], {}, most_bytes=1 << 30)

    queue.unlink()

    assert [read.format for read in found.reads] == ["queueyard_snapshots"]
    assert records.records_of(spark, found).collect() == []


def test_a_batch_in_which_no_line_starts_has_no_records(spark: SparkSession, tmp_path: Path) -> None:
    """The one before it took the start of the last line, and with it the line."""
    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads" / "queen_messages.jsonl").write_text(json.dumps({"id": "qm-1", "body": "x" * 100}) + "\n")
    places = [Place(system=System.QUEEN, at=str(tmp_path))]
    first = plan(places, {}, most_bytes=50)

    rest = plan(places, first.note, most_bytes=1 << 30)

    assert rest.bytes > 0
    assert [records.records_of(spark, found).count() for found in (first, rest)] == [1, 0]


def test_much_that_the_driver_has_read_is_judged_by_tasks(spark: SparkSession, tmp_path: Path) -> None:
    beads = tmp_path / ".beads"
    beads.mkdir()
    lines = [json.dumps({"id": f"qm-{number}", "body": "x" * 1000}) + "\n" for number in range(2000)]
    (beads / "queen_messages.jsonl").write_text("".join(lines), encoding="utf-8")
    found = plan([Place(system=System.QUEEN, at=str(tmp_path))], {}, most_bytes=1 << 30)

    frame = judged(records.records_of(spark, found), found.streams)

    # A relation that stands in the plan itself would be judged while it is planned, by one thread.
    assert "LocalTableScan" not in str(frame._jdf.queryExecution().executedPlan().toString())
    assert [row["reason"] for row in frame.select("reason").collect()] == [None] * len(lines)


def test_lines_that_the_source_has_read_are_judged_as_spark_judges_their_texts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each line by itself, so that what is wrong with one leaves no other to Spark.
    monkeypatch.setattr(parsing, "_FEW_LINES", 1)
    event = {"id": "1", "at": "2026-01-05T09:00:00Z", "system": "jjq", "source": "s", "queue": "q", "item": "i"}
    change = {
        "seq": 1,
        "space": "s",
        "fileId": "f",
        "requestId": "r",
        "opId": "o",
        "acceptedAt": "2026-01-05T09:00:00Z",
    }
    files: dict[str, list[dict[str, Any] | str]] = {
        ".beads/queen_messages.jsonl": [
            {"id": "a"},
            {"id": ""},
            {"id": 7},
            {"to": "b"},
            {"_migration": {"to": 2}},
            "{",
        ],
        ".beads/queen_reservations.jsonl": [{"id": "a", "exclusive": "yes"}, {"id": "a", "exclusive": False}, "\ufffd"],
        ".jj/repo/jjq/journal.jsonl": [
            event | {"kind": "queued", "data": {"deep": [1]}},
            event | {"kind": "vanished"},
            event | {"kind": "queued", "at": "soon"},
            event | {"kind": "queued", "attempt": "many"},
            event | {"kind": "queued", "item": None},
        ],
        "changes-1.jsonl": [change, change | {"seq": None}, change | {"acceptedAt": "never"}, change | {"size": 1.5}],
    }
    for name, lines in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    places = [Place(system=system, at=str(tmp_path)) for system in (System.QUEEN, System.JJQ, System.OPS)]
    found = plan(places, {}, most_bytes=1 << 30)

    read = records.records_of(spark, found)
    ours = judged(read, found.streams)
    theirs = judged(read.drop("record"), found.streams)

    assert [read.where("record IS NULL").count(), read.where("record IS NOT NULL").count()] == [6, 12]
    assertDataFrameEqual(ours, theirs)
    assert ours.where("reason IS NOT NULL").count() == 13


def test_a_session_is_fitted_to_many_rows_and_back(spark: SparkSession) -> None:
    fit(spark, rows=10_000_000)
    many = spark.conf.get("spark.sql.adaptive.enabled")
    fit(spark, rows=0)

    assert (many, spark.conf.get("spark.sql.adaptive.enabled")) == ("true", "false")
