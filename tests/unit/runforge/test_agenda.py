"""Which jobs are due: those that wait for nothing, as soon as that is so."""

from __future__ import annotations

from datetime import UTC, datetime

from queueyard.runforge.agenda import Agenda
from queueyard.runforge.records import Added, Ended, Entry, Extra, Job, JobState, Returned, Started
from queueyard.runforge.state import QueueState

AT = "2026-02-01T12:00:00.000000"
START = datetime.fromtimestamp(0, UTC)


class Following:
    """A state and an agenda that follows it, as the daemon does."""

    def __init__(self, *entries: Entry) -> None:
        self.state = QueueState()
        for entry in entries:
            self.state.apply(entry, 1)
        self.agenda = Agenda(self.state)
        self.ends = self.agenda.fill(lambda: START)

    def happens(self, *entries: Entry) -> list[Ended]:
        ends = []
        for entry in entries:
            ends += self.agenda.take(self.state.apply(entry, 1), lambda: START)
        return ends

    def next(self) -> str | None:
        job = self.agenda.next(gpu_free=True)
        return job.job_id if job else None


def added(name: str, **extra: object) -> Added:
    job = Job(job_id=name, run_id=name)
    return Added(jobs=[job], extras={name: Extra(**extra)} if extra else {})  # type: ignore[arg-type]


def started(name: str) -> Started:
    return Started(job_id=name, attempt=1, at=AT)


def ended(name: str, state: JobState, was: JobState = JobState.RUNNING) -> Ended:
    return Ended(job_id=name, was=was, attempt=1, state=state, at=AT)


def test_a_job_that_waits_for_another_is_due_when_that_succeeded() -> None:
    yard = Following(added("first"), added("second", after=("first",)))
    assert (yard.next(), len(yard.agenda)) == ("first", 1)

    yard.happens(started("first"))
    assert yard.next() is None

    yard.happens(ended("first", JobState.SUCCEEDED))
    assert yard.next() == "second"


def test_a_failure_ends_what_waits_for_it_and_what_waits_for_that() -> None:
    yard = Following(added("1"), added("2", after=("1",)), added("3", after=("2",)))

    ends = yard.happens(started("1"), ended("1", JobState.FAILED))
    assert [(end.job_id, end.state, end.was) for end in ends] == [("2", JobState.FAILED, JobState.QUEUED)]

    ends = yard.happens(*ends)
    assert [(end.job_id, end.state) for end in ends] == [("3", JobState.FAILED)]


def test_a_cancellation_is_passed_on_as_one() -> None:
    yard = Following(added("1"), added("2", after=("1",)))

    [end] = yard.happens(ended("1", JobState.CANCELED, was=JobState.QUEUED))

    assert (end.job_id, end.state) == ("2", JobState.CANCELED)


def test_a_wait_that_was_in_vain_before_the_daemon_came_is_ended_at_once() -> None:
    yard = Following(added("1"), ended("1", JobState.CANCELED, was=JobState.QUEUED), added("2", after=("1",)))

    assert [(end.job_id, end.state) for end in yard.ends] == [("2", JobState.CANCELED)]


def test_a_retry_is_due_when_its_moment_has_come() -> None:
    yard = Following(added("a", retries=1))
    again = Returned(job_id="a", attempt=1, next_attempt=2, at=AT, reason="boom", not_before=10.0)
    yard.happens(started("a"), again)
    assert (yard.next(), yard.agenda.next_wake_s) == (None, 10.0)

    yard.agenda.wake(now_s=9.9)
    assert yard.next() is None

    yard.agenda.wake(now_s=10.0)
    assert (yard.next(), yard.agenda.next_wake_s) == ("a", None)


def test_a_delayed_job_that_was_canceled_does_not_come() -> None:
    yard = Following(added("a"))
    again = Returned(job_id="a", attempt=1, next_attempt=2, at=AT, reason="boom", not_before=10.0)
    yard.happens(started("a"), again)
    canceled = Ended(job_id="a", was=JobState.QUEUED, attempt=2, state=JobState.CANCELED, at=AT)

    yard.happens(canceled)
    yard.agenda.wake(now_s=99.0)

    assert yard.next() is None


def test_a_job_that_was_handed_back_has_its_old_place() -> None:
    yard = Following(added("1"), added("2"))
    yard.happens(started("1"), Returned(job_id="1", attempt=1, next_attempt=1, at=AT, reason="shut down"))

    assert yard.next() == "1"


def test_turns_are_remembered_over_a_restart() -> None:
    jobs = [
        Job(job_id=f"{group}{number}", run_id=f"{group}{number}", group_id=group) for number in "12" for group in "abc"
    ]
    yard = Following(Added(jobs=jobs), started("a1"), started("b1"))

    again = Agenda(yard.state)
    again.fill(lambda: START)

    job = again.next(gpu_free=True)
    assert job is not None
    assert job.job_id == "c1"
