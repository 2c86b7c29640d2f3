"""The tables belong to nobody: another engine (DataFusion, by way of delta-rs) reads in them what Spark reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, QueryBuilder
import pyarrow as pa
import pytest

from queueyard.pipeline import schemas
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed
    from queueyard.pipeline.schemas import TableSpec

_SPECS = (schemas.LINES, schemas.QUARANTINE, *schemas.SILVER, *[metric.spec for metric in METRICS])


@pytest.mark.parametrize("spec", _SPECS, ids=lambda spec: spec.name)
def test_every_row_of_a_table_is_there_for_another_engine(
    spark: SparkSession, undisturbed: Undisturbed, spec: TableSpec
) -> None:
    ours = Warehouse(spark, str(undisturbed.home)).table(spec)
    told = QueryBuilder().register("told", DeltaTable(ours.address))

    found = pa.table(told.execute("SELECT * FROM told").read_all()).to_pylist()

    # Nobody waits for anybody in histories as short as these.
    assert found or spec is schemas.CONTENTION
    assert _sorted(found) == _sorted(ours.read().toArrow().to_pylist())


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)
