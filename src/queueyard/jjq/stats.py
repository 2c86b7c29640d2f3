"""Numbers about the queue, out of its journal. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.kernel.events import Event, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How the queue did."""

    landed: int
    failed: int
    #: of all that landed or failed, 0 to 1; None if there was nothing
    failure_rate: float | None
    #: UTC day -> items that landed on it
    landed_per_day: dict[str, int]
    #: from push to trunk, seconds; None if nothing landed
    time_to_land_p50_s: float | None
    time_to_land_p95_s: float | None
    #: checks that were started
    checks: int
    #: checks whose result was thrown away, since what they looked at could no longer land
    wasted_checks: int
    #: the time that was spent on them
    wasted_s: float
    #: items that landed without a check, since their tree had passed before
    reused_checks: int


def stats_of(events: Iterable[Event], *, since: datetime | None = None) -> Stats:
    """From the journal, in any order. A push before `since` counts for the item that landed after it."""
    queued: dict[str, datetime] = {}
    kinds: Counter[Kind] = Counter()
    days: Counter[str] = Counter()
    waits_s: list[float] = []
    wasted_ms = reused = 0
    for event in sorted(events, key=lambda one: one.at):
        at = _moment(event.at)
        if at is None:
            continue
        if event.kind is Kind.QUEUED:
            queued[event.item] = at
        if since is not None and at < since:
            continue
        kinds[event.kind] += 1
        if event.kind is Kind.SUCCEEDED:
            days[at.date().isoformat()] += 1
            reused += bool(event.data.get("reused"))
            if event.item in queued:
                waits_s.append((at - queued[event.item]).total_seconds())
        elif event.kind is Kind.RELEASED:
            wasted_ms += int(event.data.get("duration_ms", 0))
    landed, failed = kinds[Kind.SUCCEEDED], kinds[Kind.FAILED] + kinds[Kind.CONFLICTED]
    return Stats(
        landed=landed,
        failed=failed,
        failure_rate=failed / (landed + failed) if landed + failed else None,
        landed_per_day=dict(sorted(days.items())),
        time_to_land_p50_s=_percentile(waits_s, 0.50),
        time_to_land_p95_s=_percentile(waits_s, 0.95),
        checks=kinds[Kind.STARTED],
        wasted_checks=kinds[Kind.RELEASED],
        wasted_s=wasted_ms / 1000,
        reused_checks=reused,
    )


def _percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that at least this share of the values does not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * round(share * 100) // 100)
    return ordered[max(rank, 1) - 1]


def _moment(text: str) -> datetime | None:
    try:
        return from_rfc3339(text)
    except BadTime:
        return None
