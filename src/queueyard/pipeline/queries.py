"""Questions in SQL over the silver views and the gold tables."""

from __future__ import annotations

from functools import partial
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
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from queueyard.pipeline.warehouse import Warehouse

_NOT_FOUND = "TABLE_OR_VIEW_NOT_FOUND"
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
    told: list[str] = []
    try:
        answer = _times_as_text(_understood(house, sql, told).limit(limit))
        return answer.columns, [tuple(row) for row in answer.collect()]
    except _OF_THE_QUESTION as fault:
        raise BadQuery(
            next(line for line in str(fault).splitlines() if line.strip()),
            hint="The tables: queueyard pipeline status; columns: queueyard pipeline explain",
        ) from fault
    finally:
        # The next question of this session may be asked after a run.
        for name in told:
            house.spark.catalog.dropTempView(name)


def _understood(house: Warehouse, sql: str, told: list[str]) -> DataFrame:
    """The question as Spark takes it, which is told of a view or table when it asks for it.

    To tell it of all would open every log and list every file, which takes longer than most questions.
    """
    readers = _readers(house)
    wanted = list(readers) if sql.lstrip().lower().startswith("show") else []
    while True:
        for name in wanted:
            readers[name]().createOrReplaceTempView(name)
            told.append(name)
        try:
            return house.spark.sql(sql)
        except AnalysisException as fault:
            wanted = [_missing(fault)]
            if wanted[0] not in readers or wanted[0] in told:
                raise


def _readers(house: Warehouse) -> dict[str, Callable[[], DataFrame]]:
    """Every view, every gold table and the violations, by their names."""
    readers: dict[str, Callable[[], DataFrame]] = {name: partial(house.view, name) for name in VIEW_NAMES}
    readers |= {metric.name: house.table(metric.spec).read for metric in METRICS}
    return readers | {"violations": house.table(VIOLATIONS).read}


def _missing(fault: AnalysisException) -> str:
    """The table that Spark does not know; empty if it complains of something else."""
    named = (fault.getMessageParameters() or {}).get("relationName", "")
    return named.strip("`").lower() if fault.getCondition() == _NOT_FOUND else ""


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
