"""Files that older versions and other tools wrote, of every source, go through bronze and silver for ever."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
import shutil
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.events import System
from queueyard.pipeline.generator.panqueue import load
from queueyard.pipeline.run import take
from queueyard.pipeline.silver.build import build
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.streams import STREAMS
from queueyard.pipeline.warehouse import Warehouse
from queueyard.yard.places import Place
from servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_DATA = Path(__file__).parents[1] / "data"
_QUEEN = ("messages", "assignments", "reservations")
_WRITERS = ("spec", "public_tool", "v0_1")
#: which frozen file stands where in a yard
_FILES = {
    "runforge/contract/queue.json": "contract/.runforge/queue/queue.json",
    "runforge/public_tool/queue.json": "public_tool/.runforge/queue/queue.json",
    "runforge/public_tool/group.json": "public_tool/.runforge/groups/one/group.json",
    "runforge/public_tool/result_minimal.json": "public_tool/.ml/runs/one/result.json",
    "runforge/public_tool/result_succeeded.json": "public_tool/.ml/runs/two/result.json",
    "pipeline/v0_1_runforge_events.jsonl": "v0_1/.runforge/queue/events.jsonl",
    "jjq/v0_1_journal.jsonl": "v0_1/.jj/repo/jjq/journal.jsonl",
    "ops/export/changes-000000000001-000000000003.jsonl": "export/changes-000000000001-000000000003.jsonl",
    "ops/export/audit-000000000001-000000000002.jsonl": "export/audit-000000000001-000000000002.jsonl",
    "pipeline/v0_1_ops_events.jsonl": "client/events.jsonl",
    "queen/spec_migration.jsonl": "spec/.beads/queen_archive/queen_messages-2024.jsonl",
    **{f"queen/{who}_{what}.jsonl": f"{who}/.beads/queen_{what}.jsonl" for who in _WRITERS for what in _QUEEN},
}
_PLACES = {
    System.QUEEN: _WRITERS,
    System.RUNFORGE: ("contract", "public_tool", "v0_1"),
    System.JJQ: ("v0_1",),
    System.OPS: ("export", "client"),
}
#: counted by hand in the files
_TOLD = {
    System.QUEEN: {"queued": 7, "read": 3, "deleted": 1, "started": 11, "succeeded": 1}
    | {"released": 3, "canceled": 2, "renewed": 1},
    System.RUNFORGE: {"queued": 7, "started": 4, "succeeded": 3, "failed": 1, "deleted": 2},
    System.JJQ: {"queued": 3, "started": 4, "succeeded": 2, "failed": 1, "released": 1},
    System.OPS: {"queued": 1, "started": 1, "succeeded": 4, "failed": 1, "conflicted": 1},
    System.PANQUEUE: {"queued": 3, "started": 3, "succeeded": 2},
}


@pytest.fixture
def redis() -> Iterator[str]:
    server = Server("valkey")
    load(_DATA / "pipeline" / "mail.entries.jsonl", server.url)
    yield server.url
    server.stop()


def test_frozen_files_of_every_source_become_events_and_records(
    spark: SparkSession, redis: str, tmp_path: Path
) -> None:
    for frozen, place in _FILES.items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_DATA / frozen, tmp_path / place)
    places = [Place(system=system, at=str(tmp_path / name)) for system, names in _PLACES.items() for name in names]
    house = Warehouse(spark, str(tmp_path / "home"))

    found = plan([*places, Place(system=System.PANQUEUE, at=redis)], {}, most_bytes=1 << 30)
    done = take(house, found)
    build(house)

    assert done.quarantined == 0
    assert {row["stream"] for row in house.lines.read().select("stream").distinct().collect()} == set(STREAMS)
    told = house.view("events").collect()
    assert {system: dict(Counter(row["kind"] for row in told if row["system"] == system)) for system in System} == _TOLD
    assert all(row["at"].year > 2000 for row in told)
    messages = {row["id"]: row for row in house.view("messages").collect()}
    assert messages["qm-01HZ1A"]["subject"] == "[qb-42] Assigned: Button component"
    assert messages["qm-01HZ1A"]["read"]
    files = {row["file"]: (row["version"], row["is_deleted"]) for row in house.view("files").collect()}
    assert files == {"FILE1": (2, True), "FILE2": (1, False)}
