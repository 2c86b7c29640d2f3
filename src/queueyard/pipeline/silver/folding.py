"""Field by field: many lines of one id become one record, exactly as queen itself folds them (queen.rules.fold).

A field that a later line does not name keeps its value, an explicit null clears it, and the first `created_at` stays.
Rows of the tables are folded parts: one per id and batch. Folding parts once more gives the record, because each part
knows its place in the order of lines and which fields it has cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from queueyard.pipeline.streams import STREAMS, parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_ORDER = "_order"


def rows_of_lines(lines: DataFrame, stream: str) -> DataFrame:
    """Lines as parts that are not folded yet; lines without an id (notes of migrations) are left out."""
    # Only a line that holds the word can hold an explicit null, and few do: the others are not searched for names.
    keys = F.when(F.instr("raw", "null") > 0, F.json_object_keys("raw"))
    names = STREAMS[stream].schema.fieldNames()
    cleared = F.filter(
        F.coalesce(keys, F.array().cast("array<string>")),
        lambda key: F.coalesce(
            *[F.when(key == name, F.col(f"record.{name}").isNull()) for name in names], F.lit(False)
        ),
    )
    return (
        parsed(lines, stream)
        .where(F.col("record.id").isNotNull())
        .select(F.col("place").alias("source"), "record.*", cleared.alias("cleared"), "generation", "position", "batch")
    )


def folded(rows: DataFrame, schema: StructType) -> DataFrame:
    """One row per source and id, with the columns of the rows."""
    fields = [name for name in schema.fieldNames() if name != "id"]
    ordered = rows.withColumn(_ORDER, F.struct("generation", "position"))
    return (
        ordered.groupBy("source", "id")
        .agg(
            *[_latest(name).alias(name) for name in fields],
            F.array_compact(F.array(*[_cleared(name) for name in fields])).alias("cleared"),
            F.max(_ORDER).alias(_ORDER),
            F.max("batch").alias("batch"),
        )
        .select(
            "source",
            *schema.fieldNames(),
            "cleared",
            F.col(f"{_ORDER}.generation").alias("generation"),
            F.col(f"{_ORDER}.position").alias("position"),
            "batch",
        )
    )


def view(rows: DataFrame, schema: StructType) -> DataFrame:
    """The records as queen shows them."""
    return folded(rows, schema).select("source", *schema.fieldNames())


def _latest(name: str) -> Column:
    if name == "created_at":
        return F.expr(f"min_by(created_at, {_ORDER}) FILTER (WHERE created_at IS NOT NULL)")
    return F.expr(
        f"max_by(`{name}`, {_ORDER}) FILTER (WHERE `{name}` IS NOT NULL OR array_contains(cleared, '{name}'))"
    )


def _cleared(name: str) -> Column:
    if name == "created_at":
        return F.lit(None).cast("string")
    latest = F.expr(
        f"max_by(`{name}`, {_ORDER}) FILTER (WHERE `{name}` IS NOT NULL OR array_contains(cleared, '{name}'))"
    )
    return F.when(latest.isNull() & F.bool_or(F.array_contains("cleared", name)), F.lit(name))
