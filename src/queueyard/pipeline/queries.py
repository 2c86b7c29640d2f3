"""Questions in SQL over the silver views and the gold tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    SparkRuntimeException,
)
from pyspark.sql import functions as F
from pyspark.sql import types as T

from queueyard.pipeline.errors import BadQuery
from queueyard.pipeline.gold import METRICS
from queueyard.pipeline.schemas import VIOLATIONS
from queueyard.pipeline.warehouse import VIEW_NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from queueyard.pipeline.warehouse import Warehouse


#: what Spark says of a question, before it is answered or on the way: a division by zero, a text that is no number
_OF_THE_QUESTION = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    SparkRuntimeException,
)


def ask(house: Warehouse, sql: str, *, limit: int) -> tuple[list[str], list[tuple[Any, ...]]]:
    """(columns, rows). BadQuery, in Spark's words, for what it does not understand or cannot compute."""
    offer(house)
    try:
        answer = _times_as_text(house.spark.sql(sql).limit(limit))
        return answer.columns, [tuple(row) for row in answer.collect()]
    except _OF_THE_QUESTION as fault:
        raise BadQuery(
            next(line for line in str(fault).splitlines() if line.strip()),
            hint="The tables: queueyard pipeline status; columns: queueyard pipeline explain",
        ) from fault


def _times_as_text(answer: DataFrame) -> DataFrame:
    """Times in UTC as the rest of the house writes them; Spark would give them in the zone of this machine."""
    return answer.select(
        *[
            F.date_format(f"`{field.name}`", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias(field.name)
            if isinstance(field.dataType, T.TimestampType)
            else f"`{field.name}`"
            for field in answer.schema.fields
        ]
    )


def offer(house: Warehouse) -> None:
    """Make every view, every gold table and the violations known to SQL by their names."""
    for name in VIEW_NAMES:
        house.view(name).createOrReplaceTempView(name)
    for metric in METRICS:
        house.table(metric.spec).read().createOrReplaceTempView(metric.name)
    house.table(VIOLATIONS).read().createOrReplaceTempView("violations")
