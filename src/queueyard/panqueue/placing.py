"""Where and when an added job gets its turn, if not simply at the back of the line. Plain records.

A job without any of this has no `Placing`, and is added by the same short script as ever.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

LOWEST_PRIORITY = -100
HIGHEST_PRIORITY = 100


class DedupRule(StrEnum):
    """What a second job with the same deduplication key means."""

    #: it is left out while the first one has not ended
    UNFINISHED = "unfinished"
    #: it is left out for so long after the first one was added
    THROTTLE = "throttle"
    #: it takes the place of the first one, which had not started, and waits anew
    DEBOUNCE = "debounce"


class Dedup(msgspec.Struct, frozen=True):
    """One job per key: `Dedup("report-7")`, `Dedup.throttle("report-7", 60_000)`, `Dedup.debounce("report-7", 500)`."""

    key: str
    rule: DedupRule = DedupRule.UNFINISHED
    #: how long a throttle holds, or how long a debounced job waits; milliseconds
    for_ms: int = 0

    @classmethod
    def throttle(cls, key: str, for_ms: int) -> Dedup:
        """At most one job per key and `for_ms`, the first; the others are left out."""
        return cls(key, DedupRule.THROTTLE, for_ms)

    @classmethod
    def debounce(cls, key: str, for_ms: int) -> Dedup:
        """Only the last job of a burst: it runs when none has followed it for `for_ms`."""
        return cls(key, DedupRule.DEBOUNCE, for_ms)


class Placing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What makes the place of a job special."""

    #: milliseconds from now on the server's clock
    delay_ms: int | None = None
    #: milliseconds since 1970
    run_at_ms: int | None = None
    #: from -100 to 100, the higher the sooner; heeded by queues with priorities
    priority: int = 0
    #: a job that has not started after so long fails, milliseconds
    expires_ms: int | None = None
    dedup: Dedup | None = None
    #: further fields of the job's hash, as (name, text): parent, plan, origin, traceparent
    fields: tuple[tuple[str, str], ...] = ()

    def extra_fields(self) -> list[str]:
        """Name and text of every extra field, flat."""
        flat = [word for pair in self.fields for word in pair]
        return [*flat, "priority", str(self.priority)] if self.priority else flat

    def when(self) -> str:
        """The time as the scripts take it: +ms from now, @ms since 1970, or nothing."""
        if self.run_at_ms is not None:
            return f"@{self.run_at_ms}"
        if self.dedup is not None and self.dedup.rule is DedupRule.DEBOUNCE:
            return f"+{self.dedup.for_ms}"
        return "" if self.delay_ms is None else f"+{self.delay_ms}"


def placing_faults(placing: Placing) -> list[str]:
    """Everything that is wrong with it, in words."""
    faults: list[str] = []
    if placing.delay_ms is not None and placing.delay_ms < 0:
        faults.append(f"delay_ms must be 0 or more, not {placing.delay_ms}")
    if placing.run_at_ms is not None and placing.run_at_ms < 0:
        faults.append("run_at must be later than 1970")
    if placing.delay_ms is not None and placing.run_at_ms is not None:
        faults.append("delay_ms and run_at say the same thing: give one of them")
    if not LOWEST_PRIORITY <= placing.priority <= HIGHEST_PRIORITY:
        faults.append(f"priority must be from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, not {placing.priority}")
    if placing.expires_ms is not None and placing.expires_ms < 1:
        faults.append(f"expires_ms must be 1 or more, not {placing.expires_ms}")
    return faults + _dedup_faults(placing)


def _dedup_faults(placing: Placing) -> list[str]:
    dedup = placing.dedup
    if dedup is None:
        return []
    faults = [] if dedup.key else ["the deduplication key is empty"]
    if dedup.rule is not DedupRule.UNFINISHED and dedup.for_ms < 1:
        faults.append(f"a {dedup.rule} lasts 1 ms or more, not {dedup.for_ms}")
    if dedup.rule is DedupRule.DEBOUNCE and (placing.delay_ms is not None or placing.run_at_ms is not None):
        faults.append("a debounced job waits for its own time: leave the delay out")
    return faults


def with_placing(base: Placing | None, given: dict[str, Any]) -> Placing | None:
    """The placing with what was given replaced; None if nothing is special."""
    if not given:
        return base
    return msgspec.structs.replace(base or Placing(), **given)
