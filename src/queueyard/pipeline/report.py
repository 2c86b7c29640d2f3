"""One self-contained HTML page and one PNG per chart, from the gold tables. Needs no Spark and no Java.

Every chart is also there as a table. All text that came from a system is escaped: a subject, a reason or a name can be
anything.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from html import escape
from io import StringIO
from statistics import median_low
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
import msgspec

from queueyard.kernel.atomic import replace_file
from queueyard.pipeline.delta import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

Row = dict[str, Any]
_MOST_BARS = 15
_MOST_TABLE_ROWS = 200
_LONGEST_LABEL = 60
_SHORTEST_S = 0.001
#: a point that is so many times farther from the middle than usual is left out of the picture
_FAR = 20
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
svg { width: 100%; height: auto; background: #fff; border-radius: .5rem; }
table { border-collapse: collapse; font-size: .85rem; display: block; overflow-x: auto; }
th, td { padding: .2rem .6rem; border-bottom: 1px solid #8884; text-align: left; white-space: nowrap; }
section { margin: 3rem 0; }
"""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One picture of one table."""

    name: str
    title: str
    table: str
    draw: Callable[[Axes, list[Row]], None]
    #: which rows of the table
    keep: Callable[[Row], bool] = lambda _: True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    page: str
    pictures: list[str]


def write_report(home: str, folder: Path) -> Report:
    """Make the folder, the page and the pictures. A table without rows has a sentence instead of a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    sections: list[str] = []
    pictures: list[str] = []
    for chart in CHARTS:
        rows = [row for row in read_rows(home, chart.table) if chart.keep(row)]
        if rows:
            path = folder / f"{chart.name}.png"
            sections.append(_section(chart, _draw(chart, rows, path), rows))
            pictures.append(str(path))
        else:
            sections.append(f"<section><h2>{escape(chart.title)}</h2><p>Nothing to show yet.</p></section>")
    page = folder / "index.html"
    replace_file(page, _page(home, sections).encode())
    return Report(page=str(page), pictures=pictures)


def read_rows(home: str, table: str) -> list[Row]:
    """All rows of a gold table, as the last run committed them."""
    found: list[Row] = DeltaLog(f"{home}/{table}").read_rows()
    return found


def _draw(chart: Chart, rows: list[Row], path: Path) -> str:
    """The picture as a PNG file, and as the text of an SVG."""
    # A salt of our own: otherwise two pages of the same tables differ in the names inside their pictures. And a dollar
    # in a reason or a name is a dollar, not the begin of a formula.
    with mpl.rc_context(
        {
            "svg.hashsalt": "queueyard",
            "svg.fonttype": "none",
            "text.parse_math": False,
            "date.converter": "concise",
        }
    ):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        axes = figure.subplots()
        axes.set_title(chart.title, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        chart.draw(axes, rows)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize="small")
        figure.savefig(path, dpi=120)
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _section(chart: Chart, svg: str, rows: list[Row]) -> str:
    columns = list(rows[0])
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(row[column]))}</td>' for column in columns)}</tr>"
        for row in rows[:_MOST_TABLE_ROWS]
    )
    more = f"<p>{len(rows) - _MOST_TABLE_ROWS} more rows.</p>" if len(rows) > _MOST_TABLE_ROWS else ""
    return (
        f"<section><h2>{escape(chart.title)}</h2>{svg}<details><summary>As a table</summary>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}</details></section>"
    )


def _page(home: str, sections: Iterable[str]) -> str:
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>Queueyard report</title><style>{_STYLE}</style></head>"
        f"<body><h1>Queueyard report</h1><p>Tables: {escape(home)}</p>{''.join(sections)}</body></html>\n"
    )


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


# --- the charts ------------------------------------------------------------------------------------------------------


def _of_grain(grain: str) -> Callable[[Row], bool]:
    return lambda row: row["grain"] == grain


def _throughput(axes: Axes, rows: list[Row]) -> None:
    for system, own in _by(_usual(axes, rows, over="bucket_at"), "system").items():
        buckets = _summed(own, "bucket_at", "succeeded")
        axes.plot(list(buckets), list(buckets.values()), marker="o", markersize=3, label=system)
    axes.set_ylabel("succeeded per hour")


def _durations(axes: Axes, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: -(row["p95_s"] or 0))[:_MOST_BARS]
    names = _labels(rows, "system", "source", "queue", "measure")
    # Minutes and milliseconds stand side by side, so each step to the right is ten times as long.
    middle, late = ([max(row[name] or 0, _SHORTEST_S) for row in rows] for name in ("p50_s", "p95_s"))
    axes.hlines(names, middle, late, color="#9ecae1", linewidth=4)
    axes.scatter(middle, names, color="#3182bd", zorder=2, label="p50")
    axes.scatter(late, names, color="#9ecae1", zorder=2, label="p95")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    axes.invert_yaxis()
    axes.set_xlabel("seconds")


def _failures(axes: Axes, rows: list[Row]) -> None:
    _longest_bars(axes, [(str(row["reason"]), row["failures"]) for row in rows], color="#de2d26")
    axes.set_xlabel("failures")


def _fairness(axes: Axes, rows: list[Row]) -> None:
    _lines(axes, rows, ("system", "source", "queue"), over="bucket_at", value="jain_services")
    axes.set_ylim(0, 1.05)
    axes.set_ylabel("Jain index of starts")


def _landing(axes: Axes, rows: list[Row]) -> None:
    _lines(axes, rows, ("source", "queue"), over="day", value="land_p95_s")
    axes.set_ylabel("p95 seconds to land")


def _agents(axes: Axes, rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: -(row["sent"] + row["received"]))[:_MOST_BARS]
    names = _labels(rows, "source", "agent")
    axes.barh(names, [row["received"] for row in rows], color="#bcbddc", label="received")
    axes.barh(names, [row["sent"] for row in rows], color="#756bb1", height=0.4, label="sent")
    axes.invert_yaxis()
    axes.set_xlabel("messages")


def _contention(axes: Axes, rows: list[Row]) -> None:
    pairs = [row | {"pair": f"{row['waiter']} for {row['holder']}"} for row in rows]
    seconds = [row["overlap_s"] or 0 for row in rows]
    _longest_bars(axes, list(zip(_labels(pairs, "source", "pair"), seconds, strict=True)), color="#fd8d3c")
    axes.set_xlabel("seconds of overlap")


def _sync(axes: Axes, rows: list[Row]) -> None:
    _lines(axes, rows, ("source", "space"), over="day", value="lag_p95_s")
    axes.set_ylabel("p95 seconds until answered")


def _labels(rows: Sequence[Row], *columns: str) -> list[str]:
    """What tells the rows apart, for people: of these columns, those that are not the same in all of them."""
    telling = [name for name in columns if len({row[name] for row in rows}) > 1] or columns[-1:]
    # A source may be a long path; it is named only where nothing else tells two rows apart.
    shorter = [name for name in telling if name != "source"]
    if _distinct(rows, shorter) == _distinct(rows, telling):
        telling = shorter
    return [_label(" ".join(str(row[name]) for name in telling)) for row in rows]


def _distinct(rows: Sequence[Row], columns: Sequence[str]) -> int:
    return len({tuple(row[name] for name in columns) for row in rows})


def _label(text: str) -> str:
    """At most so long; its end tells more, if it is a path."""
    return text if len(text) <= _LONGEST_LABEL else f"…{text[1 - _LONGEST_LABEL :]}"


def _longest_bars(axes: Axes, pairs: Iterable[tuple[str, float]], *, color: str) -> None:
    """One bar per label; those that look the same are added up."""
    sums: dict[str, float] = defaultdict(float)
    for text, value in pairs:
        sums[text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"] += value
    most = sorted(sums.items(), key=lambda pair: -pair[1])[:_MOST_BARS]
    axes.barh([text for text, _ in most], [value for _, value in most], color=color)
    axes.invert_yaxis()


def _lines(axes: Axes, rows: Sequence[Row], columns: Sequence[str], *, over: str, value: str) -> None:
    """One line per label, in the order of time."""
    shown = _usual(axes, [row for row in rows if row[value] is not None], over=over)
    lines: dict[str, list[Row]] = defaultdict(list)
    for label, row in zip(_labels(shown, *columns), shown, strict=True):
        lines[label].append(row)
    for label, own in sorted(lines.items()):
        own.sort(key=lambda row: row[over])
        axes.plot([row[over] for row in own], [row[value] for row in own], marker="o", markersize=3, label=label)


def _usual(axes: Axes, rows: Sequence[Row], *, over: str) -> list[Row]:
    """The rows that do not lie far from the rest: one clock that is years ahead would press all else into a line.

    How many others there are is said; the table has them.
    """
    moments = sorted(_as_moment(row[over]) for row in rows)
    if not moments:
        return []
    middle = median_low(moments)
    usual = median_low(sorted(abs(moment - middle) for moment in moments)) or timedelta(days=1)
    near = [row for row in rows if abs(_as_moment(row[over]) - middle) <= _FAR * usual]
    if far := len(rows) - len(near):
        axes.set_title(f"not shown: {far} at far other times", loc="right", size="small")
    return near


def _as_moment(time: date) -> datetime:
    """A day is its begin; in UTC, as the tables are."""
    return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day, tzinfo=UTC)


def _by(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[str(row[column])].append(row)
    return dict(sorted(found.items()))


def _summed(rows: Sequence[Row], key: str, value: str) -> dict[Any, int]:
    sums: dict[Any, int] = defaultdict(int)
    for row in rows:
        sums[row[key]] += row[value] or 0
    return dict(sorted(sums.items(), key=lambda pair: str(pair[0])))


CHARTS = (
    Chart(
        name="throughput",
        title="What succeeded, per hour",
        table="gold/throughput",
        draw=_throughput,
        keep=_of_grain("hour"),
    ),
    Chart(
        name="durations",
        title="Waiting and running",
        table="gold/durations",
        draw=_durations,
        keep=lambda row: row["scope"] == "queue",
    ),
    Chart(name="failures", title="Failures by reason", table="gold/failures", draw=_failures),
    Chart(
        name="fairness",
        title="Fairness between groups",
        table="gold/fairness",
        draw=_fairness,
        keep=_of_grain("hour"),
    ),
    Chart(name="landing", title="Time to land", table="gold/landing", draw=_landing),
    Chart(name="agents", title="Messages of agents", table="gold/agents", draw=_agents),
    Chart(name="contention", title="Who waited for whose files", table="gold/contention", draw=_contention),
    Chart(name="sync", title="How far sync lags", table="gold/sync", draw=_sync),
)
