"""Field by field: many lines of one id become one record, exactly as queen itself folds them (queen.rules.fold).

A field that a later line does not name keeps its value, an explicit null clears it, and the first `created_at` stays.
Rows of the tables are folded parts: one per id and batch. Folding parts once more gives the record, because each part
knows its place in the order of lines and which fields it has cleared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from queueyard.pipeline.schemas import RECORD_KEY
from queueyard.pipeline.sources.parts import Fold
from queueyard.pipeline.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

_NOTE = '"_migration"'
_BEGINS_WITH_ID = '{"id":"'
_ORDER = "_order"
_BITS = "_bits"
#: of a file: enough for a tebibyte, and for eight million generations beside it
_POSITION_BITS = 40
#: the one field whose first value counts
_FIRST = "created_at"
#: the same, for a source that folds what it can before Spark sees it
FOLD = Fold(key="id", first=[_FIRST])


def rows_of_lines(lines: DataFrame, stream: str) -> DataFrame:
    """Lines as parts that are not folded yet; lines without an id (notes of migrations) are left out.

    `cleared` of such a part may also name fields that have a value: they are not cleared.
    """
    schema = STREAMS[stream].schema
    unread = F.lit(None).cast(schema)
    return rows_of_read(
        lines.where(F.col("stream") == stream).withColumns({"record": unread, "rest": F.col("raw")}), schema
    )


def rows_of_read(lines: DataFrame, schema: StructType) -> DataFrame:
    """The same of lines as their source has read them: `record`, and `rest` where that does not tell all."""
    # Only a line that holds the word can hold an explicit null, and few do: the others are not searched for names.
    # (`instr` counts characters, which takes a third of the time of a whole fold.)
    named = F.when(F.col("rest").contains("null"), F.json_object_keys("rest"))
    kept = ("cleared", "generation", "position", "batch")
    return (
        lines.where(_has_id())
        .withColumn("cleared", F.coalesce(named, _none()))
        # The text ends here: what is sorted further on is only what was read of it.
        .select("place", F.coalesce("record", F.from_json("rest", schema)).alias("record"), *kept)
        .select(F.col("place").alias("source"), "record.*", *kept)
    )


def folded(rows: DataFrame, schema: StructType) -> DataFrame:
    """One row per source and id, with the columns of the rows."""
    fields = [field for field in schema.fields if field.name != "id"]
    bits = {field.name: 1 << number for number, field in enumerate(fields) if field.name != _FIRST}
    # Two numbers in place of what they say: an array that goes with each row is moved and sorted with it.
    ordered = rows.select("source", *schema.fieldNames(), "batch", _order().alias(_ORDER), _bits(bits).alias(_BITS))
    latest = {field.name: _latest(field, bits) for field in fields}
    last = F.max(_ORDER)
    # All of it is said of the aggregates themselves: what is selected from their rows is one more copy of each.
    return ordered.groupBy(*RECORD_KEY).agg(
        *[value.alias(name) for name, value in latest.items()],
        _cleared(latest, bits).alias("cleared"),
        F.shiftright(last, _POSITION_BITS).cast("int").alias("generation"),
        last.bitwiseAND((1 << _POSITION_BITS) - 1).alias("position"),
        F.max("batch").alias("batch"),
    )


def view(rows: DataFrame, schema: StructType) -> DataFrame:
    """The records as queen shows them."""
    return folded(rows, schema).select("source", *schema.fieldNames())


def _has_id() -> Column:
    """Only notes of migrations have no id, so only what may be one is parsed a second time to ask for it."""
    rest = F.col("rest")
    # Most lines begin with their id; the others are searched for the word, byte by byte.
    found = rest.startswith(_BEGINS_WITH_ID) | ~rest.contains(_NOTE) | F.get_json_object(rest, "$.id").isNotNull()
    return F.when(F.col("record").isNull(), found).otherwise(F.col("record.id").isNotNull())


def _order() -> Column:
    """The place of a row in the order of lines, as one number: numbers compare faster than pairs."""
    return F.shiftleft(F.col("generation").cast("long"), _POSITION_BITS) + F.col("position")


def _bits(bits: Mapping[str, int]) -> Column:
    """The fields that a row has cleared, a bit for each."""
    named = [
        F.when(F.array_contains("cleared", name) & F.col(name).isNull(), bit).otherwise(0) for name, bit in bits.items()
    ]
    return F.when(F.size("cleared") > 0, sum(named[1:], named[0])).otherwise(0)


def _latest(field: StructField, bits: Mapping[str, int]) -> Column:
    value = F.col(field.name)
    # As bytes: a text that is aggregated is copied with every row, also where the row leaves it as it is.
    kept = value.cast("binary") if isinstance(field.dataType, StringType) else value
    if field.name == _FIRST:
        found = F.min_by(kept, F.when(value.isNotNull(), F.col(_ORDER)))
    else:
        is_cleared = F.col(_BITS).bitwiseAND(bits[field.name]) != 0
        found = F.max_by(kept, F.when(value.isNotNull() | is_cleared, F.col(_ORDER)))
    return found.cast(field.dataType)


def _cleared(latest: Mapping[str, Column], bits: Mapping[str, int]) -> Column:
    """Of a folded record: the fields whose latest value is a null that a line has named."""
    found = F.bit_or(_BITS)
    is_cleared = {name: latest[name].isNull() & (found.bitwiseAND(bit) != 0) for name, bit in bits.items()}
    named = F.array_compact(F.array(*[F.when(is_so, F.lit(name)) for name, is_so in is_cleared.items()]))
    # Of most records nothing was, and they need not be asked for each field.
    return F.when(found != 0, named).otherwise(_none())


def _none() -> Column:
    return F.array().cast("array<string>")
