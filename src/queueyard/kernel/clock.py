"""The only place that asks for the time, and the only place that reads or writes times and durations as text."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
import re
import time
from typing import Protocol

from queueyard.kernel.errors import QueueyardError


class BadTime(QueueyardError):
    """A text is neither a point in time nor a duration."""


class Clock(Protocol):
    """What a service needs to know about time. Tests pass `queueyard.kernel.testing.FakeClock`."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""

    def sleep(self, seconds: float) -> None:
        """Wait at least that long."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK: Clock = SystemClock()


def to_rfc3339(moment: datetime) -> str:
    """UTC with a `Z`; microseconds, trailing zeros trimmed, as the tools of the formats write it."""
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat()
    if "." in text:
        text = text.rstrip("0")
    return text + "Z"


# Go writes nanoseconds, which datetime cannot hold: digits past the sixth are dropped.
_RFC3339 = r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?\s*([Zz]|[+-]\d\d:?\d\d)?"


def from_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 time; a time without a zone is UTC. BadTime for anything else."""
    if _is_plain(text):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    found = re.fullmatch(_RFC3339, text.strip(), re.ASCII)
    if not found:
        raise BadTime(f"not a time: {text!r}", hint="Write it like 2026-01-31T14:00:00Z.")
    day, clock, fraction, zone = found.groups()
    try:
        return datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0'):0<6}{_zone(zone)}").astimezone(UTC)
    except (ValueError, OverflowError) as fault:
        raise BadTime(f"not a time: {text!r} ({fault})", hint="Write it like 2026-01-31T14:00:00Z.") from fault


def _is_plain(text: str) -> bool:
    """Written as we write it ourselves, which the standard library reads faster than a pattern does."""
    return 20 <= len(text) <= 27 and text[4] + text[7] + text[10] + text[13] + text[16] + text[-1] == "--T::Z"


def _zone(text: str | None) -> str:
    return "+00:00" if text is None or text in "Zz" else text


_UNIT_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_PART = r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d|w)"
_LONGEST = timedelta(days=36525)


def parse_duration(text: str) -> timedelta:
    """Read `90s`, `1h30m`, `2d`, `1.5h`, with an optional minus sign. BadTime for a number without unit."""
    hint = "Write a number with its unit: 90s, 45m, 1h30m, 2d, 1w."
    bare = text.strip()
    sign, digits = (-1, bare[1:]) if bare.startswith("-") else (1, bare.removeprefix("+"))
    parts = re.findall(_PART, digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise BadTime(f"not a duration: {text!r}", hint=hint)
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST.total_seconds():
        raise BadTime(f"longer than a hundred years: {text!r}", hint=hint)
    return timedelta(seconds=sign * seconds)


def format_duration(span: timedelta) -> str:
    """Two units at most, for people: `3d 4h`, `1h 5m`, `12s`. The sign is kept."""
    left = int(abs(span).total_seconds())
    parts = []
    for unit in ("w", "d", "h", "m", "s"):
        count, left = divmod(left, int(_UNIT_SECONDS[unit]))
        if count:
            parts.append(f"{count}{unit}")
    sign = "-" if span < timedelta(0) and parts else ""
    return sign + (" ".join(parts[:2]) or "0s")


def parse_since(text: str, now: datetime) -> datetime:
    """Read a point in the past: a duration ago (`2h`), a date, or a time. BadTime for anything else."""
    bare = text.strip().removesuffix(" ago")
    if re.match(_PART, bare):
        return now - parse_duration(bare)
    if re.fullmatch(r"\d{4}-\d\d-\d\d", bare):
        bare += "T00:00:00Z"
    try:
        return from_rfc3339(bare)
    except BadTime as fault:
        raise BadTime(
            f"not a point in time: {text!r}", hint="Write 2h, 3d, 2026-01-31 or 2026-01-31T14:00:00Z."
        ) from fault
