"""What the gold tables that follow from records must say: agents, contention, sync. Plain Python, no Spark."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from itertools import permutations
import re
from typing import TYPE_CHECKING, Any

from pipeline.oracle import Row, at
from pipeline.oracle_gold import grouped, is_single_op, lengths, nearest_rank, seconds, share_of, span_us
from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.kernel.events import Event, Kind, System

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEVER = datetime.max.replace(tzinfo=UTC)
_ANSWERS = {"applied": Kind.SUCCEEDED, "conflicts": Kind.CONFLICTED, "rejected": Kind.FAILED}
_WORDS = {"applied": "applied", "conflicts": "conflict", "rejected": "rejected"}


def moment(text: str | None) -> datetime | None:
    """A time of a record; None if it cannot be read."""
    try:
        return None if text is None else from_rfc3339(text)
    except BadTime:
        return None


def owner(record: Row) -> str | None:
    found: str | None = record["agent"] or record["droid"]
    return found


# --- agents ----------------------------------------------------------------------------------------------------------


def agents(messages: Iterable[Row], assignments: Iterable[Row]) -> list[Row]:
    """One row per agent who ever sent, received or was assigned something."""
    messages, assignments = list(messages), list(assignments)
    named = {(one["source"], one[side]) for one in messages for side in ("from", "to")}
    named |= {(one["source"], owner(one)) for one in assignments}
    return [
        {"source": source, "agent": agent}
        | _mail([one for one in messages if one["source"] == source], agent)
        | _work([one for one in assignments if (one["source"], owner(one)) == (source, agent)])
        for source, agent in named
        if agent is not None
    ]


def _mail(messages: list[Row], agent: str) -> Row:
    received = [one for one in messages if one["to"] == agent]
    replies = grouped((one for one in messages if one["from"] == agent), lambda one: one["reply_to"])
    first_answers = []
    for one in received:
        spans = [
            span_us(moment(one["created_at"]), moment(reply["created_at"])) for reply in replies.get(one["id"], [])
        ]
        known = [span for span in spans if span is not None]
        first_answers += [min(known)] if known else []
    return {
        "sent": sum(one["from"] == agent for one in messages),
        "received": len(received),
        "unread": sum(not one["read"] and not one["deleted"] for one in received),
        "answered": len(first_answers),
        "response_p50_s": seconds(nearest_rank(first_answers, 0.5)),
        "response_p95_s": seconds(nearest_rank(first_answers, 0.95)),
    }


def _work(assignments: list[Row]) -> Row:
    statuses = [one["status"] or "active" for one in assignments]
    gaps = _idle_us(assignments)
    return {
        "assignments": len(assignments),
        "open_assignments": statuses.count("active"),
        "completed": statuses.count("completed"),
        "idle_gaps": len(gaps),
        "idle_s": seconds(sum(gaps)) if gaps else None,
    }


def _idle_us(assignments: list[Row]) -> list[int]:
    """The times in which everything that began before had ended, and the next had not begun."""
    gaps = []
    busy_until: datetime | None = None
    begun = [one | {"begin": begin} for one in assignments if (begin := moment(one["created_at"])) is not None]
    for one in sorted(begun, key=lambda one: (one["begin"], one["id"])):
        idle = span_us(busy_until, one["begin"])
        gaps += [idle] if idle else []
        is_over = (one["status"] or "active") != "active"
        end = (moment(one["updated_at"]) if is_over else None) or _NEVER
        busy_until = max(busy_until or end, end)
    return gaps


# --- contention ------------------------------------------------------------------------------------------------------


def contention(reservations: Iterable[Row]) -> list[Row]:
    """By day and pair of agents and patterns; the holder is who reserved first."""
    found: dict[tuple[Any, ...], list[tuple[bool, int]]] = defaultdict(list)
    held = [one for one in map(_held, reservations) if one is not None]
    for ones in grouped(held, lambda one: one["source"]).values():
        for holder, waiter in permutations(ones, 2):
            if _clash(holder, waiter):
                key = (
                    holder["source"],
                    waiter["start"].date(),
                    holder["agent"],
                    holder["pattern"],
                    waiter["agent"],
                    waiter["pattern"],
                )
                length = span_us(waiter["start"], min(holder["end"], waiter["end"])) or 0
                found[key].append((holder["exclusive"] and waiter["exclusive"], length))
    names = ("source", "day", "holder", "holder_pattern", "waiter", "waiter_pattern")
    return [
        dict(zip(names, key, strict=True))
        | {
            "overlaps": len(ones),
            "blocking_overlaps": sum(is_blocking for is_blocking, _ in ones),
            "overlap_s": seconds(sum(length for _, length in ones)),
        }
        for key, ones in found.items()
    ]


def _held(record: Row) -> Row | None:
    start = moment(record["created_at"])
    ends = [end for end in (moment(record["released_at"]), moment(record["expires_at"])) if end is not None]
    if start is None or not ends or start >= min(ends) or owner(record) is None or record["pattern"] is None:
        return None
    pattern = re.sub(r"/+$", "/**", re.sub(r"^(\./+)+", "", record["pattern"]))
    return {
        "source": record["source"],
        "id": record["id"],
        "agent": owner(record),
        "pattern": pattern,
        "fixed": re.split(r"[*?\[{\\]", pattern, maxsplit=1)[0],
        "exclusive": record["exclusive"] is not False,
        "start": start,
        "end": min(ends),
    }


def _clash(holder: Row, waiter: Row) -> bool:
    return (
        holder["agent"] != waiter["agent"]
        and (holder["start"], holder["id"]) < (waiter["start"], waiter["id"])
        and waiter["start"] < holder["end"]
        and (holder["exclusive"] or waiter["exclusive"])
        and (holder["pattern"] == waiter["pattern"] or _contains(holder, waiter) or _contains(waiter, holder))
    )


def _contains(outer: Row, inner: Row) -> bool:
    """Whether what is fixed of the outer pattern is the beginning of the inner; `src/**` means `src`, too."""
    has_wildcard = bool(outer["fixed"] != outer["pattern"])
    start: str = inner["fixed"] + ("/" if inner["fixed"] == inner["pattern"] else "")
    return has_wildcard and start.startswith(outer["fixed"])


# --- sync ------------------------------------------------------------------------------------------------------------


def sync(told: Iterable[Event], versions: Iterable[Row]) -> list[Row]:
    """By space and day on which a batch was answered, an op was judged or a file changed."""
    told = [event for event in told if event.system is System.OPS]
    batches = _answered_batches([event for event in told if not is_single_op(event)])
    ops = grouped(
        (event for event in told if is_single_op(event)), lambda event: (event.source, event.queue, at(event).date())
    )
    changed = grouped(versions, lambda one: (one["source"], one["space"], one["at"].date()))
    return [
        dict(zip(("source", "space", "day"), key, strict=True))
        | _synced(batches.get(key, []), ops.get(key, []), changed.get(key, []))
        for key in {*batches, *ops, *changed}
    ]


def _answered_batches(told: list[Event]) -> dict[tuple[Any, ...], list[Row]]:
    """(space and day) -> each batch with the lag to its first answer, and what that said."""
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for key, ones in grouped(told, lambda event: (event.source, event.queue, event.item)).items():
        queued = [at(event) for event in ones if event.kind is Kind.QUEUED]
        answers = [event for event in ones if event.kind is Kind.SUCCEEDED]
        if answers:
            answer = min(answers, key=at)
            lag = span_us(min(queued, default=None), at(answer))
            counts = {name: answer.data.get(word) for name, word in _WORDS.items()}
            found[*key[:2], at(answer).date()].append({"lag": lag} | counts)
    return found


def _synced(batches: list[Row], ops: list[Event], versions: list[Row]) -> Row:
    # The server knows the ops of all clients; where its feed is not read, clients know their own.
    if ops:
        judged = {name: sum(event.kind is kind for event in ops) for name, kind in _ANSWERS.items()}
    else:
        judged = {name: sum(batch[name] or 0 for batch in batches) for name in _ANSWERS}
    lags = [batch["lag"] for batch in batches if batch["lag"] is not None]
    return {
        "batches": len(batches),
        **lengths(lags, {"p50_s": 0.5, "p95_s": 0.95}, prefix="lag_"),
        **judged,
        "conflict_rate": share_of(judged["conflicts"], sum(judged.values())),
        "versions": len(versions),
        "files_changed": len({one["file"] for one in versions}),
        "bytes": sum(one["bytes"] for one in versions),
    }
