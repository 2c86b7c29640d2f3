"""What runforge's queue.json tells of its jobs, as the shared Event.

The ids are those that runforge's own journal gives to the same changes (runforge/events.py), so a workspace that
another tool runs is covered, and one that has a journal as well is not told twice. Where both tell a change in one
batch, the journal is believed: it knows who did it. A snapshot knows less: starts that were handed back, and attempts
that were followed by another one of the same job, are not in it any more.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pyspark.sql import functions as F

from queueyard.kernel.events import Kind, System
from queueyard.pipeline.moments import FIRST, LAST
from queueyard.pipeline.schemas import EVENT
from queueyard.pipeline.silver.ulids import event_id
from queueyard.pipeline.streams import moment, parsed
from queueyard.runforge.events import QUEUE
from queueyard.runforge.records import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

_ENDED = [str(state) for state in sorted(ENDED)]
_NAMES_A_ZONE = r"(Z|[+-]\d\d:?\d\d)$"
_LOCAL_TIME = Path("/etc/localtime")


def of_snapshots(lines: DataFrame, *, zone: str) -> DataFrame:
    """Queued, started and ended jobs; `zone` is the time zone of times that name none."""
    queues = parsed(lines, "runforge.queue").select("place", F.col("record.jobs").alias("jobs"))
    jobs = queues.select("place", F.explode("jobs").alias("job"), F.expr(_IS_NEXT_OF_ANOTHER).alias("is_next"))
    changes = jobs.where("job.job_id IS NOT NULL").select(
        "place", "job", F.explode(F.array(*_changes())).alias("change")
    )
    told = changes.select("place", "job", "change.*").where("kind IS NOT NULL AND at_text IS NOT NULL")
    in_journal = parsed(lines, "runforge.events").select(F.col("record.id").alias("id"))
    return (
        _as_events(told.withColumn("at", _moment(F.col("at_text"), zone)).where(_is_dated()))
        .dropDuplicates(["id"])
        .join(in_journal, on="id", how="left_anti")
        .select(*EVENT.fieldNames())
    )


def local_zone(environment: Mapping[str, str], local_time: Path = _LOCAL_TIME) -> str:
    """The name of this machine's time zone: TZ, or what /etc/localtime leads to; UTC where neither tells."""
    named = environment.get("TZ", "").removeprefix(":")
    linked = str(local_time.resolve()).partition("zoneinfo/")[2]
    return next((name for name in (named, linked) if name and _is_known(name)), "UTC")


def _is_known(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


#: A failed job that is done again is a new job with the next attempt. One that was queued again by its daemon keeps its
#: id and has a higher attempt too, but when that happened is not in the file.
_IS_NEXT_OF_ANOTHER = """
    exists(jobs, other -> other.run_id = job.run_id AND other.job_id != job.job_id AND other.state = 'failed'
        AND coalesce(other.attempt, 1) = coalesce(job.attempt, 1) - 1L)
"""


def _changes() -> list[Column]:
    attempt = _attempt().cast("string")
    state = F.col("job.state")
    queued = F.when(_attempt() == 1, str(Kind.QUEUED)).when(F.col("is_next"), str(Kind.RETRIED))
    return [
        _change(queued, F.col("job.created_at"), attempt),
        _change(F.lit(str(Kind.STARTED)), F.col("job.started_at"), F.concat_ws(" ", attempt, F.col("job.started_at"))),
        # The states that end a job are called as the kinds that tell of it.
        _change(F.when(state.isin(*_ENDED), state), F.col("job.finished_at"), attempt, F.col("job.error")),
    ]


def _attempt() -> Column:
    return F.coalesce("job.attempt", F.lit(1))


def _change(kind: Column, at_text: Column, change: Column, reason: Column | None = None) -> Column:
    return F.struct(
        kind.alias("kind"),
        at_text.alias("at_text"),
        change.alias("change"),
        (F.lit(None).cast("string") if reason is None else reason).alias("reason"),
    )


def _moment(text: Column, zone: str) -> Column:
    plain = moment(text)
    found: Column = F.when(text.rlike(_NAMES_A_ZONE), plain).otherwise(F.to_utc_timestamp(plain, zone))
    return found


def _is_dated() -> Column:
    """A local time of the first or the last day of all years may lie out of them in UTC."""
    return F.col("at").between(F.lit(FIRST).cast("timestamp"), F.lit(LAST).cast("timestamp"))


def _as_events(told: DataFrame) -> DataFrame:
    data = F.struct("job.run_id", "job.priority", F.when(F.col("job.requires_gpu"), F.lit(True)).alias("gpu"))
    columns = {
        "at": F.col("at"),
        "system": F.lit(str(System.RUNFORGE)),
        "source": F.col("place"),
        "queue": F.lit(QUEUE),
        "item": F.col("job.job_id"),
        "kind": F.col("kind"),
        "attempt": _attempt(),
        "group": F.col("job.group_id"),
        "actor": F.lit(None).cast("string"),
        "reason": F.col("reason"),
        "data": F.to_json(data),
    }
    identifier = event_id(
        columns["at"],
        system=System.RUNFORGE,
        queue=columns["queue"],
        item=columns["item"],
        kind=columns["kind"],
        change=F.col("change"),
    )
    return told.select(identifier.alias("id"), *[column.alias(name) for name, column in columns.items()])
