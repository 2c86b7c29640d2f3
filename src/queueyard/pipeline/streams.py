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

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame

_UNREADABLE = "_unreadable"


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One format."""

    name: str
    schema: T.StructType
    #: what is wrong with a record that could be read; null if nothing is
    fault: Callable[[Column], Column]


def _needs(*names: str) -> Callable[[Column], Column]:
    """Every one of these fields is there."""

    def fault(record: Column) -> Column:
        found: Column = F.coalesce(
            *[F.when(F.coalesce(record[name].cast("string"), F.lit("")) == "", F.lit(f"no {name}")) for name in names]
        )
        return found

    return fault


def _no_text_id(record: Column) -> Column:
    # Spark reads a number as a text where a text is wanted; queen does not.
    is_text = F.col("raw").rlike(r'"id"\s*:\s*"')
    found: Column = F.coalesce(_needs("id")(record), F.when(~is_text, F.lit("no id")))
    return found


def _event_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        _needs("id", "at", "source", "queue", "item")(record),
        F.when(~F.coalesce(record["kind"].isin(*Kind), F.lit(False)), F.lit("unknown kind")),
        F.when(~F.coalesce(record["system"].isin(*System), F.lit(False)), F.lit("unknown system")),
        _time_fault(record["at"]),
    )
    return found


def _entry_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        _needs("id")(record),
        F.when(~record["id"].rlike(r"^\d+-\d+$"), F.lit("no id of a stream")),
        F.when(~F.coalesce(record["kind"].isin(*Kind), F.lit(False)), F.lit("unknown kind")),
    )
    return found


def _entry_of_ops(time: str) -> Callable[[Column], Column]:
    def fault(record: Column) -> Column:
        found: Column = F.coalesce(
            _needs("seq", "space", "fileId", "requestId", "opId", time)(record), _time_fault(record[time])
        )
        return found

    return fault


def _queue_fault(record: Column) -> Column:
    found: Column = F.coalesce(
        F.when(F.coalesce(record["kind"], F.lit("")) != "execution_queue", F.lit("no execution queue")),
        F.when(record["jobs"].isNull(), F.lit("no jobs")),
    )
    return found


def _time_fault(text: Column) -> Column:
    return F.when(F.try_to_timestamp(text).isNull(), F.lit("a time that cannot be read"))


STREAMS = {
    stream.name: stream
    for stream in (
        Stream(name="queen.messages", schema=schemas.MESSAGE, fault=_no_text_id),
        Stream(name="queen.assignments", schema=schemas.ASSIGNMENT, fault=_no_text_id),
        Stream(name="queen.reservations", schema=schemas.RESERVATION, fault=_no_text_id),
        Stream(name="runforge.events", schema=schemas.EVENT_LINE, fault=_event_fault),
        Stream(name="runforge.queue", schema=schemas.QUEUE_FILE, fault=_queue_fault),
        Stream(name="runforge.group", schema=schemas.GROUP_FILE, fault=_needs("group_id")),
        Stream(name="runforge.result", schema=schemas.RESULT_FILE, fault=_needs("status")),
        Stream(name="jjq.events", schema=schemas.EVENT_LINE, fault=_event_fault),
        Stream(name="ops.events", schema=schemas.EVENT_LINE, fault=_event_fault),
        Stream(name="ops.changes", schema=schemas.CHANGE, fault=_entry_of_ops("acceptedAt")),
        Stream(name="ops.audit", schema=schemas.REFUSAL, fault=_entry_of_ops("at")),
        Stream(name="panqueue.events", schema=schemas.ENTRY, fault=_entry_fault),
    )
}
#: the streams whose lines are Events already
JOURNALS = ("runforge.events", "jjq.events", "ops.events")


def judged(records: DataFrame, names: Collection[str]) -> DataFrame:
    """The records with `reason`: null for sound ones, else what is wrong. All are of the streams that are named."""
    # Each record is read once, into a column of its own: a condition reads it anew wherever it names a field.
    streams = [STREAMS[name] for name in sorted(names) if name in STREAMS]
    read = {_column(stream.name): F.when(F.col("stream") == stream.name, _readable(stream)) for stream in streams}
    known = [F.when(F.col("stream") == stream.name, _fault_of(stream)) for stream in streams]
    unknown = F.when(~F.col("stream").isin(*STREAMS), F.lit("unknown stream"))
    # A note that another tool left about its own format is no record, and no fault either.
    is_note = F.get_json_object("raw", "$._migration").isNotNull()
    return (
        records.withColumns(read)
        .withColumn("reason", F.coalesce(*known, unknown))
        .drop(*read)
        .withColumn("reason", F.when(F.col("reason").isNotNull() & ~is_note, F.col("reason")))
    )


def parsed(records: DataFrame, stream: str) -> DataFrame:
    """The records of one stream with `record`, a struct of the stream's fields."""
    return records.where(F.col("stream") == stream).withColumn("record", F.from_json("raw", STREAMS[stream].schema))


def _column(stream: str) -> str:
    return f"_{stream.replace('.', '_')}"


def _readable(stream: Stream) -> Column:
    schema = T.StructType([*stream.schema.fields, T.StructField(_UNREADABLE, T.StringType())])
    return F.from_json("raw", schema, {"columnNameOfCorruptRecord": _UNREADABLE, "mode": "PERMISSIVE"})


def _fault_of(stream: Stream) -> Column:
    record = F.col(_column(stream.name))
    fault: Column = F.coalesce(
        F.when(record[_UNREADABLE].isNotNull() | record.isNull(), F.lit("cannot be read")), stream.fault(record)
    )
    return fault
