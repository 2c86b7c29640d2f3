"""Which part of the history somebody wants to see. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import msgspec

Row = dict[str, Any]

#: what can be chosen, and how far back it looks
RANGES: dict[str, timedelta | None] = {
    "6h": timedelta(hours=6),
    "24h": timedelta(days=1),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "all": None,
}
DEFAULT_RANGE = "30d"


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants to see of the history."""

    #: one of RANGES
    range: str = DEFAULT_RANGE
    #: only this one; empty: all
    system: str = ""
    now: datetime

    @property
    def since(self) -> datetime | None:
        back = RANGES[self.range]
        return None if back is None else self.now - back

    def keeps(self, row: Row) -> bool:
        """Whether the row is of the system and of the time. One that tells no time is of all times.

        What claims to come from the future was told by a clock that is wrong, and would only stretch the picture.
        """
        if self.system and row.get("system", self.system) != self.system:
            return False
        told = row.get("bucket_at") or row.get("day")
        if told is None:
            return True
        moment = moment_of(told)
        return moment <= self.now and (self.since is None or moment >= _start_of(self.since, told))


def moment_of(value: datetime | date) -> datetime:
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    return datetime.combine(value, time(), UTC)


def _start_of(since: datetime, moment: datetime | date) -> datetime:
    """A row of a whole day counts if any part of the day does."""
    return since if isinstance(moment, datetime) else datetime.combine(since.date(), time(), UTC)
