"""One page and its pictures: whatever stands in the tables, the same each time, and every row of its own."""

from __future__ import annotations

from datetime import date
from io import StringIO
from pathlib import Path
import re
from typing import TYPE_CHECKING

import matplotlib.figure
from numpy import asarray

from gold_tables import make_gold, write_table
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.report import CHARTS, write_report

if TYPE_CHECKING:
    import pytest

_FORMULAS = r"cannot open $env:TEMP\work, nor $env:HOME <script>alert(1)</script> -->"
#: what the rows are about of which there are pictures, where a table has several sorts
_WANTED = {"throughput": {"grain": "hour"}, "durations": {"scope": "queue"}, "fairness": {"grain": "hour"}}
_AGENT = {
    "sent": 0,
    "received": 1,
    "unread": 0,
    "answered": 0,
    "response_p50_s": None,
    "response_p95_s": None,
    "is_exact": True,
    "assignments": 0,
    "open_assignments": 0,
    "completed": 0,
    "idle_gaps": 0,
    "idle_s": None,
}


def test_every_table_has_a_picture_and_two_pages_of_the_same_tables_are_the_same(tmp_path: Path) -> None:
    make_gold(tmp_path / "home")
    for name, kept in _WANTED.items():
        rows = DeltaLog(str(tmp_path / "home" / "gold" / name)).read_rows()
        write_table(tmp_path / "home", name, [row | kept for row in rows])

    first, again = (write_report(str(tmp_path / "home"), tmp_path / name) for name in ("first", "again"))

    assert [Path(picture).stem for picture in first.pictures] == [chart.name for chart in CHARTS]
    assert all(Path(picture).read_bytes().startswith(b"\x89PNG") for picture in first.pictures)
    page = Path(first.page).read_text()
    assert page == Path(again.page).read_text()
    # As text, so that it can be found and read aloud.
    assert "<text" in page


def test_texts_of_others_are_texts_and_nothing_else(tmp_path: Path) -> None:
    """Neither markup nor formulas; the second kind would end the report."""
    make_gold(tmp_path / "home", mark=_FORMULAS)

    page = Path(write_report(str(tmp_path / "home"), tmp_path / "report").page).read_text()

    assert "<script" not in page
    assert "$env:TEMP" in page


def test_tables_without_rows_have_a_sentence(tmp_path: Path) -> None:
    written = write_report(str(tmp_path / "home"), tmp_path / "report")

    assert written.pictures == []
    assert Path(written.page).read_text().count("Nothing to show yet.") == len(CHARTS)


def test_agents_of_the_same_name_in_two_repositories_have_two_bars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", _save_labels)
    rows = [_AGENT | {"source": source, "agent": agent} for source in ("/a", "/b") for agent in ("ana", "ben")]
    write_table(tmp_path / "home", "agents", rows)

    page = Path(write_report(str(tmp_path / "home"), tmp_path / "report").page).read_text()

    [labels] = re.findall("<svg>(.*)</svg>", page)
    assert labels.split(",") == ["/a ana", "/a ben", "/b ana", "/b ben"]


def test_a_clock_that_is_years_ahead_does_not_hide_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[date]] = []
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda figure, *_, **__: _note_days(figure, drawn))
    monkeypatch.setattr("queueyard.pipeline.report.StringIO", lambda: StringIO("<svg></svg>"))
    days = [date(2026, 3, day) for day in (1, 2, 3)]
    rows = [{"source": "/a", "queue": "main", "day": day, "land_p95_s": 60.0} for day in (*days, date(2028, 7, 1))]
    write_table(tmp_path / "home", "landing", rows)

    page = Path(write_report(str(tmp_path / "home"), tmp_path / "report").page).read_text()

    assert drawn == [days, days]
    assert "2028-07-01" in page


def _note_days(figure: matplotlib.figure.Figure, drawn: list[list[date]]) -> None:
    [axes] = figure.axes
    [line] = axes.get_lines()
    drawn.append(asarray(line.get_xdata(orig=True)).tolist())


def _save_labels(figure: matplotlib.figure.Figure, target: object, **_: object) -> None:
    """In place of a picture, what it says at its bars."""
    [axes] = figure.axes
    if not isinstance(target, Path):
        target.write(f"<svg>{','.join(label.get_text() for label in axes.get_yticklabels())}</svg>")  # type: ignore[attr-defined]
