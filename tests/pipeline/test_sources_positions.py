"""One plan over all sources, and a run that takes all of them: real servers, real files, each record once."""

from __future__ import annotations

from collections import Counter
import json
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.events import System
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.run import run
from queueyard.pipeline.sources.places import feeds_at, secrets_of
from queueyard.pipeline.sources.positions import Plan, plan
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place
from runforge_scenarios import Yard
from servers import Server, own_server, raw_redis
from unit.ops.support.running import RunningServer, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = 1 << 60
PASSWORD = "correct-horse"


class Scene:
    """One place of each kind that is no plain growing file, and a workspace."""

    def __init__(self, redis: Server, ops: RunningServer, yard: Yard) -> None:
        self.redis, self.ops, self.yard = redis, ops, yard
        self.places = [
            Place(system=System.PANQUEUE, at=f"redis://:{PASSWORD}@127.0.0.1:{redis.port}"),
            Place(system=System.OPS, at=f"{ops.url}#space0"),
            Place(system=System.RUNFORGE, at=str(yard.root)),
        ]

    def tell(self, number: int) -> None:
        """Something new at every place."""
        entry = {"kind": "queued", "item": f"job-{number}", "attempt": "1", "actor": "a"}
        raw_redis(self.redis, password=PASSWORD).xadd("{q:mail}:events", entry)
        assert self.ops.push(batch(op(number), request=f"R{number}"), space="space0").status == 200
        self.yard.make_run(f"run-{number}")
        self.yard.ok("enqueue-run", "--run-id", f"run-{number}")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with own_server("--requirepass", PASSWORD) as redis, running_server(tmp_path / "server") as ops:
        yield Scene(redis, ops, Yard(tmp_path / "workspace"))


class TestThePlan:
    def test_nothing_is_read_where_there_is_nothing(self) -> None:
        found = plan([], {}, most_bytes=ALL)

        assert (found.reads, found.note, found.is_all, found.lost) == ([], {}, True, 0)

    def test_every_source_has_a_part_in_it_and_nothing_is_left_for_the_next(self, scene: Scene) -> None:
        scene.tell(1)

        first = plan(scene.places, {}, most_bytes=ALL)
        second = plan(scene.places, json.loads(json.dumps(first.note)), most_bytes=ALL)

        assert [read.format for read in first.reads] == [
            "queueyard_lines",
            "queueyard_snapshots",
            "queueyard_streams",
            "queueyard_feeds",
        ]
        assert second.reads == []

    def test_entries_beyond_the_limit_are_left_for_the_next_plan(self, scene: Scene) -> None:
        for number in range(1, 4):
            scene.tell(number)
        servers = scene.places[:2]
        note: dict[str, Any] = {}
        plans: list[Plan] = []

        while not plans or not plans[-1].is_all:
            plans.append(plan(servers, note, most_bytes=ALL, most_entries=1))
            note = plans[-1].note

        assert 3 <= len(plans) <= 5
        assert plan(servers, note, most_bytes=ALL).reads == []

    def test_what_somebody_else_noted_is_kept(self) -> None:
        assert plan([], {"mine": 1}, most_bytes=ALL).note == {"mine": 1}

    def test_snapshots_wait_for_the_batch_that_takes_all_of_the_journals(self, scene: Scene) -> None:
        scene.tell(1)
        scene.tell(2)
        folder = scene.places[2:]

        little = plan(folder, {}, most_bytes=10)
        rest = plan(folder, little.note, most_bytes=ALL)

        assert (little.is_all, rest.is_all) == (False, True)
        assert [read.format for read in little.reads] == ["queueyard_lines"]
        assert [read.format for read in rest.reads] == ["queueyard_lines", "queueyard_snapshots"]

    def test_a_journal_that_was_rotated_away_is_read_to_its_end(self, tmp_path: Path) -> None:
        journal = tmp_path / ".jj" / "repo" / "jjq" / "journal.jsonl"
        journal.parent.mkdir(parents=True)
        journal.write_text("one\n")
        places = [Place(system=System.JJQ, at=str(tmp_path))]
        note = plan(places, {}, most_bytes=ALL).note

        with journal.open("a") as stream:
            stream.write("two\n")
        journal.rename(journal.with_name("journal.jsonl.1"))
        journal.write_text("three\n")
        found = plan(places, json.loads(json.dumps(note)), most_bytes=ALL)

        assert found.bytes == len("two\nthree\n")
        assert plan(places, json.loads(json.dumps(found.note)), most_bytes=ALL).reads == []

    def test_runs_that_were_deleted_are_not_noted_for_ever(self, tmp_path: Path) -> None:
        place = Place(system=System.RUNFORGE, at=str(tmp_path))
        results = [tmp_path / ".ml" / "runs" / run / "result.json" for run in ("one", "two")]
        for result in results:
            result.parent.mkdir(parents=True)
            result.write_text("{}")
        note = plan([place], {}, most_bytes=ALL).note

        results[0].unlink()
        some = plan([place], json.loads(json.dumps(note)), most_bytes=ALL)
        results[1].unlink()
        none = plan([place], json.loads(json.dumps(some.note)), most_bytes=ALL)

        known = [list(found["snapshots"][str(tmp_path)]) for found in (note, some.note, none.note)]
        assert known == [[str(result) for result in results], [str(results[1])], []]
        assert (some.reads, none.reads) == ([], [])

    def test_the_token_goes_into_the_options_and_nowhere_else(self, scene: Scene) -> None:
        scene.tell(1)

        with pytest.raises(SourceFailed, match="401") as refused:
            plan(scene.places, {}, most_bytes=ALL, environment={"JOLLI_TOKEN": "a-token"})

        assert "a-token" not in f"{refused.value}{refused.value.hint}"

    def test_no_secret_is_in_the_note_or_in_what_is_shown_of_a_plan(self, scene: Scene) -> None:
        scene.tell(1)

        found = plan(scene.places, {}, most_bytes=ALL)

        assert PASSWORD not in f"{found.note}{found.reads}{found}"
        assert [PASSWORD in json.dumps(read.options) for read in found.reads] == [False, False, True, False]

    def test_folders_are_no_servers(self, tmp_path: Path) -> None:
        folders = [Place(system=system, at=str(tmp_path)) for system in System]

        assert (secrets_of(folders), feeds_at(folders)) == ({}, [])


class TestARun:
    def test_it_takes_every_source_once_and_keeps_no_secret(
        self, spark: SparkSession, scene: Scene, tmp_path: Path
    ) -> None:
        home = tmp_path / "pipeline"
        house = Warehouse(spark, str(home))
        scene.tell(1)
        first = run(house, scene.places)
        scene.tell(2)
        second = run(house, scene.places)

        lines = Counter(row["stream"] for row in house.lines.read().collect())
        events = Counter((row["system"], row["kind"]) for row in house.events.read().collect())
        files = [path for path in home.rglob("*") if path.is_file()]

        assert [(len(done.batches), done.quarantined) for done in (first, second)] == [(1, 0), (1, 0)]
        assert lines == {"runforge.events": 2, "runforge.queue": 2, "panqueue.events": 2, "ops.changes": 2}
        assert events == {("runforge", "queued"): 2, ("panqueue", "queued"): 2, ("ops", "succeeded"): 2}
        assert plan(scene.places, house.lines.log.note(), most_bytes=ALL).reads == []
        assert [path for path in files if PASSWORD.encode() in path.read_bytes()] == []
