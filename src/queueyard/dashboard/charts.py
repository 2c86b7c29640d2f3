"""The charts of the analytics page: which rows of which gold table, as lines or bars. Pure; meanings: docs/pipeline.

A chart computes nothing that belongs into the pipeline: it chooses, sums counts and draws. What it shows is also its
table, so that both always say the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from markupsafe import Markup
import msgspec

from queueyard.dashboard import texts
from queueyard.dashboard.plots import SECONDS, Draw, largest, over_time, percentiles, queue_of, system_of
from queueyard.dashboard.span import Row, Span, moment_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_BUCKETS = 240


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """One chart, ready to be shown."""

    picture: Markup
    #: what each line is
    names: list[str]
    columns: list[str]
    rows: list[Row]
    #: where there are no rows in the range: the time of the last one before it
    newest: datetime | None = None


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    #: what one sees, in one sentence
    about: str
    #: below gold/
    table: str
    #: columns of its table
    columns: tuple[str, ...]
    draw: Draw
    keep: Callable[[Row], bool] = lambda _: True
    #: the only system that it is about; empty: all
    system: str = ""

    def drawn(self, rows: Iterable[Row], span: Span) -> Drawn:
        ours = [row for row in rows if self.keep(row)]
        kept = _of_one_grain([row for row in ours if span.keeps(row)])
        kept.sort(key=lambda row: str(row.get("bucket_at") or row.get("day") or ""))
        picture, names = self.draw(kept, self.title, span)
        newest = None if kept else _newest(ours, msgspec.structs.replace(span, range="all"))
        return Drawn(picture=picture, names=names, columns=list(self.columns), rows=kept, newest=newest)


def _of_one_grain(rows: list[Row]) -> list[Row]:
    """Of a table that counts the same in buckets of several lengths: the shortest that still make a picture."""
    found: defaultdict[str | None, list[Row]] = defaultdict(list)
    for row in rows:
        found[row.get("grain")].append(row)
    grains = [grain for grain in ("minute", "hour", "day") if grain in found]
    fitting = [grain for grain in grains if len({row["bucket_at"] for row in found[grain]}) <= _MOST_BUCKETS]
    return found[(fitting or grains[-1:])[0]] if grains else rows


def _newest(rows: Iterable[Row], span: Span) -> datetime | None:
    times = (row.get("bucket_at") or row.get("day") for row in rows if span.keeps(row))
    return max((moment_of(time) for time in times if time is not None), default=None)


def _of_measure(measure: str) -> Callable[[Row], bool]:
    return lambda row: bool(row["scope"] == "day" and row["measure"] == measure)


_QUEUE = ("system", "source", "queue")
_PERCENTILES = ("attempts", "p50_s", "p90_s", "p95_s", "p99_s", "max_s", "is_exact")

CHARTS = (
    Chart(
        name="throughput",
        title="Throughput",
        about="Items that succeeded, by system; per minute, hour or day, as the range has room for.",
        table="throughput",
        columns=("bucket_at", "grain", *_QUEUE, "queued", "started", "succeeded", "failed", "conflicted", "canceled"),
        draw=over_time(system_of, "succeeded", texts.number),
    ),
    Chart(
        name="wait",
        title="Waiting",
        about="How long attempts waited for their start, by day: 95th percentile of the slowest queue of each system. "
        "Choose one system to see its other percentiles.",
        table="durations",
        columns=("day", *_QUEUE, *_PERCENTILES),
        keep=_of_measure("wait"),
        draw=percentiles,
    ),
    Chart(
        name="run",
        title="Running",
        about="How long attempts ran, whatever their outcome, by day: 95th percentile of the slowest queue of each "
        "system. Choose one system to see its other percentiles.",
        table="durations",
        columns=("day", *_QUEUE, *_PERCENTILES),
        keep=_of_measure("run"),
        draw=percentiles,
    ),
    Chart(
        name="failures",
        title="Failures by reason",
        about="What went wrong most often; numbers, paths and names within a reason are left out.",
        table="failures",
        columns=("day", *_QUEUE, "kind", "reason", "failures", "items", "example", "first_at", "last_at"),
        draw=largest(lambda row: str(row["reason"]), "failures", texts.number),
    ),
    Chart(
        name="fairness",
        title="Fairness between groups",
        about="Jain's index over starts: 1 if all groups got the same, 1/n if one got everything.",
        table="fairness",
        columns=("bucket_at", "grain", *_QUEUE, "groups", "services", "run_s", "jain_services", "jain_run"),
        draw=over_time(queue_of, "jain_services", texts.number, together=min, top=1.0),
    ),
    Chart(
        name="landing",
        title="Time to land",
        about="From the push of a change to trunk, 95th percentile by day.",
        table="landing",
        columns=(
            "day", "source", "queue", "landed", "failed", "conflicted", "land_p50_s", "land_p95_s", "land_max_s",
            "checks", "wasted_checks", "reused_checks",
        ),
        draw=over_time(lambda row: str(row["queue"]), "land_p95_s", texts.seconds, together=max, steps=SECONDS),
        system="jjq",
    ),
    Chart(
        name="agents",
        title="Agents' response times",
        about="From a message to its answer: median within the 95th percentile. Over everything that is known.",
        table="agents",
        columns=(
            "source", "agent", "sent", "received", "unread", "answered", "response_p50_s", "response_p95_s",
            "assignments", "open_assignments", "completed", "idle_gaps", "idle_s",
        ),
        draw=largest(
            lambda row: str(row["agent"]), "response_p95_s", texts.seconds, inner="response_p50_s", together=max
        ),
        system="queen",
    ),
    Chart(
        name="contention",
        title="Contention for files",
        about="How long two agents had reservations that may meet. An upper bound: see the metric's definition.",
        table="contention",
        columns=(
            "day", "source", "holder", "holder_pattern", "waiter", "waiter_pattern", "overlaps", "blocking_overlaps",
            "overlap_s",
        ),
        draw=largest(lambda row: f"{row['waiter']} behind {row['holder']}", "overlap_s", texts.seconds),
        system="queen",
    ),
    Chart(
        name="sync",
        title="Sync lag",
        about="From a batch being queued by its client to its answer, 95th percentile by day.",
        table="sync",
        columns=(
            "day", "source", "space", "batches", "lag_p50_s", "lag_p95_s", "lag_max_s", "applied", "conflicts",
            "rejected", "conflict_rate", "versions", "files_changed", "bytes",
        ),
        draw=over_time(lambda row: str(row["space"]), "lag_p95_s", texts.seconds, together=max, steps=SECONDS),
        system="ops",
    ),
)  # fmt: skip
