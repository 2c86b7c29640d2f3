from __future__ import annotations

from datetime import date
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pipeline.frames import DAY, assert_rows, text, view
from queueyard.pipeline.gold.contention import contention
from queueyard.pipeline.schemas import CONTENTION, RESERVATIONS
from queueyard.queen.globs import overlaps, parse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _reserved(identifier: str, agent: str, pattern: str, start: str, end: str, **more: Any) -> dict[str, Any]:
    times = {"created_at": text(start), "expires_at": text(end)}
    return {"source": "repo", "id": identifier, "agent": agent, "pattern": pattern} | times | more


def test_the_later_one_waits_for_as_long_as_both_are_in_force(spark: SparkSession) -> None:
    reservations = view(
        spark,
        RESERVATIONS,
        _reserved("1", "ana", "src/**", "9:00", "12:00", released_at=text("11:00")),
        _reserved("2", "ben", "src/ui/a.css", "10:30", "11:30"),
        _reserved("3", "ben", "src/ui/a.css", "10:50", "10:55", exclusive=False),
        _reserved("4", "ben", "src/ui/a.css", "11:00", "11:01"),
        _reserved("5", "ana", "src/ui/a.css", "9:00", "9:10"),
        _reserved("6", "cleo", "docs/**", "9:00", "12:00"),
    )

    found = contention(reservations=reservations)

    pair = {"source": "repo", "day": DAY, "holder": "ana", "holder_pattern": "src/**"}
    assert_rows(
        found,
        CONTENTION,
        pair
        | {"waiter": "ben", "waiter_pattern": "src/ui/a.css"}
        | {"overlaps": 2, "blocking_overlaps": 1, "overlap_s": 1800.0 + 300.0},
    )


def test_two_who_only_read_do_not_wait_for_each_other(spark: SparkSession) -> None:
    reservations = view(
        spark,
        RESERVATIONS,
        _reserved("1", "ana", "a.txt", "9:00", "10:00", exclusive=False),
        _reserved("2", "ben", "a.txt", "9:00", "10:00", exclusive=False),
        _reserved("3", "ana", "a.txt", "9:30", "10:00", source="elsewhere"),
    )

    found = contention(reservations=reservations)

    assert_rows(found, CONTENTION)


def test_an_overlap_far_into_a_long_reservation_is_found_and_an_end_in_the_far_future_is_survived(
    spark: SparkSession,
) -> None:
    far = "9999-12-31T00:00:00Z"
    later = date(2026, 1, 25)
    reservations = view(
        spark,
        RESERVATIONS,
        _reserved("1", "ana", "a.txt", "9:00", "9:00") | {"expires_at": far},
        _reserved("2", "ben", "a.txt", "9:00", "9:00")
        | {"created_at": text("9:00", day=later), "expires_at": text("9:01", day=later)},
    )

    found = contention(reservations=reservations)

    pair = {"source": "repo", "holder": "ana", "waiter": "ben", "holder_pattern": "a.txt", "waiter_pattern": "a.txt"}
    assert_rows(found, CONTENTION, pair | {"day": later, "overlaps": 1, "blocking_overlaps": 1, "overlap_s": 60.0})


_PATTERNS = (
    "src/**",
    "src/ui/*.css",
    "src/ui/",
    "src/a.py",
    "src/a.pyc",
    "src/a*",
    "src",
    "s?c/b",
    "**/x",
    "docs/{a,b}",
)


def test_every_overlap_that_queen_knows_is_found(spark: SparkSession) -> None:
    rows = [_reserved(pattern, pattern, pattern, "9:00", "9:10") for pattern in _PATTERNS]

    found = contention(reservations=view(spark, RESERVATIONS, *rows)).select("holder", "waiter").collect()

    pairs = {frozenset(pair) for pair in combinations(_PATTERNS, 2) if overlaps(*map(parse, pair))}
    assert pairs
    assert pairs - {frozenset(row) for row in found} == set()


def test_paths_and_fixed_starts_that_differ_never_meet(spark: SparkSession) -> None:
    reservations = view(
        spark,
        RESERVATIONS,
        _reserved("1", "ana", "src/a.py", "9:00", "10:00"),
        _reserved("2", "ben", "src/a.pyc", "9:00", "10:00"),
        _reserved("3", "cleo", "src/b*", "9:00", "10:00"),
        _reserved("4", "dan", "srcs/**", "9:00", "10:00"),
    )

    found = contention(reservations=reservations)

    assert_rows(found, CONTENTION)
