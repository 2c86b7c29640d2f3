"""Every change of a job as one event, with an id that follows from the change."""

from __future__ import annotations

from datetime import UTC, datetime

from queueyard.kernel.events import Event, Kind
from queueyard.runforge.events import group_event, job_events
from queueyard.runforge.records import Added, Ended, Entry, Job, JobState, Pruned, Returned, Started
from queueyard.runforge.rules import from_local_iso
from queueyard.runforge.state import QueueState

AT = "2026-02-01T12:00:00.000000"
LATER = "2026-02-01T12:00:05.000000"


def events_of(*entries: Entry) -> list[Event]:
    state = QueueState()
    found: list[Event] = []
    for entry in entries:
        found += job_events(entry, state.apply(entry, 1), source="/ws", actor="daemon")
    return found


ADDED = Added(jobs=[Job(job_id="a", run_id="r", group_id="g", created_at=AT, requires_gpu=True, priority=3)])
STARTED = Started(job_id="a", attempt=1, at=LATER)


def ended(state: JobState, attempt: int = 1) -> Ended:
    return Ended(job_id="a", was=JobState.RUNNING, attempt=attempt, state=state, at=LATER, error="why")


def returned(next_attempt: int, *, lost: bool = False) -> Returned:
    return Returned(job_id="a", attempt=1, next_attempt=next_attempt, at=LATER, reason="why", lost=lost)


def test_a_job_on_its_way() -> None:
    queued, started, failed = events_of(ADDED, STARTED, ended(JobState.FAILED))

    assert [queued.kind, started.kind, failed.kind] == [Kind.QUEUED, Kind.STARTED, Kind.FAILED]
    assert (queued.queue, queued.item, queued.group, queued.source) == ("execution", "a", "g", "/ws")
    assert queued.data == {"run_id": "r", "priority": 3, "gpu": True}
    assert (failed.reason, failed.actor) == ("why", "daemon")


def test_times_are_told_in_utc() -> None:
    [queued] = events_of(ADDED)

    moment = from_local_iso(AT)
    assert moment is not None
    assert queued.at == moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_how_a_job_comes_back_is_told_apart() -> None:
    kinds = [events_of(ADDED, STARTED, entry)[-1].kind for entry in (returned(2), returned(1), returned(1, lost=True))]

    assert kinds == [Kind.RETRIED, Kind.RELEASED, Kind.STALLED]


def test_a_job_of_a_second_attempt_is_a_retry() -> None:
    [event] = events_of(Added(jobs=[Job(job_id="b", run_id="r", attempt=2, created_at=AT)]))

    assert (event.kind, event.attempt) == (Kind.RETRIED, 2)


def test_an_entry_without_effect_is_no_event() -> None:
    assert events_of(STARTED, ended(JobState.FAILED)) == []


def test_the_same_change_has_the_same_id_and_another_one_another() -> None:
    first = events_of(ADDED, STARTED, returned(1), Started(job_id="a", attempt=1, at="2026-02-01T12:00:09.000000"))
    second = events_of(ADDED, STARTED, returned(1), Started(job_id="a", attempt=1, at="2026-02-01T12:00:09.000000"))

    assert [event.id for event in first] == [event.id for event in second]
    assert len({event.id for event in first}) == len(first) == 4


def test_what_is_pruned_is_told() -> None:
    events = events_of(ADDED, STARTED, ended(JobState.SUCCEEDED), Pruned(job_ids=["a"]))

    assert events[-1].kind is Kind.DELETED


def test_a_group_that_is_paused_is_its_own_item() -> None:
    event = group_event("g", Kind.PAUSED, datetime(2026, 2, 1, tzinfo=UTC), source="/ws", actor="client")

    assert (event.item, event.group, event.kind) == ("g", "g", Kind.PAUSED)
