"""What the daemon writes down, in as few writes as possible, and what it does where the disk refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.errors import StorageFailed
from queueyard.kernel.proc import Identity
from queueyard.runforge.recorder import Recorder
from queueyard.runforge.records import Added, Ended, Job, JobState, Started

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.runforge.store import Store

AT = "2026-02-01T12:00:00.000000"
ME = Identity(42, "boot-7")


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def recorder(store: Store, clock: FakeClock, said: list[str]) -> Recorder:
    with store.writing():
        store.commit(Added(jobs=[Job(job_id=name, run_id=name) for name in "abc"]))
    return Recorder(store, clock, said.append)


def started(name: str) -> Started:
    return Started(job_id=name, attempt=1, at=AT)


def ended(name: str) -> Ended:
    return Ended(job_id=name, was=JobState.RUNNING, attempt=1, state=JobState.SUCCEEDED, at=AT)


def test_an_end_goes_with_the_next_start(recorder: Recorder, store: Store) -> None:
    recorder.write(started("a"))
    recorder.add(ended("a"))
    assert store.state.jobs["a"].state is JobState.RUNNING

    recorder.write(started("b"))

    assert (store.state.jobs["a"].state, store.state.jobs["b"].state) == (JobState.SUCCEEDED, JobState.RUNNING)


def test_an_end_is_written_when_the_round_is_over(recorder: Recorder, store: Store) -> None:
    recorder.write(started("a"))
    recorder.add(ended("a"))

    recorder.write_round()

    assert store.state.jobs["a"].state is JobState.SUCCEEDED
    assert not recorder.has_pending


def test_a_process_is_written_down_once_its_run_has_lived_for_a_moment(
    recorder: Recorder, store: Store, clock: FakeClock
) -> None:
    recorder.write(started("a"))
    recorder.add_process(store.state.jobs["a"], lambda: ME)
    recorder.write_round()
    assert store.state.extra_of("a").pid is None

    clock.advance(0.06)
    recorder.write_round()

    assert (store.state.extra_of("a").pid, recorder.next_due_s()) == (42, None)


def test_a_run_that_is_over_sooner_is_never_asked_for_its_process(
    recorder: Recorder, store: Store, clock: FakeClock
) -> None:
    asked: list[Identity] = []

    def ask() -> Identity:
        asked.append(ME)
        return ME

    recorder.write(started("a"))
    recorder.add_process(store.state.jobs["a"], ask)

    recorder.drop_process("a")
    clock.advance(1.0)
    recorder.write_round()

    assert asked == []


def test_where_the_disk_refuses_ends_are_kept_and_starts_are_not_made(
    recorder: Recorder, store: Store, clock: FakeClock, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.write(started("a"))
    recorder.add(ended("a"))

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", _refuse)
        assert not recorder.write(started("b"))
        assert (recorder.is_refused, recorder.has_pending) == (True, True)
        recorder.write_round()
        clock.advance(3.0)
        recorder.write_round()

    clock.advance(3.0)
    recorder.write_round()
    assert (store.state.jobs["a"].state, store.state.jobs["b"].state) == (JobState.SUCCEEDED, JobState.QUEUED)
    assert said == ["nothing is started for now: full"]


def _refuse(*_entries: object, durable: bool) -> None:
    raise StorageFailed("full")
