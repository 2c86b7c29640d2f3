"""Prometheus text."""

from __future__ import annotations

from queueyard.panqueue.metrics import exposition
from queueyard.panqueue.records import Counts, Mode


def counts(queue: str, **fields: object) -> Counts:
    told: dict[str, object] = dict.fromkeys(
        ("waiting", "active", "completed", "failed", "delayed", "held", "keys", "events", "overdue"), 0
    )
    told |= dict.fromkeys(("limit", "key_concurrency", "events_kept", "oldest_ms"))
    return Counts(queue=queue, mode=Mode.GLOBAL, paused=False, **(told | fields))  # type: ignore[arg-type]


def test_every_metric_is_explained_once_and_every_queue_told_under_it() -> None:
    lines = exposition([counts("a", waiting=3, oldest_ms=1_500), counts("b", limit=7)]).splitlines()

    assert lines.count("# TYPE panqueue_jobs gauge") == 1
    assert 'panqueue_jobs{queue="a",state="waiting"} 3' in lines
    assert 'panqueue_oldest_waiting_seconds{queue="a"} 1.5' in lines
    assert [line for line in lines if line.startswith("panqueue_limit{")] == ['panqueue_limit{queue="b"} 7']


def test_a_name_with_quotes_stays_one_label() -> None:
    assert 'queue="a\\"b\\\\c"' in exposition([counts('a"b\\c')])
