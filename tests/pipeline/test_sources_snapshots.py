"""Rewritten files of real workspaces: each content once, and jobs told as runforge's own journal tells them."""

from __future__ import annotations

import json
import os
from pathlib import Path
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
import pytest

from pipeline.streams_support import as_text, batch, micro_batches
from queueyard.kernel.events import System
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.run import run
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.silver import build
from queueyard.pipeline.silver.events import of_journal
from queueyard.pipeline.silver.snapshots import local_zone, of_snapshots
from queueyard.pipeline.sources.digests import Marks, Origin, Snapshot, plan, suspects
from queueyard.pipeline.sources.places import snapshots_at
from queueyard.pipeline.sources.snapshot_files import look, opened
from queueyard.pipeline.sources.snapshots import read_snapshots
from queueyard.pipeline.streams import judged
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place
from runforge_scenarios import Yard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FAR = "America/New_York"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "workspace")


def origins_of(yard: Yard) -> list[Origin]:
    return snapshots_at([Place(system=System.RUNFORGE, at=str(yard.root))])


def planned(yard: Yard, marks: Marks | None = None) -> tuple[list[Snapshot], Marks]:
    known = marks or {}
    return plan(known, opened(suspects(known, look(origins_of(yard)))))


def lines_of(spark: SparkSession, yard: Yard, *, with_journal: bool) -> DataFrame:
    """Bronze lines of a workspace."""
    rows: list[tuple[Any, ...]] = []
    for found in read_snapshots(planned(yard)[0]):
        rows += [tuple(row.values()) for row in found.to_pylist()]
    journal = yard.queue_folder / "events.jsonl"
    if with_journal:
        texts = journal.read_text().splitlines()
        rows += [("runforge.events", str(yard.root), str(journal), 0, at, 0, text) for at, text in enumerate(texts)]
    return spark.createDataFrame(rows, RECORD)


class TestWithoutSpark:
    def test_queue_groups_and_results_that_are_there_are_found(self, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})
        for name in (".runforge/groups/g1/group.json", ".ml/runs/r1/result.json"):
            (yard.root / name).parent.mkdir(parents=True)
            (yard.root / name).write_text("{}")
        (yard.root / ".ml" / "runs" / "not-yet").mkdir()

        found = [(one.stream, Path(one.path).name) for one in planned(yard)[0]]

        assert found == [
            ("runforge.queue", "queue.json"),
            ("runforge.group", "group.json"),
            ("runforge.result", "result.json"),
        ]

    def test_a_workspace_without_any_of_them_has_nothing_new(self, yard: Yard) -> None:
        assert planned(yard) == ([], {})

    def test_a_file_is_read_again_only_when_it_says_something_else(self, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})
        first, marks = planned(yard)

        yard.write_queue({"run_id": "a"})
        same, marks = planned(yard, marks)
        yard.write_queue({"run_id": "b"})
        other, _ = planned(yard, marks)

        assert ([one.path for one in first], same) == ([one.path for one in other], [])
        assert len(other) == 1

    def test_a_change_that_cannot_be_seen_from_outside_is_found_as_long_as_the_file_is_young(self, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})
        path = yard.queue_folder / "queue.json"
        now_ns = time.time_ns()
        os.utime(path, ns=(now_ns, now_ns))
        _, marks = planned(yard)

        path.write_text(path.read_text().replace('"a"', '"b"'))
        os.utime(path, ns=(now_ns, now_ns))

        assert [one.path for one in planned(yard, marks)[0]] == [str(path)]

    def test_a_file_that_is_gone_when_it_is_read_is_no_record(self, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})
        snapshots, _ = planned(yard)

        (yard.queue_folder / "queue.json").unlink()

        assert list(read_snapshots(snapshots)) == []

    def test_a_folder_in_its_place_is_refused_with_the_next_command(self, yard: Yard) -> None:
        (yard.queue_folder / "queue.json").mkdir(parents=True)

        with pytest.raises(SourceFailed) as refused:
            planned(yard)

        assert "ls -l" in (refused.value.hint or "")


class TestTheZoneOfTheMachine:
    def test_the_environment_names_it(self, tmp_path: Path) -> None:
        assert local_zone({"TZ": f":{FAR}"}, tmp_path / "none") == FAR

    def test_else_the_link_of_the_system_does(self, tmp_path: Path) -> None:
        (tmp_path / "zoneinfo" / "Asia").mkdir(parents=True)
        (tmp_path / "zoneinfo" / "Asia" / "Tokyo").touch()
        (tmp_path / "localtime").symlink_to(tmp_path / "zoneinfo" / "Asia" / "Tokyo")

        assert local_zone({"TZ": "no/where"}, tmp_path / "localtime") == "Asia/Tokyo"

    def test_without_both_it_is_utc(self, tmp_path: Path) -> None:
        assert local_zone({}, tmp_path / "none") == "UTC"


class TestThroughSpark:
    def test_a_batch_gives_whole_files(self, spark: SparkSession, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})

        [row] = batch(spark, "queueyard_snapshots", snapshots=as_text(planned(yard)[0]))

        assert (row["stream"], row["place"], row["minor"]) == ("runforge.queue", str(yard.root), 0)
        assert row["position"] == (yard.queue_folder / "queue.json").stat().st_mtime_ns
        assert json.loads(row["raw"]) == yard.queue()

    def test_a_stream_goes_on_from_its_checkpoint(self, spark: SparkSession, yard: Yard, tmp_path: Path) -> None:
        options = {"origins": as_text(origins_of(yard))}
        yard.write_queue({"run_id": "a"})
        first = micro_batches(spark, tmp_path, "queueyard_snapshots", **options)

        yard.write_queue({"run_id": "b"})
        second = micro_batches(spark, tmp_path, "queueyard_snapshots", **options)

        assert [json.loads(raw)["jobs"][0]["run_id"] for raw in first] == ["a"]
        assert sorted(json.loads(raw)["jobs"][0]["run_id"] for raw in second) == ["a", "b"]


class TestTheEventsOfAQueueFile:
    def test_jobs_of_another_tool_are_told_in_the_zone_of_the_machine(self, spark: SparkSession, yard: Yard) -> None:
        ended = {"state": "failed", "started_at": "2026-07-01T10:00:01.250000", "finished_at": "2026-07-01T10:00:02"}
        yard.write_queue(
            {"run_id": "a", "created_at": "2026-07-01T10:00:00", "group_id": "g", "error": "why", **ended},
            {"run_id": "b", "created_at": "2026-01-01T10:00:00+02:00"},
        )

        told = of_snapshots(lines_of(spark, yard, with_journal=False), zone=FAR).orderBy("item", "at")

        # As text: what comes out of Spark as a time is in the zone of whoever runs the test.
        rows = told.select("item", F.col("at").cast("string"), "kind", "group", "reason").collect()
        assert [tuple(row) for row in rows] == [
            ("job_0", "2026-07-01 14:00:00", "queued", "g", None),
            ("job_0", "2026-07-01 14:00:01.25", "started", "g", None),
            ("job_0", "2026-07-01 14:00:02", "failed", "g", "why"),
            ("job_1", "2026-01-01 08:00:00", "queued", None, None),
        ]

    def test_a_job_that_names_no_attempt_is_in_its_first_and_one_without_an_id_is_none(
        self, spark: SparkSession, yard: Yard
    ) -> None:
        yard.write_queue({}, {"state": "failed", "finished_at": "2026-02-01T16:00:00"})
        named = of_snapshots(lines_of(spark, yard, with_journal=False), zone=FAR).orderBy("id").collect()
        yard.write_queue(
            {"attempt": None},
            {"attempt": None, "state": "failed", "finished_at": "2026-02-01T16:00:00"},
            {"job_id": None},
            {"attempt": -(2**31)},
        )

        found = of_snapshots(lines_of(spark, yard, with_journal=False), zone=FAR).orderBy("id").collect()

        assert [(row["item"], row["kind"]) for row in found].count(("job_1", "failed")) == 1
        assert len(found) == 3
        assert found == named

    def test_a_queue_file_is_sound_and_something_else_is_not(self, spark: SparkSession, yard: Yard) -> None:
        yard.write_queue({"run_id": "a"})
        sound = lines_of(spark, yard, with_journal=False)
        (yard.queue_folder / "queue.json").write_text('{"kind": "execution_queue"}')
        other = lines_of(spark, yard, with_journal=False)

        assert [row["reason"] for row in judged(sound.union(other), ["runforge.queue"]).collect()] == [None, "no jobs"]

    def test_what_the_journal_tells_too_has_the_same_ids_and_is_told_once(
        self, spark: SparkSession, yard: Yard
    ) -> None:
        _work(yard, zone=FAR)
        journal = {event["id"]: event for event in yard.events()}

        alone = of_snapshots(lines_of(spark, yard, with_journal=False), zone=FAR).collect()
        beside = of_snapshots(lines_of(spark, yard, with_journal=True), zone=FAR)

        assert sorted({(row["kind"], row["attempt"]) for row in alone}) == [
            *(("failed", 1), ("failed", 2), ("queued", 1), ("retried", 2)),
            *(("started", 1), ("started", 2), ("succeeded", 1), ("succeeded", 2)),
        ]
        assert [row["id"] for row in alone if row["id"] not in journal] == []
        for row in alone:
            told = journal[row["id"]]
            assert json.loads(row["data"]) == told["data"]
            assert (row["source"], row["group"], row["reason"]) == (
                told["source"],
                told.get("group"),
                told.get("reason"),
            )
        assert beside.collect() == []
        assert of_journal(lines_of(spark, yard, with_journal=True), "runforge.events").count() == len(journal)

    @pytest.mark.parametrize("order", [list, reversed])
    def test_a_run_believes_the_journal_whoever_is_asked_first(
        self, spark: SparkSession, yard: Yard, tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(build, "_TELLERS", dict(order(build._TELLERS.items())))
        _work(yard, zone="UTC")
        house = Warehouse(spark, str(tmp_path / "tables"))

        run(house, [Place(system=System.RUNFORGE, at=str(yard.root))])

        found = {row["id"]: row["actor"] for row in house.events.read().collect()}
        assert found == {event["id"]: event.get("actor") for event in yard.events()}
        assert any(found.values())


def _work(yard: Yard, *, zone: str) -> None:
    """Runs that succeed, fail, are retried as new jobs by a person, and are tried again by the daemon."""
    yard.make_run("stubborn", "false")
    yard.ok("enqueue-run", "--run-id", "stubborn", "--retries", "1", TZ=zone)
    path = yard.write_plan(yard.plan("sh", "-c", "[ $X = 1 ] || [ -e ok ]", values=[1, 2]))
    group = yard.ok("enqueue-sweep", "--plan", str(path), "--json", TZ=zone).json["group_id"]
    with yard.daemon(TZ=zone) as daemon:
        daemon.wait_for("JOB_DONE", 3)
        daemon.stop()
    yard.ok("retry-failed", "--group-id", group, TZ=zone)
    (yard.root / "ok").touch()
    with yard.daemon(TZ=zone) as daemon:
        daemon.wait_for("JOB_DONE", 1)
        daemon.stop()
