"""What the gold tables that follow from events and attempts must say. Plain Python, no Spark.

Each function gives the rows of one table, with its columns except `is_exact`. Lengths of time are whole microseconds
until the last step; one that would be negative is not known.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import datetime, timedelta
from fractions import Fraction
from math import ceil
import re
from typing import TYPE_CHECKING, Any, TypeVar

from pipeline.oracle import Row, at, item_key
from queueyard.kernel.events import Event, Kind, System

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_T = TypeVar("_T")
_K = TypeVar("_K")

FLOW = (Kind.QUEUED, Kind.STARTED, Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED)
FAULTS = (Kind.FAILED, Kind.CONFLICTED, Kind.STALLED, Kind.RETRIED)
_HOUR = timedelta(hours=1)
_LONGEST_WAIT = timedelta(days=31)
_QUEUE = ("system", "source", "queue")


# --- numbers ---------------------------------------------------------------------------------------------------------


def nearest_rank(values: Sequence[int], share: float) -> int | None:
    """The smallest value that at least this share of the values does not exceed."""
    # 0.95 as it is written, not as a float holds it: else 95 % of 100 values may be the 96th.
    rank = max(1, ceil(Fraction(str(share)) * len(values)))
    return sorted(values)[rank - 1] if values else None


def interpolated(values: Sequence[float], share: float) -> float | None:
    """The same, linearly between the two values that it falls between."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def jain(values: Sequence[int]) -> float | None:
    """1 if all got the same, 1/n if one got everything; None if nobody got anything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else None


def span_us(start: datetime | None, end: datetime | None) -> int | None:
    if start is None or end is None or end < start:
        return None
    return (end - start) // timedelta(microseconds=1)


def seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1_000_000


def lengths(values: Sequence[int], shares: dict[str, float], *, prefix: str = "") -> Row:
    """Mean, greatest and percentiles, in seconds."""
    row: Row = {f"{prefix}{name}": seconds(nearest_rank(values, share)) for name, share in shares.items()}
    mean = sum(values) / len(values) / 1_000_000 if values else None
    return row | {f"{prefix}mean_s": mean, f"{prefix}max_s": seconds(max(values, default=None))}


def share_of(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def hour_of(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def day_of(moment: datetime) -> datetime:
    return hour_of(moment).replace(hour=0)


def grouped(values: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    found: dict[_K, list[_T]] = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return dict(found)


# --- events ----------------------------------------------------------------------------------------------------------


def is_single_op(event: Event) -> bool:
    """Whether it is about one op of a batch of ops, which is told beside the batch itself."""
    return event.system is System.OPS and event.item.count(":") > 1


def whole_items(told: Iterable[Event]) -> list[Event]:
    return [event for event in told if not is_single_op(event)]


def throughput(told: Iterable[Event]) -> list[Row]:
    grains = {"minute": lambda moment: moment.replace(second=0, microsecond=0), "hour": hour_of, "day": day_of}
    counted: dict[tuple[Any, ...], Counter[Kind]] = defaultdict(Counter)
    for event in whole_items(told):
        if event.kind in FLOW:
            for grain, start_of in grains.items():
                counted[grain, start_of(at(event)), *item_key(event)[:3]][event.kind] += 1
    return [
        dict(zip(("grain", "bucket_at", *_QUEUE), key, strict=True)) | {str(kind): counts[kind] for kind in FLOW}
        for key, counts in counted.items()
    ]


def failures(told: Iterable[Event]) -> list[Row]:
    """By queue, day, kind and normalised reason."""
    faults = grouped(
        (event for event in told if event.kind in FAULTS),
        lambda event: (*item_key(event)[:3], at(event).date(), str(event.kind), normalised(event.reason)),
    )
    return [
        dict(zip((*_QUEUE, "day", "kind", "reason"), key, strict=True))
        | {
            "failures": len(ones),
            "items": len({event.item for event in ones}),
            "example": min((event.reason for event in ones if event.reason is not None), default=None),
            "first_at": min(map(at, ones)),
            "last_at": max(map(at, ones)),
        }
        for key, ones in faults.items()
    ]


def normalised(reason: str | None) -> str:
    """What is the same in the reasons of equal faults, as docs/pipeline/metrics.md has it."""
    text = (reason or "")[:2_000]
    for pattern, placeholder in _PLACEHOLDERS:
        text = re.sub(pattern, placeholder, text, flags=re.ASCII)
    return text.strip()[:200] or "(none)"


def _hex(found: re.Match[str]) -> str:
    digits = set(found[0].lower())
    return "<hex>" if digits & set("abcdefx") and digits & set("0123456789") else found[0]


_WORD = r"[\w.@~+-]"
_PLACEHOLDERS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"""`[^`]*`|"[^"]*"|\B'[^']*'\B""", "<text>"),
    (r"\w+://\S+", "<url>"),
    (rf"(?:{_WORD}*/)+{_WORD}*\w/?", "<path>"),
    (r"(?i)\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b", "<id>"),
    (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<id>"),
    (r"(?i)\b(?:0x[\da-f]+|[\da-f]{7,})\b", _hex),
    (r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?\b", "<time>"),
    (r"\d+(?:[.,:]\d+)*", "<n>"),
    (r"\s+", " "),
)


def retries(told: Iterable[Event]) -> list[Row]:
    kinds = (Kind.STARTED, Kind.RETRIED, Kind.STALLED, Kind.RELEASED)
    wanted = [event for event in whole_items(told) if event.kind in kinds]
    rows = []
    for key, ones in grouped(wanted, lambda event: (*item_key(event)[:3], at(event).date())).items():
        counts = Counter(event.kind for event in ones)
        row: Row = dict(zip((*_QUEUE, "day"), key, strict=True)) | {str(kind): counts[kind] for kind in kinds}
        row["retried_items"] = len({event.item for event in ones if event.kind is Kind.RETRIED})
        row["highest_attempt"] = max(event.attempt for event in ones)
        row["retry_rate"] = share_of(row["retried"], row["started"])
        row["stall_rate"] = share_of(row["stalled"], row["started"])
        rows.append(row)
    return rows


def landing(told: Iterable[Event]) -> list[Row]:
    """Of jjq, by trunk and day."""
    told = [event for event in told if event.system is System.JJQ]
    times = _times_to_land(told)
    ends = (Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.RELEASED)
    days = grouped(
        (event for event in told if event.kind in ends), lambda event: (event.source, event.queue, at(event).date())
    )
    return [
        dict(zip(("source", "queue", "day"), key, strict=True)) | _landed(ones, times.get(key, []))
        for key, ones in days.items()
    ]


def _times_to_land(told: list[Event]) -> dict[tuple[Any, ...], list[int]]:
    """(trunk and day) -> how long each item took from its first push to its first landing."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for key, ones in grouped(told, lambda event: (event.source, event.queue, event.item)).items():
        queued = [at(event) for event in ones if event.kind is Kind.QUEUED]
        landed = [at(event) for event in ones if event.kind is Kind.SUCCEEDED]
        if queued and landed:
            length = span_us(min(queued), min(landed))
            if length is not None:
                found[*key[:2], min(landed).date()].append(length)
    return found


def _landed(ends: list[Event], times: list[int]) -> Row:
    counts = Counter(event.kind for event in ends)
    wasted = [event for event in ends if event.kind is Kind.RELEASED]
    reused = [event for event in ends if _is_reused(event)]
    checks = [
        event
        for event in ends
        if event.kind is Kind.RELEASED or ("duration_ms" in event.data and not _is_reused(event))
    ]
    return {
        "landed": counts[Kind.SUCCEEDED],
        "failed": counts[Kind.FAILED],
        "conflicted": counts[Kind.CONFLICTED],
        "timed": len(times),
        **lengths(times, {"p50_s": 0.5, "p95_s": 0.95}, prefix="land_"),
        "checks": len(checks),
        "wasted_checks": len(wasted),
        "wasted_s": sum(event.data.get("duration_ms", 0) for event in wasted) / 1000,
        "wasted_share": share_of(len(wasted), len(checks)),
        "reused_checks": sum(event.kind is Kind.SUCCEEDED for event in reused),
    }


def _is_reused(event: Event) -> bool:
    """Not checked at all: the same tree had passed before."""
    return event.data.get("reused") is True


# --- attempts --------------------------------------------------------------------------------------------------------


def measured(attempts: Iterable[Row]) -> list[Row]:
    """Every wait and every run whose length is known, by the day on which it ended."""
    found = []
    for one in attempts:
        for measure, start, end in (("wait", "queued_at", "started_at"), ("run", "started_at", "finished_at")):
            length = span_us(one[start], one[end])
            if length is not None:
                found.append(one | {"measure": measure, "day": one[end].date(), "span_us": length})
    return found


def durations(attempts: Iterable[Row]) -> list[Row]:
    scoped: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for one in measured(attempts):
        queue = (*(one[name] for name in _QUEUE), one["measure"])
        scoped[*queue, "queue", None, None].append(one["span_us"])
        scoped[*queue, "day", None, one["day"]].append(one["span_us"])
        if one["group"] is not None:
            scoped[*queue, "group", one["group"], None].append(one["span_us"])
    shares = {"p50_s": 0.5, "p90_s": 0.9, "p95_s": 0.95, "p99_s": 0.99}
    return [
        dict(zip((*_QUEUE, "measure", "scope", "group", "day"), key, strict=True))
        | {"attempts": len(spans)}
        | lengths(spans, shares)
        for key, spans in scoped.items()
    ]


def fairness(attempts: Iterable[Row]) -> list[Row]:
    """A group takes part in a window if it was served in it or waited in it."""
    #: (grain, window, queue) -> group -> [services, microseconds of running]
    windows: dict[tuple[Any, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    by_queue = grouped(
        (one for one in attempts if one["group"] is not None), lambda one: tuple(one[name] for name in _QUEUE)
    )
    for queue, ones in by_queue.items():
        known_until = max(_moments(one)[-1] for one in ones)
        for one in ones:
            for hour in _hours_of_waiting(one, known_until):
                for grain, window in (("hour", hour), ("day", day_of(hour))):
                    _ = windows[grain, window, *queue][one["group"]]
            if one["started_at"] is not None:
                for grain, start_of in (("hour", hour_of), ("day", day_of)):
                    got = windows[grain, start_of(one["started_at"]), *queue][one["group"]]
                    got[0] += 1
                    got[1] += span_us(one["started_at"], one["finished_at"]) or 0
    return [_fair(key, list(got.values())) for key, got in windows.items()]


def _fair(key: tuple[Any, ...], got: list[list[int]]) -> Row:
    services, run_us = [one[0] for one in got], [one[1] for one in got]
    return dict(zip(("grain", "bucket_at", *_QUEUE), key, strict=True)) | {
        "groups": len(got),
        "services": sum(services),
        "run_s": seconds(sum(run_us)),
        "jain_services": jain(services),
        "jain_run": jain(run_us),
    }


def _moments(one: Row) -> list[datetime]:
    return sorted(one[name] for name in ("queued_at", "started_at", "finished_at") if one[name] is not None)


def _hours_of_waiting(one: Row, known_until: datetime) -> list[datetime]:
    """From the hour in which it came to the one in which it was taken, at most a month."""
    came = one["queued_at"] or one["started_at"]
    if came is None:
        return []
    first = hour_of(came)
    until = min(one["started_at"] or one["finished_at"] or known_until, first + _LONGEST_WAIT)
    hours = [first]
    while hours[-1] + _HOUR <= until:
        hours.append(hours[-1] + _HOUR)
    return hours


# --- both ------------------------------------------------------------------------------------------------------------


def summary(told: Iterable[Event], attempts: Iterable[Row]) -> list[Row]:
    spans = grouped(measured(attempts), lambda one: (one["system"], one["day"]))
    days = grouped(whole_items(told), lambda event: (str(event.system), at(event).date()))
    return [_summed(key, ones, spans.get(key, [])) for key, ones in days.items()]


def _summed(key: tuple[Any, ...], told: list[Event], spans: list[Row]) -> Row:
    counts = Counter(event.kind for event in told)
    row: Row = {
        "system": key[0],
        "day": key[1],
        "sources": len({event.source for event in told}),
        "queues": len({item_key(event)[:3] for event in told}),
        "items": len({item_key(event) for event in told}),
        "events": len(told),
    }
    row |= {str(kind): counts[kind] for kind in (*FLOW, Kind.RETRIED, Kind.STALLED)}
    row["success_rate"] = share_of(row["succeeded"], row["succeeded"] + row["failed"] + row["conflicted"])
    for measure in ("wait", "run"):
        values = [one["span_us"] for one in spans if one["measure"] == measure]
        row[f"{measure}_p50_s"] = seconds(nearest_rank(values, 0.5))
        row[f"{measure}_p95_s"] = seconds(nearest_rank(values, 0.95))
    return row
