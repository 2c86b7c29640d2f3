"""Every gold table is defined in writing, can be made, and uses only types that every reader of Parquet knows."""

from __future__ import annotations

from pathlib import Path
import re
from typing import TYPE_CHECKING

from pyspark.sql import types as T
from pyspark.testing import assertSchemaEqual
import pytest

from pipeline.frames import view
from queueyard.pipeline import schemas
from queueyard.pipeline.gold import METRICS, Metric

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE = Path(__file__).parents[2] / "docs" / "pipeline" / "metrics.md"
_SILVER = {spec.name.partition("/")[2]: spec for spec in schemas.SILVER}
_PLAIN = (T.StringType, T.LongType, T.DoubleType, T.TimestampType, T.DateType, T.BooleanType)

each = pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)


def _columns_on_the_page(name: str) -> list[str]:
    section = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", _PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert section, f"{_PAGE.name} has no section {name}"
    rows = re.findall(r"^\| (`.*?) \|", section[1], re.MULTILINE)
    return [column for row in rows for column in re.findall(r"`(\w+)`", row)]


@each
def test_each_column_is_defined_once_and_in_order(metric: Metric) -> None:
    assert _columns_on_the_page(metric.name) == metric.spec.schema.fieldNames()


@each
def test_only_types_that_every_reader_knows(metric: Metric) -> None:
    odd = [field.name for field in metric.spec.schema.fields if not isinstance(field.dataType, _PLAIN)]

    assert odd == []


@each
def test_each_table_can_be_made_of_nothing(spark: SparkSession, metric: Metric) -> None:
    views = {name: view(spark, _SILVER[name]) for name in metric.needs}

    made = metric.make(**views)

    assertSchemaEqual(made.schema, metric.spec.schema)
    assert made.count() == 0


def test_names_are_unique_and_the_layer_is_gold() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert {metric.spec.layer for metric in METRICS} == {"gold"}


def test_each_table_of_the_gold_layer_has_a_metric() -> None:
    specs = {value.name for value in vars(schemas).values() if isinstance(value, schemas.TableSpec)}

    assert {name for name in specs if name.startswith("gold/")} == {metric.spec.name for metric in METRICS}
