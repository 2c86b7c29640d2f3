"""Gold that is made day by day says what gold made of everything says, whatever comes and in whichever order."""

from __future__ import annotations

import json
from pathlib import Path
import shutil
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
import pytest

from pipeline.histories import seen_in
from pipeline.run_driver import FOLDERS, places_in
from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import System
from queueyard.kernel.ids import derived_ulid
from queueyard.pipeline import schemas
from queueyard.pipeline.compaction import compact
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.gold.days import changed, narrowed
from queueyard.pipeline.run import run, take
from queueyard.pipeline.silver.build import build
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

_JOURNAL = Path(".jj") / "repo" / "jjq" / "journal.jsonl"
_RESERVATIONS = Path(".beads") / "queen_reservations.jsonl"
_CUTS = (0.3, 0.55, 0.9, 1)


def test_histories_that_come_in_pieces_give_the_gold_of_the_whole(
    spark: SparkSession, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    for share in _CUTS:
        _copy(undisturbed.folder, tmp_path / "made", share=share)
        run(house, places_in(tmp_path / "made"))

    found = {name: rows for name, rows in seen_in(house).items() if name.startswith("gold/")}

    here, there = str(tmp_path / "made"), str(undisturbed.folder)
    assert {name: [row.replace(here, there) for row in rows] for name, rows in found.items()} == {
        name: undisturbed.seen[name] for name in found
    }


def test_a_wait_that_moves_to_another_day_is_gone_from_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    """No event of the first day comes with the second start, and yet that day changes."""
    at = _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-01T23:10:00Z"))
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])
    first = _rows(house, "summary", "day", "wait_p50_s")

    _jjq(tmp_path, ("started", "2026-03-03T01:00:00Z"))
    run(house, [at])

    assert first == [("2026-03-01", 600.0)]
    assert _rows(house, "summary", "day", "wait_p50_s") == [("2026-03-01", None), ("2026-03-03", 93_600.0)]


def test_such_a_wait_is_gone_even_if_tables_were_compacted_before_gold_was_made(
    spark: SparkSession, tmp_path: Path
) -> None:
    at = _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-01T23:10:00Z"))
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])

    _jjq(tmp_path, ("started", "2026-03-03T01:00:00Z"))
    take(house, plan([at], house.lines.log.note(), most_bytes=1 << 20))
    build(house)
    compact(house, most_files=0)
    run(house, [at])

    assert _rows(house, "summary", "day", "wait_p50_s") == [("2026-03-01", None), ("2026-03-03", 93_600.0)]


def test_a_hold_that_ends_earlier_is_gone_from_the_days_behind_its_end(spark: SparkSession, tmp_path: Path) -> None:
    ana = {"id": "qr-1", "agent": "ana", "pattern": "src/**", "created_at": "2026-03-01T08:00:00Z"}
    ben = {"id": "qr-2", "agent": "ben", "pattern": "src/**", "created_at": "2026-03-04T08:00:00Z"}
    at = _queen(tmp_path, ana | {"expires_at": "2026-03-09T08:00:00Z"}, ben | {"expires_at": "2026-03-04T09:00:00Z"})
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])
    first = _rows(house, "contention", "day", "holder", "overlap_s")

    _queen(tmp_path, {"id": "qr-1", "status": "released", "released_at": "2026-03-02T08:00:00Z"})
    run(house, [at])

    assert first == [("2026-03-04", "ana", 3600.0)]
    assert _rows(house, "contention", "day", "holder", "overlap_s") == []


def test_one_who_comes_later_meets_a_hold_of_an_earlier_batch(spark: SparkSession, tmp_path: Path) -> None:
    """What was told before, and does not change, is looked at as far as it reaches into the new days."""
    ana = {"id": "qr-1", "agent": "ana", "pattern": "src/**", "created_at": "2026-03-01T08:00:00Z"}
    eva = {"id": "qr-0", "agent": "eva", "pattern": "src/a.py", "created_at": "2026-02-01T08:00:00Z"}
    at = _queen(tmp_path, ana | {"expires_at": "2026-03-09T08:00:00Z"}, eva | {"expires_at": "2026-02-01T09:00:00Z"})
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])

    ben = {"id": "qr-2", "agent": "ben", "pattern": "src/a.py", "created_at": "2026-03-04T08:00:00Z"}
    _queen(tmp_path, ben | {"expires_at": "2026-03-04T09:00:00Z"})
    run(house, [at])

    assert _rows(house, "contention", "day", "holder", "waiter") == [("2026-03-04", "ana", "ben")]
    days = changed(house, "reservations", after=0)
    assert days == {"2026-03-04"}
    assert {row["id"] for row in narrowed(house, "reservations", days).collect()} == {"qr-1", "qr-2"}


def test_only_files_of_the_days_that_changed_are_opened(spark: SparkSession, tmp_path: Path) -> None:
    at = _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-02T08:00:00Z"))
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])
    _jjq(tmp_path, ("succeeded", "2026-03-02T09:00:00Z"))
    run(house, [at])

    days = changed(house, "events", after=0)

    assert days == {"2026-03-02"}
    opened = narrowed(house, "events", days).inputFiles()
    assert len(opened) == 2
    assert all("day=2026-03-02" in file for file in opened)


@pytest.mark.parametrize("lost", ["edition", "table"])
def test_a_day_is_kept_only_if_it_was_made_by_the_same_rule_of_the_same_table(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    at = _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-01T23:10:00Z"))
    house = Warehouse(spark, str(tmp_path / "home"))
    run(house, [at])
    whole = _rows(house, "throughput", "grain", "queued", "started")
    table = house.table(schemas.THROUGHPUT)
    wrong = table.read().withColumn("queued", F.lit(7).cast("long"))
    note = table.log.note()
    table.overwrite(table.write(wrong, upto=0), note=note | ({"edition": 0} if lost == "edition" else {}))
    if lost == "table":
        shutil.rmtree(Path(house.home) / "silver" / "events")

    run(house, [at])

    assert _rows(house, "throughput", "grain", "queued", "started") == whole


def _copy(folder: Path, target: Path, *, share: float) -> None:
    """So much of the lines of every file that grows, and the other files with the last lines."""
    for name in FOLDERS:
        shutil.copytree(folder / name, target / name, dirs_exist_ok=True, copy_function=_copy_of(share))


def _copy_of(share: float) -> Callable[[str, str], None]:
    def copy(source: str, target: str) -> None:
        if not source.endswith(".jsonl") and share < 1:
            return
        lines = Path(source).read_bytes().splitlines(keepends=True)
        # The file stays the same one, as if somebody had appended to it.
        with Path(target).open("ab") as stream:
            stream.truncate(0)
            stream.writelines(lines[: round(len(lines) * share)])

    return copy


def _jjq(folder: Path, *told: tuple[str, str]) -> Place:
    """One item of a merge queue, and what happened to it."""
    common = {"system": "jjq", "source": "here", "queue": "main", "item": "1", "attempt": 1, "data": {}}
    lines = [{"id": derived_ulid(from_rfc3339(at), kind), "at": at, "kind": kind, **common} for kind, at in told]
    _append(folder / "jjq" / _JOURNAL, *lines)
    return Place(system=System.JJQ, at=str(folder / "jjq"))


def _queen(folder: Path, *lines: dict[str, Any]) -> Place:
    _append(folder / "queen" / _RESERVATIONS, *lines)
    return Place(system=System.QUEEN, at=str(folder / "queen"))


def _append(file: Path, *lines: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(line) + "\n" for line in lines)


def _rows(house: Warehouse, metric: str, *columns: str) -> list[tuple[Any, ...]]:
    spec = next(one.spec for one in METRICS if one.name == metric)
    rows = [tuple(map(_plain, row)) for row in house.table(spec).read().select(*columns).collect()]
    return sorted(rows, key=str)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, float | int) else str(value)
