"""queen's lines as events: what happened follows from a line and from the lines before it, as in queen.events.

The lines of a batch are folded one after the other behind the record that the batches before have left; where a line
makes a difference, there is an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline import schemas
from queueyard.pipeline.moments import LAST
from queueyard.pipeline.schemas import EVENT
from queueyard.pipeline.silver.ulids import event_id
from queueyard.pipeline.streams import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_ASSIGNMENT_ENDS = {"completed": Kind.SUCCEEDED, "released": Kind.RELEASED, "reassigned": Kind.CANCELED}
_RESERVATION_ENDS = {"released": Kind.RELEASED, "expired": Kind.EXPIRED}


def message_events(rows: DataFrame, before: DataFrame) -> DataFrame:
    """Queued when it is sent, then read and deleted; each once."""
    steps = _steps(rows, before, schemas.MESSAGE, compared=("read", "deleted"))
    data = F.to_json(F.struct("to", F.coalesce("importance", F.lit("normal")).alias("importance")))
    common = {"group": F.coalesce("issue_id", "thread_id")}
    told = [
        _change(F.col("is_first"), Kind.QUEUED, "created_at", "sent", **common, actor=F.col("from"), data=data),
        _change(_turned("read"), Kind.READ, F.coalesce("read_at", "created_at"), "read", **common, actor=F.col("to")),
        _change(
            _turned("deleted"),
            Kind.DELETED,
            F.coalesce("deleted_at", "created_at"),
            "deleted",
            **common,
            actor=F.col("from"),
        ),
    ]
    return _events(steps, told, queue="messages")


def assignment_events(rows: DataFrame, before: DataFrame) -> DataFrame:
    """Started when it becomes active, then succeeded, released or canceled."""
    steps = _steps(rows, before, schemas.ASSIGNMENT, compared=("status",))
    data = F.to_json(F.struct(_filled("assigned_by"), _filled("previous_agent").alias("previous")))
    common = {"group": F.col("issue_id"), "actor": _owner(), "reason": F.col("reason")}
    told = [_change(F.col("is_first"), Kind.STARTED, "created_at", "assigned", **common, data=data)]
    told += [
        _change(_became("status", status), kind, "updated_at", status, **common)
        for status, kind in _ASSIGNMENT_ENDS.items()
    ]
    return _events(steps, told, queue="assignments")


def reservation_events(rows: DataFrame, before: DataFrame) -> DataFrame:
    """Started when it is made, renewed when its end moves to a later time, then released or expired."""
    steps = _steps(rows, before, schemas.RESERVATION, compared=("status", "expires_at"))
    data = F.to_json(F.struct("pattern", F.coalesce("exclusive", F.lit(True)).alias("exclusive"), "expires_at"))
    common = {"group": F.col("issue_id"), "actor": _owner(), "reason": F.col("reason"), "data": data}
    is_open = ~F.coalesce(F.col("status").isin(*_RESERVATION_ENDS), F.lit(False))
    is_later = moment("expires_at") > moment("before.expires_at")
    told = [
        _change(F.col("is_first"), Kind.STARTED, "created_at", "reserved", **common),
        _change(
            ~F.col("is_first") & is_later & is_open,
            Kind.RENEWED,
            F.coalesce("renewed_at", "created_at"),
            F.col("expires_at"),
            **common,
        ),
    ]
    told += [
        _change(_became("status", status), kind, F.coalesce("released_at", "expires_at"), status, **common)
        for status, kind in _RESERVATION_ENDS.items()
    ]
    return _events(steps, told, queue="reservations")


def _steps(rows: DataFrame, before: DataFrame, schema: StructType, *, compared: Sequence[str]) -> DataFrame:
    """Each line as the record stood behind it, with what is compared of the record `before` it."""
    names = [name for name in schema.fieldNames() if name != "id"]
    marked = before.withColumn("_new", F.lit(False)).unionByName(rows.withColumn("_new", F.lit(True)))
    order = Window.partitionBy("source", "id").orderBy("_new", "generation", "position")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    values = [_value_so_far(name, so_far).alias(name) for name in names]
    stood = marked.select("source", "id", "_new", "generation", "position", *values)
    return (
        stood.withColumn("before", F.lag(F.struct(*compared)).over(order))
        .where("_new")
        .withColumn("is_first", F.col("before").isNull())
    )


def _value_so_far(name: str, window: object) -> Column:
    column = F.col(name)
    if name == "created_at":
        return F.first(column, ignorenulls=True).over(window)  # type: ignore[arg-type]
    # Wrapped, so that a null which clears is told from a field that the line does not name.
    wrapped = F.when(column.isNotNull() | F.array_contains("cleared", name), F.struct(column.alias("value")))
    return F.last(wrapped, ignorenulls=True).over(window)["value"]  # type: ignore[arg-type]


def _change(happened: Column, kind: Kind, when: str | Column, change: str | Column, **fields: Column) -> Column:
    """An array of one change, or null."""
    missing = F.lit(None).cast("string")
    return F.when(
        happened,
        F.struct(
            F.lit(str(kind)).alias("kind"),
            (F.col(when) if isinstance(when, str) else when).alias("when"),
            (F.lit(change) if isinstance(change, str) else change).alias("change"),
            *[_empty_as_null(fields.get(name, missing)).alias(name) for name in ("group", "actor", "reason")],
            fields.get("data", missing).alias("data"),
        ),
    )


def _events(steps: DataFrame, told: Sequence[Column], *, queue: str) -> DataFrame:
    changes = steps.select("source", F.col("id").alias("item"), F.explode(F.array_compact(F.array(*told))).alias("one"))
    at = F.coalesce(moment("when"), _time_of_ulid(F.col("item")), F.timestamp_seconds(F.lit(0)))
    flat = changes.select("source", "item", "one.*").withColumn("at", at).withColumn("queue", F.lit(queue))
    identifier = event_id(
        F.col("at"),
        system=System.QUEEN,
        queue=F.col("queue"),
        item=F.col("item"),
        kind=F.col("kind"),
        change=F.col("change"),
    )
    return (
        flat.withColumn("id", identifier)
        .withColumn("system", F.lit(str(System.QUEEN)))
        .withColumn("attempt", F.lit(1))
        .select(*EVENT.fieldNames())
    )


def _time_of_ulid(identifier: Column) -> Column:
    """When an id of ours was made; null for a foreign id, and for one of a year that no date has."""
    digits = F.upper(F.substring_index(identifier, "-", -1))
    as_conv = F.translate(
        F.substring(digits, 1, 10), "0123456789ABCDEFGHJKMNPQRSTVWXYZ", "0123456789ABCDEFGHIJKLMNOPQRSTUV"
    )
    made_at = F.timestamp_millis(F.conv(as_conv, 32, 10).try_cast("long"))
    return F.when(digits.rlike("^[0-7][0-9A-HJKMNP-TV-Z]{25}$") & (made_at <= F.lit(LAST).cast("timestamp")), made_at)


def _turned(name: str) -> Column:
    is_now, was = F.coalesce(name, F.lit(False)), F.coalesce(f"before.{name}", F.lit(False))
    return is_now & ~was


def _became(name: str, value: str) -> Column:
    return (F.col(name) == value) & (F.coalesce(f"before.{name}", F.lit("")) != value)


def _owner() -> Column:
    return F.coalesce(_empty_as_null(F.col("agent")), F.col("droid"))


def _filled(name: str) -> Column:
    return _empty_as_null(F.col(name)).alias(name)


def _empty_as_null(column: Column) -> Column:
    return F.when(column != "", column)
