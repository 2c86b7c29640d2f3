"""Charts as SVG text, drawn on the server: lines, bars and sparklines. Pure.

Colours come from the style sheet by class, so that dark and light need no second picture, and nothing here breaks a
strict content security policy. Every text is escaped. What a chart shows is also there as a table, so the picture
itself is one image with a name for those who cannot see it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import floor, log10
from typing import TYPE_CHECKING

from markupsafe import Markup
import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WIDTH, _HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 24
_BAR_HEIGHT, _BAR_GAP = 14, 22
_COLOURS = 8
_TICKS = 4
_LONGEST_LABEL = 64
#: with more points, a line of dots hides the line
_MOST_DOTS = 45


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line: seconds since 1970 -> value, in order of time."""

    name: str
    points: list[tuple[float, float]]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar; `inner` is a second value within it, for example the median within the 95th percentile."""

    name: str
    value: float
    inner: float | None = None


def spark(values: Sequence[float], *, label: str) -> Markup:
    """A line of the size of a word; flat where nothing changes."""
    top = max([*values, 1])
    step = 100 / max(1, len(values) - 1)
    points = " ".join(f"{index * step:.1f},{23 - 21 * value / top:.1f}" for index, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<polygon points="0,24 {} {:.1f},24"/><polyline points="{}"/></svg>'
    ).format(label, points, (len(values) - 1) * step, points)


def lines(
    series: Sequence[Series],
    *,
    label: str,
    text: Callable[[float], str],
    top: float | None = None,
    steps: Sequence[float] = (),
) -> Markup:
    """Lines over time with an axis; a single point is a dot. `steps`: distances between ticks that read well."""
    every = [point for one in series for point in one.points]
    if not every:
        return Markup()
    first, last = min(x for x, _ in every), max(x for x, _ in every)
    ceiling = top or _ceiling(max(y for _, y in every), steps)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / (last - first) if last > first else 0.5
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - y / ceiling * (_HEIGHT - _TOP - _BOTTOM)

    has_dots = max(len(one.points) for one in series) <= _MOST_DOTS
    parts = [*_grid(ceiling, text), *_dates(first, last)]
    for number, one in enumerate(series):
        spots = [place(x, y) for x, y in one.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(Markup('<polyline class="line c{}" points="{}"/>').format(number % _COLOURS, path))
        if has_dots:
            parts += [_dot(number, spot, one.name, point, text) for spot, point in zip(spots, one.points, strict=True)]
    return _picture(parts, _HEIGHT, label)


def bars(found: Sequence[Bar], *, label: str, text: Callable[[float], str]) -> Markup:
    """Bars from left to right, longest text first cut; the value stands behind each."""
    if not found:
        return Markup()
    ceiling = max([bar.value for bar in found] + [1e-9])
    room = _WIDTH - 90
    parts: list[Markup] = []
    for number, bar in enumerate(found):
        y = number * (_BAR_HEIGHT + _BAR_GAP)
        name = bar.name if len(bar.name) <= _LONGEST_LABEL else f"{bar.name[:_LONGEST_LABEL]}…"
        width = max(1.0, bar.value / ceiling * room)
        parts.append(Markup('<text class="name" x="0" y="{}">{}</text>').format(y + 13, name))
        parts.append(_rect("bar outer" if bar.inner is not None else "bar", y + 18, width))
        if bar.inner is not None:
            parts.append(_rect("bar", y + 18, max(1.0, bar.inner / ceiling * room)))
        parts.append(Markup('<text x="{:.1f}" y="{}">{}</text>').format(width + 6, y + 29, text(bar.value)))
    return _picture(parts, len(found) * (_BAR_HEIGHT + _BAR_GAP) + 4, label)


def _rect(classes: str, y: float, width: float) -> Markup:
    return Markup('<rect class="{}" x="0" y="{}" width="{:.1f}" height="{}" rx="2"/>').format(
        classes, y, width, _BAR_HEIGHT
    )


def _dot(
    number: int, spot: tuple[float, float], name: str, point: tuple[float, float], text: Callable[[float], str]
) -> Markup:
    at = datetime.fromtimestamp(point[0], UTC)
    return Markup('<circle class="dot c{}" cx="{:.1f}" cy="{:.1f}" r="2.5"><title>{}</title></circle>').format(
        number % _COLOURS, *spot, f"{name}: {text(point[1])}, {at:%Y-%m-%d %H:%M}"
    )


def _grid(ceiling: float, text: Callable[[float], str]) -> list[Markup]:
    found = []
    for tick in range(_TICKS + 1):
        value = ceiling * tick / _TICKS
        y = _HEIGHT - _BOTTOM - value / ceiling * (_HEIGHT - _TOP - _BOTTOM)
        found.append(
            Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, _WIDTH - _RIGHT, y, y)
        )
        found.append(
            Markup('<text class="axis" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(
                _LEFT - 6, y + 4, text(value)
            )
        )
    return found


def _dates(first: float, last: float) -> list[Markup]:
    shape = "%H:%M" if last - first <= 86_400 else "%d %b"
    ends = [(_LEFT, "start", first), (_WIDTH - _RIGHT, "end", last)]
    if last > first:
        ends.insert(1, ((_LEFT + _WIDTH - _RIGHT) // 2, "middle", (first + last) / 2))
    return [
        Markup('<text class="axis" x="{}" y="{}" text-anchor="{}">{}</text>').format(
            x, _HEIGHT - 6, anchor, datetime.fromtimestamp(at, UTC).strftime(shape)
        )
        for x, anchor, at in ends
    ]


def _picture(parts: Sequence[Markup], height: float, label: str) -> Markup:
    # Markup.join escapes what is not markup yet; all of this is.
    head = Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(_WIDTH, height, label)
    return head + Markup().join(parts) + Markup("</svg>")


def _ceiling(value: float, steps: Sequence[float]) -> float:
    """The end of the axis: the ticks below it are at one of the steps, else at 1, 2, 2.5 or 5 times a power of ten."""
    wanted = value / _TICKS
    if wanted <= 0:
        return 1.0
    for step in steps:
        if steps[0] <= wanted <= step:
            return step * _TICKS
    power = 10.0 ** floor(log10(wanted))
    return _TICKS * next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= wanted)
