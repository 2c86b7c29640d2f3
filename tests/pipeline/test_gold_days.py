"""Gold that is made day by day says what gold made of everything says, whatever comes and in whichever order."""

from __future__ import annotations

import json
from pathlib import Path
import shutil
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from pipeline.histories import seen_in
from pipeline.run_driver import FOLDERS, places_in
from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import System
from queueyard.kernel.ids import derived_ulid
from queueyard.pipeline import schemas
from queueyard.pipeline.compaction import compact
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.gold.days import changed, narrowed
from queueyard.pipeline.gold.refresh import refresh
from queueyard.pipeline.run import take
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
_CUTS = (0.4, 0.8, 1)


def test_histories_that_come_in_pieces_give_the_gold_of_the_whole(
    spark: SparkSession, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    for share in _CUTS:
        _copy(undisturbed.folder, tmp_path / "made", share=share)
        _take(house, *places_in(tmp_path / "made"))
        refresh(house)

    found = {name: rows for name, rows in seen_in(house).items() if name.startswith("gold/")}

    here, there = str(tmp_path / "made"), str(undisturbed.folder)
    assert {name: [row.replace(here, there) for row in rows] for name, rows in found.items()} == {
        name: undisturbed.seen[name] for name in found
    }


def test_a_wait_that_moves_to_another_day_is_gone_from_the_old_one(spark: SparkSession, tmp_path: Path) -> None:
    """No event of the old day comes with another start, and yet that day changes."""
    house = Warehouse(spark, str(tmp_path / "home"))
    _take(house, _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-01T23:10:00Z")))
    refresh(house)
    first = _rows(house, "summary", "day", "wait_p50_s")

    _take(house, _jjq(tmp_path, ("started", "2026-03-03T01:00:00Z")))
    refresh(house)
    second = _rows(house, "summary", "day", "wait_p50_s")

    _take(house, _jjq(tmp_path, ("started", "2026-03-04T00:00:00Z")))
    # What the wait was before is forgotten here, so gold must have come before.
    compact(house, most_files=0)
    refresh(house)
    third = _rows(house, "summary", "day", "wait_p50_s")

    assert first == [("2026-03-01", 600.0)]
    assert second == [("2026-03-01", None), ("2026-03-03", 93_600.0)]
    assert third == [("2026-03-01", None), ("2026-03-03", None), ("2026-03-04", 176_400.0)]


def test_only_files_of_the_days_that_changed_are_opened(spark: SparkSession, tmp_path: Path) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    _take(house, _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-02T08:00:00Z")))
    _take(house, _jjq(tmp_path, ("succeeded", "2026-03-02T09:00:00Z")))

    days = changed(house, "events", after=0)

    assert days == {"2026-03-02"}
    opened = narrowed(house, "events", days).inputFiles()
    assert len(opened) == 2
    assert all("day=2026-03-02" in file for file in opened)


def test_a_hold_counts_on_the_days_that_it_reaches_and_on_no_other_once_it_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    ana = {"id": "qr-1", "agent": "ana", "pattern": "src/**", "created_at": "2026-03-01T08:00:00Z"}
    ben = {"id": "qr-2", "agent": "ben", "pattern": "src/a.py", "created_at": "2026-03-04T08:00:00Z"}
    eva = {"id": "qr-0", "agent": "eva", "pattern": "src/a.py", "created_at": "2026-02-01T08:00:00Z"}
    house = Warehouse(spark, str(tmp_path / "home"))
    old = [ana | {"expires_at": "2026-03-09T08:00:00Z"}, eva | {"expires_at": "2026-02-01T09:00:00Z"}]
    _take(house, _queen(tmp_path, *old))
    refresh(house)

    _take(house, _queen(tmp_path, ben | {"expires_at": "2026-03-04T09:00:00Z"}))
    days = changed(house, "reservations", after=0)
    looked_at = {row["id"] for row in narrowed(house, "reservations", days).collect()}
    refresh(house)
    met = _rows(house, "contention", "day", "holder", "waiter", "overlap_s")

    _take(house, _queen(tmp_path, {"id": "qr-1", "status": "released", "released_at": "2026-03-02T08:00:00Z"}))
    refresh(house)

    assert days == {"2026-03-04"}
    assert looked_at == {"qr-1", "qr-2"}
    assert met == [("2026-03-04", "ana", "ben", 3600.0)]
    assert _rows(house, "contention", "day") == []


def test_a_change_that_reaches_no_day_keeps_all_of_them(spark: SparkSession, tmp_path: Path) -> None:
    until = {"pattern": "src/**", "expires_at": "2026-03-01T09:00:00Z"}
    ana = {"id": "qr-1", "agent": "ana", "created_at": "2026-03-01T08:00:00Z", **until}
    ben = {"id": "qr-2", "agent": "ben", "created_at": "2026-03-01T08:30:00Z", **until}
    house = Warehouse(spark, str(tmp_path / "home"))
    _take(house, _queen(tmp_path, ana, ben))
    refresh(house)

    _take(house, _queen(tmp_path, {"id": "qr-3", "agent": "eva", "pattern": "src/**"}))
    days = changed(house, "reservations", after=0)
    refresh(house)

    assert days == set()
    assert _rows(house, "contention", "holder", "waiter", "overlap_s") == [("ana", "ben", 1800.0)]


def test_a_day_is_kept_only_if_it_was_made_by_the_same_rule_of_the_same_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    house = Warehouse(spark, str(tmp_path / "home"))
    _take(house, _jjq(tmp_path, ("queued", "2026-03-01T23:00:00Z"), ("started", "2026-03-01T23:10:00Z")))
    refresh(house)
    whole = _rows(house, "throughput", "grain", "queued", "started")

    def spoil(**origin: int) -> None:
        table = house.table(schemas.THROUGHPUT)
        wrong = table.read().withColumn("queued", F.lit(7).cast("long"))
        table.overwrite(table.write(wrong), note=table.log.note() | origin)

    spoil()
    nothing_made = refresh(house)
    spoil(edition=0)
    made_by_edition = refresh(house)
    rows_by_edition = _rows(house, "throughput", "grain", "queued", "started")
    spoil()
    shutil.rmtree(Path(house.home) / "silver" / "events")
    build(house)
    refresh(house)

    assert nothing_made == []
    assert made_by_edition == ["throughput"]
    assert rows_by_edition == whole
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


def _take(house: Warehouse, *places: Place) -> None:
    """Bronze and silver, as far as the places have come."""
    take(house, plan(places, house.lines.log.note(), most_bytes=1 << 30))
    build(house)


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
