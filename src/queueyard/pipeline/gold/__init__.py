"""The tables that people look at, each a pure function of the merged views of silver.

`METRICS` names them all. What each column means is written down in docs/pipeline/metrics.md. Nothing here reads,
writes, asks for the time or starts a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from queueyard.pipeline import schemas
from queueyard.pipeline.gold.agents import agents
from queueyard.pipeline.gold.contention import contention
from queueyard.pipeline.gold.durations import durations
from queueyard.pipeline.gold.failures import failures
from queueyard.pipeline.gold.fairness import fairness
from queueyard.pipeline.gold.landing import landing
from queueyard.pipeline.gold.retries import retries
from queueyard.pipeline.gold.summary import summary
from queueyard.pipeline.gold.sync import sync
from queueyard.pipeline.gold.throughput import throughput
from queueyard.pipeline.streams import STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

__all__ = ["METRICS", "Metric"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One gold table and how it is made."""

    spec: schemas.TableSpec
    #: the silver views that `make` takes, by these names
    needs: tuple[str, ...]
    make: Callable[..., DataFrame]
    #: one or two sentences for people
    definition: str
    #: the day of a row, in SQL, if a day follows from silver's rows of that day alone (days.py says which those are)
    day: str | None = None
    #: the formats whose events it counts; none are named where all of them are
    streams: frozenset[str] = frozenset()
    #: counts up when the table comes to mean something else, so that no day is kept which was made by the older rule
    edition: int = 1

    @property
    def name(self) -> str:
        """The table's name without its layer: what people type."""
        return self.spec.name.rpartition("/")[2]


#: messages and reservations have no attempts
_TRIED = frozenset(STREAMS) - {"queen.messages", "queen.reservations"}
METRICS: tuple[Metric, ...] = (
    Metric(
        spec=schemas.THROUGHPUT,
        needs=("events",),
        make=throughput,
        day="to_date(bucket_at)",
        definition="How many items of a queue were queued, started, succeeded, failed, conflicted and canceled in a "
        "minute, an hour and a day. Each event counts once, in the bucket of its own time (UTC).",
    ),
    Metric(
        spec=schemas.DURATIONS,
        needs=("attempts",),
        make=durations,
        edition=2,
        definition="How long attempts waited (queued to started) and ran (started to finished): number, mean, maximum "
        "and percentiles per queue, per group and per day. Attempts without both ends are left out.",
        streams=_TRIED,
    ),
    Metric(
        spec=schemas.FAILURES,
        needs=("events",),
        make=failures,
        edition=2,
        day="day",
        definition="What failed, conflicted, stalled or had to be retried, by reason, per queue and day. In a reason, "
        "numbers, ids, paths and quoted texts are replaced by placeholders, so that equal faults count as one.",
    ),
    Metric(
        spec=schemas.RETRIES,
        needs=("events",),
        make=retries,
        day="day",
        definition="How often work of a queue had to be tried again, lost its worker or was handed back on a day, "
        "beside how often it was started.",
    ),
    Metric(
        spec=schemas.FAIRNESS,
        needs=("attempts",),
        make=fairness,
        edition=2,
        definition="Jain's index over the groups of a queue in an hour and a day, of starts and of run time: 1 if all "
        "got the same, 1/n if one of n got everything. A group that only waited counts with nothing.",
        streams=_TRIED,
    ),
    Metric(
        spec=schemas.LANDING,
        needs=("events",),
        make=landing,
        definition="How many changes landed on a trunk on a day, how long they took from the push, and how many checks "
        "were thrown away because what they looked at could no longer land (jjq).",
        streams=frozenset({"jjq.events"}),
    ),
    Metric(
        spec=schemas.AGENTS,
        needs=("messages", "assignments"),
        make=agents,
        edition=2,
        definition="What each agent has to do: messages sent, received and unread, the time to a first answer, "
        "assignments open and completed, and the idle time between assignments (queen).",
    ),
    Metric(
        spec=schemas.CONTENTION,
        needs=("reservations",),
        make=contention,
        edition=2,
        day="day",
        definition="How long two agents had reservations in force on files that may be the same, at least one of them "
        "exclusive. Who reserved first holds, the other one waits (queen).",
    ),
    Metric(
        spec=schemas.SYNC,
        needs=("events", "file_versions"),
        make=sync,
        definition="How long batches of a space took from being queued to being answered, how many ops were applied, "
        "met a conflict or were rejected, and how many files and bytes changed on a day (ops).",
        streams=frozenset({"ops.events", "ops.changes", "ops.audit"}),
    ),
    Metric(
        spec=schemas.SUMMARY,
        needs=("events", "attempts"),
        make=summary,
        edition=2,
        day="day",
        definition="One row per system and day: how many items moved and how they ended, the share that succeeded, and "
        "the median and 95th percentile of waiting and running.",
    ),
)
