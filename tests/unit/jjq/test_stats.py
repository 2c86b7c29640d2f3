"""Numbers out of a journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queueyard.jjq.stats import Stats, stats_of
from queueyard.kernel.events import Event, Kind, System, make_event

START = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)


def event(after_s: float, item: str, kind: Kind, **data: object) -> Event:
    at = START + timedelta(seconds=after_s)
    return make_event(
        at, system=System.JJQ, queue="main", item=item, kind=kind, change="x", source="here", data=dict(data)
    )


def test_an_empty_journal_has_no_percentiles_and_no_rate() -> None:
    assert stats_of([]) == Stats(
        landed=0,
        failed=0,
        failure_rate=None,
        landed_per_day={},
        time_to_land_p50_s=None,
        time_to_land_p95_s=None,
        checks=0,
        wasted_checks=0,
        wasted_s=0.0,
        reused_checks=0,
    )


def test_landed_failed_waits_and_waste_are_counted() -> None:
    found = stats_of(
        [
            event(0, "000001", Kind.QUEUED),
            event(0, "000002", Kind.QUEUED),
            event(0, "000003", Kind.QUEUED),
            event(1, "000001", Kind.STARTED),
            event(1, "000002", Kind.STARTED),
            event(10, "000001", Kind.SUCCEEDED),
            event(20, "000002", Kind.RELEASED, duration_ms=1500),
            event(90, "000002", Kind.SUCCEEDED, reused=True),
            event(95, "000003", Kind.CONFLICTED),
            event(96, "000004", Kind.FAILED),
        ]
    )

    assert (found.landed, found.failed, found.failure_rate) == (2, 2, 0.5)
    assert (found.time_to_land_p50_s, found.time_to_land_p95_s) == (10.0, 90.0)
    assert found.landed_per_day == {"2026-01-31": 1, "2026-02-01": 1}
    assert (found.checks, found.wasted_checks, found.wasted_s, found.reused_checks) == (2, 1, 1.5, 1)


def test_what_was_queued_before_the_time_asked_for_still_counts_as_waiting() -> None:
    events = [event(0, "000001", Kind.QUEUED), event(50, "000001", Kind.SUCCEEDED), event(5, "000009", Kind.SUCCEEDED)]

    found = stats_of(events, since=START + timedelta(seconds=30))

    assert (found.landed, found.time_to_land_p50_s) == (1, 50.0)


def test_a_time_that_cannot_be_read_is_left_out() -> None:
    broken = Event(
        id="x", at="yesterday", system=System.JJQ, source="here", queue="main", item="000001", kind=Kind.SUCCEEDED
    )

    assert stats_of([broken]).landed == 0
