"""Small frames by hand: a row names the columns that matter, and the rest has a default or is null."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T
from pyspark.testing import assertDataFrameEqual

from queueyard.pipeline import schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from queueyard.pipeline.schemas import TableSpec

DAY = date(2026, 1, 5)
_BOOKKEEPING = {
    "batch",
    "cleared",
    "generation",
    "position",
    "finished_id",
    "actor_order",
    "superseded_at",
    "superseded_reason",
}
_QUEUE = {"system": "panqueue", "source": "redis", "queue": "mail"}


def at(clock: str, *, day: date = DAY) -> datetime:
    """A moment of the day of the tests: "9:30", or "9:30:15.5"."""
    hours, minutes, *rest = clock.split(":")
    moment = datetime(day.year, day.month, day.day, int(hours), int(minutes), tzinfo=UTC)
    return moment + timedelta(seconds=float(rest[0]) if rest else 0)


def text(clock: str, *, day: date = DAY) -> str:
    """The same, as it stands in a record."""
    return at(clock, day=day).isoformat().replace("+00:00", "Z")


def events(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """The view `events`; `data` is given as a dict."""
    told = [{**_QUEUE, "item": "1", "attempt": 1, **row, "data": json.dumps(row.get("data", {}))} for row in rows]
    return view(spark, schemas.EVENTS, *told)


def attempts(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    known = [{**_QUEUE, "item": str(place), "attempt": 1, "stalls": 0, **row} for place, row in enumerate(rows)]
    return view(spark, schemas.ATTEMPTS, *known)


def view(spark: SparkSession, spec: TableSpec, *rows: dict[str, Any]) -> DataFrame:
    """A silver table as gold sees it: without what only the next batch needs."""
    fields = [field for field in spec.schema.fields if field.name not in _BOOKKEEPING]
    return _frame(spark, T.StructType(fields), rows)


def assert_rows(found: DataFrame, spec: TableSpec, *rows: dict[str, Any]) -> None:
    """Whether these are the rows, in any order, and the columns are those of the table."""
    assertDataFrameEqual(found, _frame(found.sparkSession, spec.schema, rows), rtol=1e-12, atol=1e-12)


def _frame(spark: SparkSession, schema: T.StructType, rows: tuple[dict[str, Any], ...]) -> DataFrame:
    names = schema.fieldNames()
    for row in rows:
        unknown = row.keys() - set(names)
        assert not unknown, f"no such column: {unknown}"
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)
