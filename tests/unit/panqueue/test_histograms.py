"""How long jobs wait and run, from their events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from queueyard.kernel.events import Event, Kind, System, make_event
from queueyard.panqueue.histograms import BOUNDS, QueueTimes, histogram_lines

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(kind: Kind, seconds: float, item: str = "j") -> Event:
    return make_event(
        START + timedelta(seconds=seconds),
        system=System.PANQUEUE,
        queue="q",
        item=item,
        kind=kind,
        change=str(seconds),
        source="",
    )


def times(*events: Event) -> QueueTimes:
    found = QueueTimes("q")
    for one in events:
        found.feed(one)
    return found


def test_a_job_waits_until_it_starts_and_runs_until_it_ends() -> None:
    found = times(event(Kind.QUEUED, 0), event(Kind.STARTED, 2), event(Kind.SUCCEEDED, 5))

    assert (found.wait.total, found.run.total) == (2, 3)
    assert (sum(found.wait.counts), sum(found.run.counts)) == (1, 1)


def test_every_attempt_counts() -> None:
    found = times(
        *(event(Kind.QUEUED, 0), event(Kind.STARTED, 1), event(Kind.RETRIED, 2)),
        *(event(Kind.STARTED, 12), event(Kind.STALLED, 20), event(Kind.STARTED, 21), event(Kind.FAILED, 22)),
    )

    assert (found.wait.total, found.run.total) == (1 + 10 + 1, 1 + 8 + 1)


def test_what_began_before_the_stream_does_is_left_out() -> None:
    found = times(event(Kind.SUCCEEDED, 5), event(Kind.STARTED, 6, "other"))

    assert (sum(found.wait.counts), sum(found.run.counts)) == (0, 0)


def test_the_text_has_growing_buckets_a_sum_and_a_count() -> None:
    found = times(event(Kind.QUEUED, 0), event(Kind.STARTED, 0.3), event(Kind.SUCCEEDED, 10_000))
    lines = list(histogram_lines([found]))

    assert lines.count("# TYPE panqueue_wait_seconds histogram") == 1
    assert 'panqueue_wait_seconds_bucket{queue="q",le="0.1"} 0' in lines
    assert 'panqueue_wait_seconds_bucket{queue="q",le="0.5"} 1' in lines
    assert f'panqueue_run_seconds_bucket{{queue="q",le="{BOUNDS[-1]:g}"}} 0' in lines
    assert 'panqueue_run_seconds_bucket{queue="q",le="+Inf"} 1' in lines
    assert 'panqueue_run_seconds_count{queue="q"} 1' in lines
