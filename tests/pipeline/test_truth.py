"""The whole pipeline over made-up histories of all five systems, against plain Python that reads the same files."""

from __future__ import annotations

from datetime import UTC, datetime
import json
from typing import TYPE_CHECKING, Any

from pipeline import oracle
from pipeline.oracle_tables import differences, expected
from queueyard.kernel.events import System
from queueyard.pipeline.generator import generate
from queueyard.pipeline.generator.panqueue import load
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.run import run
from queueyard.pipeline.sources.redis_client import place_of
from queueyard.pipeline.warehouse import VIEW_NAMES, Warehouse
from queueyard.yard.places import Place
from servers import Server

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_EVENTS = 1_500
#: so that the files are read in more than one batch
_BATCH_BYTES = 150_000


def test_every_table_is_what_plain_python_makes_of_the_same_files(spark: SparkSession, tmp_path: Path) -> None:
    made = generate(tmp_path / "made", events=_EVENTS, seed=33)
    server = Server("valkey")
    try:
        for path in (tmp_path / "made" / "panqueue").iterdir():
            load(path, server.url)
        house = Warehouse(spark, str(tmp_path / "home"))

        done = run(house, _places(tmp_path / "made", server.url), batch_bytes=_BATCH_BYTES)
    finally:
        server.stop()

    assert len(done.batches) > 1
    assert done.quarantined == sum(stream.corrupt for stream in made.streams)
    names = oracle.Names(
        queen=str(tmp_path / "made" / "queen"), panqueue=place_of(server.url), ops=str(tmp_path / "made" / "ops")
    )
    wanted = expected(tmp_path / "made", names)
    found = {f"silver/{name}": house.view(name) for name in VIEW_NAMES}
    found |= {metric.spec.name: house.table(metric.spec).read() for metric in METRICS}
    assert set(found) == set(wanted)
    for name, table in wanted.items():
        assert table.rows, f"{name} would be held against nothing"
        assert differences(_rows(found[name]), table) == [], name


def _places(folder: Path, redis: str) -> list[Place]:
    folders = {
        "queen": System.QUEEN,
        "runforge": System.RUNFORGE,
        "jjq": System.JJQ,
        "ops": System.OPS,
        "ops-client": System.OPS,
    }
    local = [Place(system=system, at=str(folder / name)) for name, system in folders.items()]
    return [*local, Place(system=System.PANQUEUE, at=redis)]


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    return [{name: _plain(name, value) for name, value in row.asDict().items()} for row in frame.collect()]


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC)
    if name == "data":
        return (json.loads(value) if value else None) or None
    return value
