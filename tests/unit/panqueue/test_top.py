"""The live view as text."""

from __future__ import annotations

import pytest

from queueyard.panqueue.records import Counts, JobRecord, Mode
from queueyard.panqueue.top import Moment, progress_text, screen


def counts(waiting: int) -> Counts:
    return Counts(
        queue="emails",
        waiting=waiting,
        active=1,
        completed=0,
        failed=2,
        delayed=0,
        held=0,
        keys=0,
        limit=None,
        mode=Mode.GLOBAL,
        key_concurrency=None,
        paused=True,
        events_kept=None,
        events=0,
        oldest_ms=1_500,
        overdue=0,
    )


def moment(at: float, waiting: int) -> Moment:
    job = JobRecord(id="j1", queue_id="emails", runs=1, last_started_at=1_000, progress="0.5")
    return Moment(at, 4_000, [counts(waiting)], [job])


def test_a_screen_tells_queues_their_speed_and_what_runs() -> None:
    lines = screen(moment(0, 100), moment(2, 40), width=120, height=50)

    assert lines[0] == "1 queues, 40 waiting, 1 active, 2 failed"
    assert lines[3].split() == ["emails", "40", "-30", "1", "0", "0", "2", "1.5s", "paused"]
    assert lines[-1].split() == ["j1", "emails", "1", "3.0s", "[##########..........]", "50%"]


def test_a_small_terminal_gets_no_more_than_it_has() -> None:
    lines = screen(None, moment(0, 1), width=20, height=3)

    assert len(lines) == 3
    assert max(map(len, lines)) <= 20


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        ("25", "[#####...............] 25%"),
        ("1.0", "[####################] 100%"),
        ("250", "250"),
        ('{"done":3}', '{"done":3}'),
        ("true", "true"),
        ("no json", "no json"),
    ],
)
def test_progress_is_a_bar_where_it_is_a_share(progress: str | None, text: str) -> None:
    assert progress_text(progress) == text
