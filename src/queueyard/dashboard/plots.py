"""How rows of a gold table become lines or bars. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from markupsafe import Markup

from queueyard.dashboard import texts
from queueyard.dashboard.span import Row, Span, moment_of
from queueyard.dashboard.svg import Bar, Series, bars, lines

_MOST_BARS = 12
_MOST_LINES = 8
#: distances between the ticks of an axis of time: from 15 s to 2 d
SECONDS = (15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800)

#: rows, title and what is wanted -> picture, and what each line is
Draw = Callable[[Sequence[Row], str, Span], tuple[Markup, list[str]]]


def over_time(
    name: Callable[[Row], str],
    value: str,
    text: Callable[[float], str],
    *,
    together: Callable[[list[float]], float] = sum,
    top: float | None = None,
    steps: Sequence[float] = (),
) -> Draw:
    """A line per name; rows of one name and time are put `together`."""

    def draw(rows: Sequence[Row], title: str, _: Span) -> tuple[Markup, list[str]]:
        found: defaultdict[str, defaultdict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row[value] is not None:
                at = moment_of(row.get("bucket_at") or row["day"]).timestamp()
                found[name(row)][at].append(row[value])
        largest = sorted(found, key=lambda one: -sum(map(sum, found[one].values())))[:_MOST_LINES]
        series = [
            Series(name=one, points=sorted((at, together(values)) for at, values in found[one].items()))
            for one in sorted(largest)
        ]
        return lines(series, label=title, text=text, top=top, steps=steps), [one.name for one in series]

    return draw


def percentiles(rows: Sequence[Row], title: str, span: Span) -> tuple[Markup, list[str]]:
    """A line per system; of a single system, a line per percentile. Of several queues the slowest counts."""
    if not span.system:
        return over_time(system_of, "p95_s", texts.seconds, together=max, steps=SECONDS)(rows, title, span)
    apart = [
        {"day": row["day"], "name": name, "value": row[f"{name}_s"]}
        for row in rows
        for name in ("p50", "p90", "p95", "p99")
    ]
    draw = over_time(lambda row: str(row["name"]), "value", texts.seconds, together=max, steps=SECONDS)
    return draw(apart, title, span)


def largest(
    name: Callable[[Row], str],
    value: str,
    text: Callable[[float], str],
    *,
    inner: str | None = None,
    together: Callable[[list[float]], float] = sum,
) -> Draw:
    """A bar per name, the largest first; `inner` is a second column within the bar."""

    def draw(rows: Sequence[Row], title: str, _: Span) -> tuple[Markup, list[str]]:
        outer: defaultdict[str, list[float]] = defaultdict(list)
        within: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            if row[value] is not None:
                outer[name(row)].append(row[value])
                within[name(row)].append(row[inner] or 0.0 if inner else 0.0)
        found = [
            Bar(name=one, value=together(values), inner=together(within[one]) if inner else None)
            for one, values in outer.items()
        ]
        found.sort(key=lambda bar: (-bar.value, bar.name))
        return bars(found[:_MOST_BARS], label=title, text=text), []

    return draw


def system_of(row: Row) -> str:
    return str(row["system"])


def queue_of(row: Row) -> str:
    return f"{row['system']} {row['queue']}"
