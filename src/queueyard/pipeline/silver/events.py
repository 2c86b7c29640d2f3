"""From bronze lines to the shared Event: one function per format, then one union without doubles.

queen's lines are told in queen.py, because what happened there follows from the lines before.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline.schemas import EVENT, EVENTS
from queueyard.pipeline.silver.ulids import event_id
from queueyard.pipeline.streams import ENTRY_ID, JOURNALS, moment, parsed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

__all__ = [
    "JOURNALS",
    "distinct",
    "known_ones",
    "of_changes",
    "of_entries",
    "of_journal",
    "of_refusals",
    "union",
    "unknown_ones",
]

_NAMES = EVENT.fieldNames()


def of_journal(lines: DataFrame, stream: str) -> DataFrame:
    """Lines that are Events already."""
    return (
        parsed(lines, stream)
        .select("record.*")
        .withColumn("at", moment("at"))
        .withColumn("attempt", F.coalesce("attempt", F.lit(1)))
        .select(*_NAMES)
    )


def of_entries(lines: DataFrame) -> DataFrame:
    """Entries of panqueue's streams; the file of a line is the id of its queue."""
    entries = parsed(lines, "panqueue.events").select("place", "file", "record.*")
    at = F.timestamp_millis(F.regexp_extract("id", ENTRY_ID, 1).try_cast("long"))
    columns = {
        "at": at,
        "system": F.lit(str(System.PANQUEUE)),
        "source": F.col("place"),
        "queue": F.col("file"),
        "item": F.coalesce("item", F.lit("")),
        "kind": F.col("kind"),
        "attempt": F.greatest(F.lit(1), F.coalesce(F.col("attempt").try_cast("int"), F.lit(1))),
        "group": _or_null("group"),
        "actor": _or_null("actor"),
        "reason": _or_null("reason"),
        "data": F.lit(None).cast("string"),
    }
    return _told(entries, columns, system=System.PANQUEUE, change=F.col("id"))


def of_changes(lines: DataFrame) -> DataFrame:
    """Entries of the change feed of ops: each is one op that was applied."""
    changes = parsed(lines, "ops.changes").select("place", "record.*")
    data = F.struct(
        "seq",
        "op",
        F.col("fileId").alias("file"),
        F.col("serverPath").alias("path"),
        "version",
        F.coalesce("size", F.lit(0)).alias("bytes"),
    )
    columns = _of_op(at="acceptedAt", kind=F.lit(str(Kind.SUCCEEDED)), data=data)
    return _told(changes, columns, system=System.OPS, change=F.col("seq").cast("string"))


def of_refusals(lines: DataFrame) -> DataFrame:
    """Entries of the audit stream of ops: each is one op that met a conflict or was rejected."""
    refusals = parsed(lines, "ops.audit").select("place", "record.*")
    kind = F.when(F.col("status") == "conflict", str(Kind.CONFLICTED)).otherwise(str(Kind.FAILED))
    data = F.struct(
        F.col("fileId").alias("file"), F.col("serverPath").alias("path"), F.col("baseVersion").alias("base_version")
    )
    columns = _of_op(at="at", kind=kind, data=data) | {"reason": F.col("code")}
    return _told(refusals, columns, system=System.OPS, change=F.col("seq").cast("string"))


def union(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


def distinct(events: DataFrame, *, batch: int) -> DataFrame:
    """Rows of the table `events`: each event once, and none without a time, which older versions let into bronze."""
    return (
        events.where(F.col("at").isNotNull())
        .dropDuplicates(["id"])
        .withColumn("day", F.to_date("at"))
        .withColumn("batch", F.lit(batch).cast("long"))
        .select(*EVENTS.schema.fieldNames())
    )


def known_ones(events: DataFrame, known: DataFrame) -> DataFrame:
    """The ids that are known already."""
    return events.select("id").join(known.select("id"), on="id", how="left_semi")


def unknown_ones(events: DataFrame, known: DataFrame) -> DataFrame:
    """The rows of which nothing is known yet."""
    return events.join(known.select("id"), on="id", how="left_anti")


def _of_op(*, at: str, kind: Column, data: Column) -> dict[str, Column]:
    return {
        "at": moment(at),
        "system": F.lit(str(System.OPS)),
        "source": F.col("place"),
        "queue": F.col("space"),
        "item": F.concat_ws(":", "requestId", F.col("batchIndex").cast("string"), "opId"),
        "kind": kind,
        "attempt": F.lit(1),
        "group": F.col("requestId"),
        "actor": F.coalesce(_or_null("clientId"), _or_null("userId")),
        "reason": F.lit(None).cast("string"),
        "data": F.to_json(data),
    }


def _told(frame: DataFrame, columns: dict[str, Column], *, system: System, change: Column) -> DataFrame:
    identifier = event_id(
        columns["at"],
        system=system,
        queue=columns["queue"],
        item=columns["item"],
        kind=columns["kind"],
        change=change,
    )
    return frame.select(identifier.alias("id"), *[column.alias(name) for name, column in columns.items()]).select(
        *_NAMES
    )


def _or_null(name: str) -> Column:
    return F.when(F.col(name) != "", F.col(name))
