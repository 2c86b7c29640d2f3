"""Who comes first and how fast: priorities with ageing, and rate limits of a queue and of each key. Plain records.

The rules of a queue stand in its `:meta` hash. A worker whose queue declares some writes them there; every worker reads
them, and takes its turns with a longer script if there are any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: without ageing one level of priority is worth a year of waiting: nobody waits that long
STRICT_LEVEL_US = 365 * 86_400 * 1_000_000
FIELDS = ("ranked", "rateCount", "rateMs", "rateBurst", "keyRateCount", "keyRateMs", "keyRateBurst")


class Rate(msgspec.Struct, frozen=True):
    """So many starts per so much time: `Rate(100)` is a hundred a second, `Rate(5, per_ms=60_000)` five a minute."""

    count: int
    per_ms: int = 1_000
    #: how many may start at once after a rest; None: as many as `count`
    burst: int | None = None

    def words(self) -> tuple[str, str, str]:
        return str(self.count), str(self.per_ms), str(self.burst or self.count)


class QueueRules(msgspec.Struct, frozen=True):
    """What makes a queue more than first come, first served."""

    #: microseconds of waiting that one level of priority is worth; None: no priorities
    level_us: int | None = None
    rate: Rate | None = None
    #: of each concurrency key, in keyed and dynamic mode
    key_rate: Rate | None = None

    def __bool__(self) -> bool:
        return self.level_us is not None or self.rate is not None or self.key_rate is not None

    def fields(self) -> dict[str, str]:
        """As they stand in the meta hash; only those that are set."""
        told: dict[str, str] = {} if self.level_us is None else {"ranked": str(self.level_us)}
        if self.rate is not None:
            told |= zip(FIELDS[1:4], self.rate.words(), strict=True)
        if self.key_rate is not None:
            told |= zip(FIELDS[4:7], self.key_rate.words(), strict=True)
        return told


def rules_from(values: Sequence[bytes | None]) -> QueueRules:
    """The rules from the values of `FIELDS`; what is no number counts as nothing."""
    numbers = {name: _number(value) for name, value in zip(FIELDS, values, strict=True)}
    return QueueRules(numbers["ranked"], _rate(numbers, "rate"), _rate(numbers, "keyRate"))


def rate_faults(name: str, rate: Rate | None) -> list[str]:
    """Everything that is wrong with a rate, in words."""
    if rate is None:
        return []
    return [
        f"{name}: {about} must be 1 or more, not {value}"
        for about, value in (("count", rate.count), ("per_ms", rate.per_ms), ("burst", rate.burst or 1))
        if value < 1
    ]


def _rate(numbers: Mapping[str, int | None], name: str) -> Rate | None:
    count, per_ms, burst = (numbers[f"{name}{part}"] for part in ("Count", "Ms", "Burst"))
    return None if count is None or per_ms is None else Rate(count, per_ms, burst)


def _number(raw: bytes | None) -> int | None:
    return int(raw) if raw is not None and raw.isdigit() else None
