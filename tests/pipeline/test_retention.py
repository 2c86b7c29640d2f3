"""What nobody needs is deleted once it is old enough, and what somebody may need is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import types as T
import pytest

from queueyard.kernel.errors import LockTimeout
from queueyard.kernel.locks import FileLock
from queueyard.pipeline.retention import vacuum
from queueyard.pipeline.schemas import TableSpec
from queueyard.pipeline.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAME = "silver/things"
_SCHEMA = T.StructType([T.StructField("id", T.StringType()), T.StructField("batch", T.LongType())])
_NOTE = {"lines": {"a.jsonl": 7}}
_LONG_AGO_S = 1_000_000_000


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Table:
    """Two commits that count, one that was replaced, and one write that nobody committed."""
    table = Table(spark, str(tmp_path), TableSpec(name=_NAME, schema=_SCHEMA))
    table.commit(table.write(_rows(spark, "a", 0)), batch=0, note=_NOTE)
    table.overwrite(table.write(_rows(spark, "b", 0)))
    table.commit(table.write(_rows(spark, "c", 1)), batch=1)
    table.write(_rows(spark, "d", 2))
    unfinished = Path(table.address) / "write=1" / "_temporary" / "0"
    unfinished.mkdir(parents=True)
    (unfinished / "part-0.parquet").write_bytes(b"half")
    return table


def test_what_was_replaced_or_never_committed_goes_and_nothing_else(table: Table) -> None:
    _make_old(table)
    wanted = {file.path for file in table.log.files()}
    unwanted = _parquet(table) - wanted

    gone = vacuum(str(Path(table.address).parents[1]), [_NAME], hours=1)

    assert gone == {_NAME: len(unwanted)}
    assert _parquet(table) == wanted
    assert sorted(row["id"] for row in table.read().collect()) == ["b", "c"]
    assert len(list(Path(table.address).glob("write=*"))) == 2
    assert vacuum(str(Path(table.address).parents[1]), [_NAME], hours=1) == {_NAME: 0}


def test_what_is_young_stays(table: Table) -> None:
    before = _files(table)

    gone = vacuum(str(Path(table.address).parents[1]), [_NAME], hours=1)

    assert gone == {_NAME: 0}
    assert _files(table) == before


def test_a_commit_that_changes_no_row_says_how_far_sources_were_read(table: Table) -> None:
    """Nobody has to look further back for it, where it may be gone one day."""
    _make_old(table)

    table.log.compact()
    newest = [DeltaTable(table.address).history(1)[0]]
    vacuum(str(Path(table.address).parents[1]), [_NAME], hours=1)
    newest.append(DeltaTable(table.address).history(1)[0])

    assert [one["operation"] for one in newest] == ["OPTIMIZE", "VACUUM END"]
    assert all("a.jsonl" in one["queueyard"] for one in newest)
    assert (table.log.note(), table.log.batch()) == (_NOTE, 1)


def test_nothing_is_deleted_beside_a_run(table: Table) -> None:
    """What it has written stands in no log yet."""
    _make_old(table)
    home = Path(table.address).parents[1]
    before = _files(table)

    with FileLock(home / "lock"), pytest.raises(LockTimeout):
        vacuum(str(home), [_NAME], hours=0)

    assert _files(table) == before


def _rows(spark: SparkSession, name: str, batch: int) -> DataFrame:
    return spark.createDataFrame([(name, batch)], _SCHEMA)


def _files(table: Table) -> set[Path]:
    return {file for file in Path(table.address).glob("write=*/**/*") if file.is_file()}


def _parquet(table: Table) -> set[str]:
    return {str(file.relative_to(table.address)) for file in _files(table) if file.suffix == ".parquet"}


def _make_old(table: Table) -> None:
    for file in _files(table):
        os.utime(file, (_LONG_AGO_S, _LONG_AGO_S))
    for commit in Path(table.address, "_delta_log").glob("*.json"):
        # When a file was removed stands in the commit that removed it.
        text = commit.read_text()
        for word in ('"deletionTimestamp":', '"modificationTime":'):
            head, *rest = text.split(word)
            text = head + "".join(f"{word}{_LONG_AGO_S * 1000}{part.lstrip('0123456789')}" for part in rest)
        commit.write_text(text)
