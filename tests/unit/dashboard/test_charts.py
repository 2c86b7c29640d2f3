"""Charts choose the right rows, and what they show is what the schemas of the pipeline have."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from queueyard.dashboard.charts import CHARTS, Chart
from queueyard.dashboard.span import RANGES, Span
from queueyard.dashboard.svg import Bar, Series, bars, lines, spark
from queueyard.dashboard.texts import cell_of_csv, number, seconds, share, size

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def chart(name: str) -> Chart:
    return next(one for one in CHARTS if one.name == name)


def bucket(grain: str, at: datetime, **fields: Any) -> dict[str, Any]:
    return {"grain": grain, "bucket_at": at, "system": "jjq", "source": "s", "queue": "q", "succeeded": 1} | fields


@pytest.mark.parametrize("one", CHARTS, ids=lambda one: one.name)
def test_a_chart_shows_columns_that_its_table_has(one: Chart) -> None:
    schemas = pytest.importorskip("queueyard.pipeline.schemas")

    known = getattr(schemas, one.table.upper()).schema.fieldNames()

    assert set(one.columns) <= set(known)


def test_buckets_are_as_short_as_the_picture_has_room_for() -> None:
    minutes = [bucket("minute", NOW - timedelta(minutes=back)) for back in range(300)]
    hours = [bucket("hour", NOW - timedelta(hours=back)) for back in range(5)]
    span = Span(range="all", now=NOW)

    long = chart("throughput").drawn([*minutes, *hours], span)
    short = chart("throughput").drawn([*minutes[:60], *hours], span)

    assert {row["grain"] for row in long.rows} == {"hour"}
    assert {row["grain"] for row in short.rows} == {"minute"}


def test_a_range_keeps_a_day_of_which_it_has_a_part() -> None:
    span = Span(range="24h", now=NOW)

    assert span.keeps({"day": date(2026, 3, 9)})
    assert not span.keeps({"day": date(2026, 3, 8)})
    assert not span.keeps({"bucket_at": NOW - timedelta(hours=25)})
    assert span.keeps({"agent": "ana"})


def test_what_claims_to_come_from_the_future_is_left_out() -> None:
    assert not any(Span(range=one, now=NOW).keeps({"day": date(2027, 1, 1)}) for one in RANGES)


def test_another_system_is_left_out() -> None:
    span = Span(range="all", system="ops", now=NOW)

    assert not span.keeps({"system": "jjq"})
    assert span.keeps({"system": "ops"})
    assert span.keeps({"space": "docs"})


def test_counts_of_one_time_are_added_and_percentiles_are_not() -> None:
    rows = [bucket("day", NOW, succeeded=2), bucket("day", NOW, succeeded=3, queue="other")]
    slow = [
        {"measure": "wait", "scope": "day", "day": NOW.date(), "system": "jjq", "queue": queue, "p95_s": value}
        for queue, value in (("a", 4.0), ("b", 9.0))
    ]

    counted = chart("throughput").drawn(rows, Span(range="all", now=NOW))
    waited = chart("wait").drawn(slow, Span(range="all", now=NOW))

    assert "jjq: 5," in counted.picture
    assert "jjq: 9 s," in waited.picture


def test_an_empty_range_tells_when_the_newest_was() -> None:
    old, wrong = bucket("day", NOW - timedelta(days=90)), bucket("day", NOW + timedelta(days=90))

    drawn = chart("throughput").drawn([old, wrong], Span(range="7d", now=NOW))

    assert (drawn.rows, drawn.newest) == ([], NOW - timedelta(days=90))


def test_one_system_is_told_by_all_its_percentiles() -> None:
    row = {"measure": "run", "scope": "day", "day": NOW.date(), "system": "jjq", "queue": "q"}
    row |= {"p50_s": 1.0, "p90_s": 5.0, "p95_s": 7.0, "p99_s": 9.0}

    drawn = chart("run").drawn([row], Span(range="all", system="jjq", now=NOW))

    assert drawn.names == ["p50", "p90", "p95", "p99"]


def test_a_name_in_a_picture_is_escaped() -> None:
    hostile = "<script>alert(1)</script>"

    drawn = [
        lines([Series(name=hostile, points=[(0.0, 1.0)])], label=hostile, text=str),
        bars([Bar(name=hostile, value=1.0)], label=hostile, text=lambda _: hostile),
        spark([1, 2], label=hostile),
    ]

    assert all("<script" not in one and "&lt;script" in one for one in drawn)


def test_nothing_is_drawn_of_nothing() -> None:
    assert lines([], label="x", text=str) == ""
    assert bars([], label="x", text=str) == ""
    assert 'points=""' in spark([], label="x")


def test_one_point_and_zeros_are_drawn() -> None:
    picture = lines([Series(name="a", points=[(5.0, 0.0)])], label="x", text=str)

    assert "<circle" in picture
    assert "nan" not in picture


@pytest.mark.parametrize(
    ("value", "steps", "ticks"),
    [(9.0, (), ["0", "2.5", "5", "7.5", "10"]), (9_000.0, (900, 3_600), ["0", "1h", "2h", "3h", "4h"])],
)
def test_an_axis_has_ticks_that_read_well(value: float, steps: tuple[float, ...], ticks: list[str]) -> None:
    text = seconds if steps else number

    picture = lines([Series(name="a", points=[(5.0, value)])], label="x", text=text, steps=steps)

    assert [tick for tick in ticks if f'text-anchor="end">{tick}</text>' not in picture] == []


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(1234567), "1,234,567"),
        (number(0.98765), "0.988"),
        (number(None), "–"),  # noqa: RUF001
        (seconds(0), "0"),
        (seconds(0.0312), "31 ms"),
        (seconds(12.34), "12.3 s"),
        (seconds(3700), "1h 1m"),
        (share(0.256), "26%"),
        (size(999), "999 B"),
        (size(1_500_000), "1.5 MB"),
        (size(250_000), "250 kB"),
    ],
)
def test_values_read_well(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "\r=1"])
def test_a_formula_is_made_a_text(text: str) -> None:
    assert cell_of_csv(text) == f"'{text}"
    assert cell_of_csv(-1) == "-1"
    assert cell_of_csv(None) == ""
