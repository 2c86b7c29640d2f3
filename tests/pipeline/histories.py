"""Made-up histories and what an undisturbed run makes of them, row by row: the measure of every other way to run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipeline.run_driver import FOLDERS, places_in
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.generator import generate
from queueyard.pipeline.names import GOLD_NAMES, TABLE_NAMES
from queueyard.pipeline.run import run
from queueyard.pipeline.warehouse import VIEW_NAMES, Warehouse

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

Tables = dict[str, list[str]]

_EVENTS = 400
#: so that it takes several batches
BATCH_BYTES = 40_000
#: what tells when or by which batch a row came, and nothing else
_BOOKKEEPING = frozenset({"ingested_at", "batch", "since"})


@dataclass(frozen=True, kw_only=True)
class Undisturbed:
    """Histories, and the tables of a run that nobody disturbed."""

    folder: Path
    home: Path
    batches: int
    #: every table as people see it, however many batches it took
    seen: Tables


def undisturbed_run(spark: SparkSession, folder: Path) -> Undisturbed:
    generate(folder / "made", events=_EVENTS, seed=7, systems=[*set(FOLDERS.values())])
    (folder / "made" / "queueyard.toml").write_text(
        "".join(f'[[place]]\nsystem = "{system}"\nat = "{name}"\n' for name, system in FOLDERS.items())
    )
    house = Warehouse(spark, str(folder / "home"))
    done = run(house, places_in(folder / "made"), batch_bytes=BATCH_BYTES)
    return Undisturbed(folder=folder / "made", home=folder / "home", batches=len(done.batches), seen=seen_in(house))


def tables_of(home: str) -> Tables:
    """All rows of all tables but for the time of reading; needs no Spark."""
    return {
        name: _sorted(DeltaLog(f"{home}/{name}").read_rows(), without=frozenset({"ingested_at"}))
        for name in TABLE_NAMES
    }


def seen_in(house: Warehouse) -> Tables:
    """Bronze, the silver views and gold, without the numbers of batches."""
    logs = ("bronze/lines", "bronze/quarantine", *GOLD_NAMES)
    rows = {name: DeltaLog(f"{house.home}/{name}").read_rows() for name in logs}
    rows |= {name: [row.asDict() for row in house.view(name).collect()] for name in VIEW_NAMES}
    return {name: _sorted(ones, without=_BOOKKEEPING) for name, ones in rows.items()}


def _sorted(rows: Iterable[dict[str, Any]], *, without: frozenset[str]) -> list[str]:
    return sorted(str({name: _plain(value) for name, value in row.items() if name not in without}) for row in rows)


def _plain(value: Any) -> Any:
    # The last digits of a sum depend on the order of its parts.
    if isinstance(value, float):
        return f"{value:.9g}"
    return value.isoformat() if isinstance(value, datetime) else value
