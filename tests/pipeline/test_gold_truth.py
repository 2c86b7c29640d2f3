"""Every gold table against plain Python, on generated histories of all five systems."""

from __future__ import annotations

from datetime import UTC
import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.frames import view
from pipeline.oracle_tables import Expected, differences, expected
from queueyard.pipeline import schemas
from queueyard.pipeline.generator import generate
from queueyard.pipeline.gold import METRICS, Metric

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_SILVER = {spec.name: spec for spec in schemas.SILVER}


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Expected]:
    folder = tmp_path_factory.mktemp("histories") / "all"
    generate(folder, events=4_000, seed=11)
    return expected(folder)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_number_is_the_one_that_plain_python_computes(
    spark: SparkSession, truth: dict[str, Expected], metric: Metric
) -> None:
    views = {name: _view(spark, f"silver/{name}", truth) for name in metric.needs}

    found = [_plain(row) for row in metric.make(**views).collect()]

    assert truth[metric.spec.name].rows
    assert differences(found, truth[metric.spec.name]) == []


def _view(spark: SparkSession, name: str, truth: dict[str, Expected]) -> DataFrame:
    rows = [row | ({"data": json.dumps(row["data"])} if "data" in row else {}) for row in truth[name].rows]
    return view(spark, _SILVER[name], *rows)


def _plain(row: Row) -> dict[str, Any]:
    """Spark gives times in the zone of the machine, and without saying so."""
    return {
        name: value.astimezone(UTC) if name.endswith("_at") and value is not None else value
        for name, value in row.asDict().items()
    }
