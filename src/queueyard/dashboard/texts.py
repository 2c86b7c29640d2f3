"""How values read on a page: numbers, durations, sizes, shares. Pure; escaping is the template's."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from queueyard.kernel.clock import format_duration, to_rfc3339

NOTHING = "–"  # noqa: RUF001  a dash, so that a column of numbers keeps its shape
_UNITS = ("B", "kB", "MB", "GB", "TB")


def number(value: float | None) -> str:
    """12,345; three significant digits where it is no whole number."""
    if value is None:
        return NOTHING
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def seconds(value: float | None) -> str:
    """35 ms, 1.2 s, 4m 12s."""
    if value is None:
        return NOTHING
    if 0 < value < 1:
        return f"{value * 1000:.0f} ms"
    if not value:
        return "0"
    return f"{value:.3g} s" if value < 60 else format_duration(timedelta(seconds=value))


def share(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0%}"


def size(value: float | None) -> str:
    if value is None:
        return NOTHING
    amount, unit = float(value), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


def plain(value: Any) -> str:
    """A value of a gold table, as text."""
    if value is None:
        return NOTHING
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


def cell_of_csv(value: Any) -> str:
    """A value for a spreadsheet. A text that one would take for a formula gets an apostrophe in front."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, int | float | date):
        return str(value)
    text = str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
