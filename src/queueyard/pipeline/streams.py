"""The formats that the sources bring, by name: how a raw record is read, and when it is sound. Pure columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from queueyard.kernel.events import Kind, System
from queueyard.pipeline import schemas
from queueyard.pipeline.moments import TIME
from queueyard.pipeline.sources.parsing import FLAT, Shape

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame

_RECORD = "record"
_UNREADABLE = "_unreadable"
_TEXT_ID = r'"id"\s*:\s*"'
#: The milliseconds of an entry of Redis and its number among those. So many digits reach to the year 5138.
ENTRY_ID = r"^(\d{1,14})-\d+$"
_NEEDED_OF_EVENT = ("id", "at", "source", "queue", "item")
_NEEDED_OF_OPS = ("seq", "space", "fileId", "requestId", "opId")


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One format."""

    name: str
    schema: T.StructType
    #: the fields that `fault` looks at
    asks: tuple[str, ...]
    #: what is wrong with a record that could be read; null if nothing is
    fault: Callable[[Column], Column]
    #: whether an id that is a number is none: Spark reads it as a text where a text is wanted
    has_text_id: bool = False
    #: whether other tools leave notes about their own format among the records
    has_notes: bool = False
    #: fields that hold any JSON, which Spark reads as a text
    texts: tuple[str, ...] = ()


def _needs(*names: str) -> Callable[[Column], Column]:
    """Every one of these fields is there."""

    def fault(record: Column) -> Column:
        found: Column = F.coalesce(
            *[F.when(F.coalesce(record[name].cast("string"), F.lit("")) == "", F.lit(f"no {name}")) for name in names]
        )
        return found

    return fault


def _event_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        _needs(*_NEEDED_OF_EVENT)(record),
        F.when(~F.coalesce(record["kind"].isin(*Kind), F.lit(False)), F.lit("unknown kind")),
        F.when(~F.coalesce(record["system"].isin(*System), F.lit(False)), F.lit("unknown system")),
        _time_fault(record["at"]),
    )
    return found


def _entry_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        _needs("id")(record),
        F.when(~record["id"].rlike(ENTRY_ID), F.lit("no id of a stream")),
        F.when(~F.coalesce(record["kind"].isin(*Kind), F.lit(False)), F.lit("unknown kind")),
    )
    return found


def _entry_of_ops(time: str) -> Callable[[Column], Column]:
    def fault(record: Column) -> Column:
        found: Column = F.coalesce(_needs(*_NEEDED_OF_OPS, time)(record), _time_fault(record[time]))
        return found

    return fault


def _queue_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        F.when(F.coalesce(record["kind"], F.lit("")) != "execution_queue", F.lit("no execution queue")),
        F.when(record["jobs"].isNull(), F.lit("no jobs")),
    )
    return found


def _time_fault(text: Column) -> Column:
    return F.when(moment(text).isNull(), F.lit("a time that cannot be read"))


def _of_queen(name: str, schema: T.StructType) -> Stream:
    return Stream(name=name, schema=schema, asks=("id",), fault=_needs("id"), has_text_id=True, has_notes=True)


def _journal(name: str) -> Stream:
    asks = (*_NEEDED_OF_EVENT, "kind", "system")
    return Stream(name=name, schema=schemas.EVENT_LINE, asks=asks, fault=_event_fault, texts=("data",))


def _feed(name: str, schema: T.StructType, *, time: str) -> Stream:
    return Stream(name=name, schema=schema, asks=(*_NEEDED_OF_OPS, time), fault=_entry_of_ops(time))


STREAMS = {
    stream.name: stream
    for stream in (
        _of_queen("queen.messages", schemas.MESSAGE),
        _of_queen("queen.assignments", schemas.ASSIGNMENT),
        _of_queen("queen.reservations", schemas.RESERVATION),
        _journal("runforge.events"),
        Stream(name="runforge.queue", schema=schemas.QUEUE_FILE, asks=("kind", "jobs"), fault=_queue_fault),
        Stream(name="runforge.group", schema=schemas.GROUP_FILE, asks=("group_id",), fault=_needs("group_id")),
        Stream(name="runforge.result", schema=schemas.RESULT_FILE, asks=("status",), fault=_needs("status")),
        _journal("jjq.events"),
        _journal("ops.events"),
        _feed("ops.changes", schemas.CHANGE, time="acceptedAt"),
        _feed("ops.audit", schemas.REFUSAL, time="at"),
        Stream(name="panqueue.events", schema=schemas.ENTRY, asks=("id", "kind"), fault=_entry_fault),
    )
}
#: the streams whose lines are Events already
JOURNALS = ("runforge.events", "jjq.events", "ops.events")


def shapes_of(names: Collection[str]) -> dict[str, Shape]:
    """What lines of these streams must be like to be read by the source; no shape for those that only Spark reads."""
    shapes = {
        name: {field.name: field.dataType.simpleString() for field in stream.schema if field.name not in stream.texts}
        for name, stream in STREAMS.items()
        if name in names
    }
    return {name: shape for name, shape in shapes.items() if FLAT.keys() >= set(shape.values())}


def asked_of(shapes: Mapping[str, Shape]) -> T.StructType:
    """The fields that the rules of these streams look at: what the source has to give of a line that it has read."""
    asked = {field: STREAMS[name].schema[field] for name in sorted(shapes) for field in STREAMS[name].asks}
    return T.StructType(list(asked.values()))


def judged(records: DataFrame, names: Collection[str]) -> DataFrame:
    """The records with `reason`: null for sound ones, else what is wrong. All are of the streams that are named.

    `record`, where there is such a column, holds what the source has read of a line (`asked_of`).
    """
    shapes = shapes_of(names) if _RECORD in records.columns else {}
    streams = [STREAMS[name] for name in sorted(names) if name in STREAMS]
    # Each record is read once, into a column of its own: a condition reads it anew wherever it names a field.
    read = {_column(one): F.when(_is_left(one, shapes), _readable(one)) for one in streams}
    known = [F.when(F.col("stream") == one.name, _fault_of(one, shapes)) for one in streams]
    unknown = F.when(~F.col("stream").isin(*STREAMS), F.lit("unknown stream"))
    # Such a note is no record, and no fault either.
    noted = [one.name for one in STREAMS.values() if one.has_notes]
    is_note = F.col("stream").isin(*noted) & F.get_json_object("raw", "$._migration").isNotNull()
    return (
        records.withColumns(read)
        .withColumn("reason", F.coalesce(*known, unknown))
        .drop(*read, _RECORD)
        .withColumn("reason", F.when(F.col("reason").isNotNull() & ~is_note, F.col("reason")))
    )


def parsed(records: DataFrame, stream: str) -> DataFrame:
    """The records of one stream with `record`, a struct of the stream's fields."""
    return records.where(F.col("stream") == stream).withColumn(_RECORD, F.from_json("raw", STREAMS[stream].schema))


def moment(text: str | Column) -> Column:
    """A time that stands as text in a record, in a column or in the one of this name; null if it is none."""
    column = F.col(text) if isinstance(text, str) else text
    return F.when(column.rlike(TIME), F.try_to_timestamp(column))


def _column(stream: Stream) -> str:
    return f"_{stream.name.replace('.', '_')}"


def _is_left(stream: Stream, shapes: Mapping[str, Shape]) -> Column:
    """Whether a record is of this stream, and was not read by its source."""
    is_here = F.col("stream") == stream.name
    return is_here & F.col(_RECORD).isNull() if stream.name in shapes else is_here


def _readable(stream: Stream) -> Column:
    schema = T.StructType([*stream.schema.fields, T.StructField(_UNREADABLE, T.StringType())])
    return F.from_json("raw", schema, {"columnNameOfCorruptRecord": _UNREADABLE, "mode": "PERMISSIVE"})


def _fault_of(stream: Stream, shapes: Mapping[str, Shape]) -> Column:
    record = F.col(_column(stream))
    no_text = F.when(~F.col("raw").rlike(_TEXT_ID), F.lit("no id")) if stream.has_text_id else F.lit(None)
    fault: Column = F.coalesce(
        F.when(record[_UNREADABLE].isNotNull() | record.isNull(), F.lit("cannot be read")),
        stream.fault(record),
        no_text,
    )
    if stream.name not in shapes:
        return fault
    return F.when(F.col(_RECORD).isNotNull(), stream.fault(F.col(_RECORD))).otherwise(fault)
