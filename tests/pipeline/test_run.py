"""Runs over real files of queen: what is new is read once, and a death at any commit changes nothing in the end."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
import shutil
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
import pytest

from pipeline.histories import seen_in
from queueyard.kernel.errors import LockTimeout
from queueyard.kernel.events import System
from queueyard.kernel.lifecycle import Lifecycle
from queueyard.kernel.locks import FileLock
from queueyard.kernel.output import Progress
from queueyard.pipeline.compaction import compact
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.errors import SourceFailed, TablesDisagree, TableTooNew
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.names import GOLD_NAMES, TABLE_NAMES
from queueyard.pipeline.run import backfill, freshen, run
from queueyard.pipeline.schemas import LINES, QUARANTINE, SILVER, VIOLATIONS
from queueyard.pipeline.silver.build import REMADE, build, remake_events
from queueyard.pipeline.warehouse import VIEW_NAMES, Warehouse
from queueyard.pipeline.watch import watch
from queueyard.queen import Queen
from queueyard.yard.places import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from queueyard.pipeline.bronze.ingest import Ingested


class _Death(BaseException):
    """What a kill looks like from inside."""


class _Counted(Progress):
    """What a bar was told."""

    def __init__(self) -> None:
        super().__init__("", 0, None)
        self.done = self.expected = 0
        self.names: list[str] = []

    def expect(self, count: int) -> None:
        self.expected += count

    def advance(self, count: int = 1, note: str = "") -> None:
        self.done += count
        if note not in self.names:
            self.names.append(note)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / ".beads").mkdir(parents=True)
    _work(folder, "first")
    return folder


def test_what_is_new_is_read_and_then_nothing_is(spark: SparkSession, repository: Path, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]

    first = run(house, places)
    again = run(house, places)

    assert (len(first.batches), first.quarantined, again.batches) == (1, 0, [])
    assert house.view("messages").count() == 2
    kinds = sorted(row["kind"] for row in house.view("events").collect())
    assert kinds == ["queued", "queued", "read", "released", "started"]
    assert {name: DeltaLog(f"{house.home}/{name}").batch() for name in GOLD_NAMES} == dict.fromkeys(GOLD_NAMES, 0)


def test_a_run_takes_as_many_steps_as_it_has_said(spark: SparkSession, repository: Path, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    bars = [_Counted() for _ in range(3)]

    run(house, places, batch_bytes=1000, bar=bars[0])
    run(house, places, bar=bars[1])
    backfill(house, first="2000-01-01", last="9999-12-31", bar=bars[2])

    assert house.lines.log.batch() > 0
    assert all(bar.done == bar.expected for bar in bars), [(bar.done, bar.expected) for bar in bars]
    assert bars[0].expected > bars[1].expected
    assert bars[1].names == ["reading", "events", "records, items and attempts", "gold", "quality"]


def test_a_home_may_be_an_address(spark: SparkSession, repository: Path, tmp_path: Path) -> None:
    """Spark, delta-rs and Arrow are each handed the same one."""
    house = Warehouse(spark, (tmp_path / "home").as_uri())
    places = [Place(system=System.QUEEN, at=str(repository))]

    run(house, places)
    again = run(house, places)

    assert again.batches == []
    assert seen_in(Warehouse(spark, str(tmp_path / "home"))) == seen_in(house)
    assert house.view("messages").count() == 2


def test_tables_for_which_nothing_came_are_left_as_they_are(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    run(house, places)

    with Queen.open(repository, agent="ben", environment={}) as ben:
        ben.send("ana", "done")
    run(house, places)

    batches = {metric.name: house.table(metric.spec).log.batch() for metric in METRICS}
    untouched = ("durations", "fairness", "landing", "sync", "contention")
    assert batches == dict.fromkeys(batches, 1) | dict.fromkeys(untouched, 0)


def test_a_line_that_makes_no_sense_is_kept_with_the_reason(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    with (repository / ".beads" / "queen_messages.jsonl").open("a") as stream:
        stream.write('rubbish\n{"id": "qm-1", "read": "yes"}\n{"no": "id"}\n{"_migration": {"to": 2}}\n{"torn')
    house = Warehouse(spark, str(tmp_path / "home"))

    done = run(house, [Place(system=System.QUEEN, at=str(repository))])

    assert done.quarantined == 3
    reasons = {row["raw"]: row["reason"] for row in house.quarantine.read().collect()}
    assert reasons == {
        "rubbish": "cannot be read",
        '{"id": "qm-1", "read": "yes"}': "cannot be read",
        '{"no": "id"}': "no id",
    }


def test_a_death_at_any_commit_leaves_the_same_tables_in_the_end(
    spark: SparkSession, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every commit of two batches is died at, before and behind it; the next run goes on."""
    places = [Place(system=System.QUEEN, at=str(repository))]
    house = Warehouse(spark, str(tmp_path / "home"))
    commits = count()
    died = 0
    real = DeltaLog.commit

    def die_once_per_commit(log: DeltaLog, *arguments: Any, **options: Any) -> None:
        nonlocal died
        step = next(commits)
        # Before a commit, behind the next, then a rest in which the run gets on.
        if step % 3 == 0:
            died += 1
            raise _Death
        real(log, *arguments, **options)
        if step % 3 == 1:
            died += 1
            raise _Death

    def run_to_the_end() -> None:
        while True:
            try:
                run(house, places)
            except _Death:
                continue
            return

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", die_once_per_commit)
        run_to_the_end()
        _work(repository, "second")
        run_to_the_end()
    assert died > 20

    undisturbed = Warehouse(spark, str(tmp_path / "undisturbed"))
    run(undisturbed, places)
    for name in VIEW_NAMES:
        assert _rows(house, name) == _rows(undisturbed, name), name
    for metric in METRICS:
        mine, theirs = (_gold(one, metric.spec.name) for one in (house, undisturbed))
        assert mine == theirs, metric.name


def test_what_comes_between_a_death_and_the_next_run_is_told_as_it_would_have_been(
    spark: SparkSession, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run dies behind the events of a batch and before the records have it; then one of them changes."""
    places = [Place(system=System.QUEEN, at=str(repository))]
    house, quiet = (Warehouse(spark, str(tmp_path / name)) for name in ("home", "quiet"))
    with Queen.open(repository, agent="ana", environment={}) as ana:
        ana.reserve(["docs/**"], ttl="10m")
        run(quiet, places)
        with pytest.raises(_Death), _dying_at("silver/reservations", monkeypatch):
            run(house, places)
        ana.renew("docs/**", ttl="2h")
    for one in (house, quiet):
        run(one, places)

    kinds = [row["kind"] for row in house.view("events").orderBy("at", "id").collect()]
    assert kinds.count("renewed") == 1
    assert seen_in(house) == seen_in(quiet)


def test_what_was_refused_by_a_run_that_died_is_not_kept_beside_what_was_taken(
    spark: SparkSession, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half of a file was there when it was read; by the next run it is whole."""
    queue = repository / ".runforge" / "queue" / "queue.json"
    queue.parent.mkdir(parents=True)
    queue.write_text('{"kind": "execution_que')
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=system, at=str(repository)) for system in (System.QUEEN, System.RUNFORGE)]

    with pytest.raises(_Death), _dying_at("bronze/lines", monkeypatch):
        run(house, places)
    assert house.quarantine.read().count() == 1
    queue.write_text('{"kind": "execution_queue", "version": 1, "jobs": []}')

    done = run(house, places)

    assert [batch.quarantined for batch in done.batches] == [0]
    assert house.quarantine.read().count() == 0


def test_a_log_that_no_longer_says_how_far_sources_were_read_is_refused(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    run(house, places)
    house.lines.overwrite(house.lines.write(house.lines.read()), note={})

    with pytest.raises(TablesDisagree, match="no longer says how far"):
        run(house, places)


def test_a_silver_table_that_is_lost_is_made_anew_from_bronze(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    run(house, places)
    _work(repository, "second")
    run(house, places)
    before = {name: _rows(house, name) for name in VIEW_NAMES}
    for name in ("events", "messages", "items"):
        shutil.rmtree(tmp_path / "home" / "silver" / name)

    run(house, places)

    assert {name: _rows(house, name) for name in VIEW_NAMES} == before


def test_compacted_tables_say_the_same_and_go_on(spark: SparkSession, repository: Path, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    for word in ("second", "third"):
        run(house, places)
        _work(repository, word)
    before = {name: _rows(house, name) for name in VIEW_NAMES}

    gone = compact(house, most_files=1)

    assert {"bronze/lines", "silver/events", "silver/items", "silver/messages"} <= set(gone)
    assert {name: _rows(house, name) for name in VIEW_NAMES} == before
    run(house, places)
    undisturbed = Warehouse(spark, str(tmp_path / "undisturbed"))
    run(undisturbed, places)
    for name in VIEW_NAMES:
        assert _rows(house, name) == _rows(undisturbed, name), name


def test_days_that_are_made_anew_are_as_they_were_and_nothing_else_is_touched(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    """As if an older version had told the events of today wrongly."""
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    run(house, places)
    before = {name: _rows(house, name) for name in VIEW_NAMES}
    gold = {name: _gold(house, name) for name in GOLD_NAMES}
    (day,) = {str(row["day"]) for row in house.events.read().collect()}
    wrong = house.events.read().withColumn("kind", F.lit("failed"))
    house.events.overwrite(house.events.write(wrong), note={REMADE: "by an older version"})
    build(house)
    freshen(house)
    assert _gold(house, "gold/throughput") != gold["gold/throughput"]

    assert remake_events(house, first="2000-01-01", last="2000-12-31") == []
    assert remake_events(house, first=day, last=day) == [day]
    build(house)
    freshen(house)

    assert {name: _rows(house, name) for name in VIEW_NAMES} == before
    assert {name: _gold(house, name) for name in GOLD_NAMES} == gold


def test_a_watch_takes_what_comes_and_builds_it_before_it_ends(
    spark: SparkSession, repository: Path, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    lifecycle = Lifecycle()
    rows: list[int] = []

    def told(batch: Ingested) -> None:
        rows.append(batch.rows)
        if len(rows) == 1:
            _work(repository, "second")
        else:
            lifecycle.ask_to_stop()

    reached: list[int] = []
    watch(house, places, lifecycle, told=told, built=reached.append)

    undisturbed = Warehouse(spark, str(tmp_path / "undisturbed"))
    run(undisturbed, places)
    assert (len(rows), reached[-1]) == (2, 1)
    for name in VIEW_NAMES:
        assert _rows(house, name) == _rows(undisturbed, name), name


def test_a_watch_ends_with_what_went_wrong_while_it_built(
    spark: SparkSession, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(_house: Warehouse) -> None:
        raise _Death

    monkeypatch.setattr("queueyard.pipeline.watch.build", dies)
    house = Warehouse(spark, str(tmp_path / "home"))

    with pytest.raises(_Death):
        watch(
            house,
            [Place(system=System.QUEEN, at=str(repository))],
            Lifecycle(),
            told=lambda _: None,
            built=lambda _: None,
        )


def test_two_runs_at_once_are_one_run_and_one_refusal(spark: SparkSession, repository: Path, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    with FileLock(tmp_path / "home" / "lock"), pytest.raises(LockTimeout, match=r"pid \d+"):
        run(house, [Place(system=System.QUEEN, at=str(repository))])


def test_a_place_that_is_gone_is_named(spark: SparkSession, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))

    with pytest.raises(SourceFailed, match="there is no queen at") as refused:
        run(house, [Place(system=System.QUEEN, at=str(tmp_path / "gone"))])

    assert refused.value.hint is not None
    assert "queueyard remove" in refused.value.hint


def test_a_table_of_a_newer_version_is_not_touched(
    spark: SparkSession, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    places = [Place(system=System.QUEEN, at=str(repository))]
    with monkeypatch.context() as patch:
        patch.setattr("queueyard.pipeline.delta.LAYOUT", 2)
        run(house, places)

    with pytest.raises(TableTooNew, match="layout 2"):
        run(house, places)


def test_the_names_of_tables_are_those_of_the_schemas() -> None:
    known = [spec.name for spec in (LINES, QUARANTINE, *SILVER, *(metric.spec for metric in METRICS), VIOLATIONS)]

    assert sorted(TABLE_NAMES) == sorted(known)


@contextmanager
def _dying_at(table: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before its commit."""
    real = DeltaLog.commit

    def commit(log: DeltaLog, *arguments: Any, **options: Any) -> None:
        if log.address.endswith(table):
            raise _Death
        real(log, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "commit", commit)
        yield


def _work(repository: Path, word: str) -> None:
    with (
        Queen.open(repository, agent="ana", environment={}) as ana,
        Queen.open(repository, agent="ben", environment={}) as ben,
    ):
        (message,) = ana.send("ben", f"{word} message")
        ben.read(message.id)
        ben.reply(message.id, "yes")
        ana.reserve([f"src/{word}/**"])
        ana.unreserve(f"src/{word}/**")


def _rows(house: Warehouse, view: str) -> list[str]:
    return sorted(map(str, house.view(view).collect()))


def _gold(house: Warehouse, name: str) -> list[str]:
    return sorted(map(str, DeltaLog(f"{house.home}/{name}").read_rows()))
