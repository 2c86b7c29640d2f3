"""What entries make of the queue; and that whoever reads the same journal sees the same queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.runforge.records import (
    ENDED,
    TRANSITIONS,
    Added,
    Ended,
    Entry,
    Extra,
    GroupSaved,
    Job,
    JobState,
    Limits,
    Prioritised,
    Pruned,
    Published,
    Returned,
    Spawned,
    Started,
    StopWished,
    decode_checkpoint,
    decode_entry,
    encode_rows,
)
from queueyard.runforge.state import Change, QueueState

if TYPE_CHECKING:
    from collections.abc import Iterable

AT = "2026-02-01T12:00:00.000000"
FILE = (1, 2, 3, 4)


def state_of(*entries: Entry) -> QueueState:
    state = QueueState()
    apply(state, entries)
    return state


def apply(state: QueueState, entries: Iterable[Entry]) -> list[Change]:
    changes: list[Change] = []
    for number, entry in enumerate(entries, 1):
        changes += state.apply(entry, number)
    return changes


def added(*names: str, group: str | None = None, **extra: object) -> Added:
    jobs = [Job(job_id=name, run_id=f"run-{name}", group_id=group) for name in names]
    return Added(jobs=jobs, extras={name: Extra(**extra) for name in names} if extra else {})  # type: ignore[arg-type]


def started(name: str, attempt: int = 1) -> Started:
    return Started(job_id=name, attempt=attempt, at=AT)


def ended(name: str, state: JobState, was: JobState = JobState.RUNNING, attempt: int = 1) -> Ended:
    return Ended(job_id=name, was=was, attempt=attempt, state=state, at=AT, error="why")


def test_a_job_goes_from_queued_to_running_to_its_end() -> None:
    state = QueueState()

    changes = apply(state, [added("a"), started("a"), ended("a", JobState.SUCCEEDED)])

    assert [change.after.state for change in changes if change.after] == ["queued", "running", "succeeded"]
    assert state.jobs["a"].started_at == state.jobs["a"].finished_at == AT


def test_a_job_that_was_canceled_cannot_be_started() -> None:
    """The command and the daemon did not see each other; the line that came first decides for all readers."""
    state = state_of(added("a"), ended("a", JobState.CANCELED, was=JobState.QUEUED))

    assert state.apply(started("a"), 9) == []
    assert state.jobs["a"].state is JobState.CANCELED


def test_a_queued_job_that_was_started_meanwhile_is_not_canceled() -> None:
    state = state_of(added("a"), started("a"))

    assert state.apply(ended("a", JobState.CANCELED, was=JobState.QUEUED), 9) == []
    assert state.jobs["a"].state is JobState.RUNNING


def test_the_end_of_an_earlier_attempt_does_not_count() -> None:
    again = Returned(job_id="a", attempt=1, next_attempt=2, at=AT, reason="failed")
    state = state_of(added("a"), started("a"), again, started("a", attempt=2))

    assert state.apply(ended("a", JobState.FAILED, attempt=1), 9) == []
    assert state.jobs["a"].state is JobState.RUNNING


@pytest.mark.parametrize("end", sorted(ENDED))
@pytest.mark.parametrize("second", sorted(ENDED))
def test_an_end_is_the_end(end: JobState, second: JobState) -> None:
    state = state_of(added("a"), started("a"), ended("a", end))

    assert state.apply(ended("a", second, was=end), 9) == []
    assert state.jobs["a"].state is end


def test_a_job_that_is_handed_back_keeps_its_attempt_and_says_why() -> None:
    state = state_of(
        added("a"), started("a"), Returned(job_id="a", attempt=1, next_attempt=1, at=AT, reason="shut down")
    )

    job = state.jobs["a"]
    assert (job.state, job.attempt, job.error, job.started_at) == (JobState.QUEUED, 1, "shut down", None)
    assert state.live_runs == {"run-a": "a"}


def test_a_retry_is_paid_from_the_retries_that_are_left() -> None:
    again = Returned(job_id="a", attempt=1, next_attempt=2, at=AT, reason="boom", not_before=99.0)
    state = state_of(added("a", retries=2), started("a"), again)

    assert state.extra_of("a") == Extra(retries=1, not_before=99.0)
    assert state.jobs["a"].attempt == 2


def test_a_lost_run_is_counted_and_pays_nothing() -> None:
    lost = Returned(job_id="a", attempt=1, next_attempt=1, at=AT, reason="lost", lost=True)
    state = state_of(added("a", retries=2), started("a"), lost)

    assert state.extra_of("a") == Extra(retries=2, lost=1)


def test_the_process_is_known_only_while_it_runs() -> None:
    spawned = Spawned(job_id="a", attempt=1, pid=42, pid_started="boot-7")
    state = state_of(added("a"), started("a"), spawned)
    assert (state.extra_of("a").pid, state.extra_of("a").pid_started) == (42, "boot-7")

    state.apply(ended("a", JobState.SUCCEEDED), 9)

    assert state.extras == {}


def test_a_process_of_an_earlier_attempt_is_not_that_of_the_present_one() -> None:
    state = state_of(added("a"), started("a"))

    state.apply(Spawned(job_id="a", attempt=7, pid=42, pid_started="x"), 9)

    assert state.extra_of("a").pid is None


def test_a_wish_to_stop_is_for_the_running_attempt_alone() -> None:
    state = state_of(added("a", "b"), started("a"), StopWished(jobs={"a": 1, "b": 1}, reason="enough"))

    assert (state.extra_of("a").stop, state.extra_of("b").stop) == ("enough", None)
    state.apply(Returned(job_id="a", attempt=1, next_attempt=1, at=AT, reason="x"), 9)
    assert state.extra_of("a").stop is None


def test_a_run_that_is_live_is_not_added_a_second_time() -> None:
    state = state_of(added("a"))

    assert state.apply(Added(jobs=[Job(job_id="b", run_id="run-a")]), 9) == []
    assert list(state.jobs) == ["a"]


def test_a_job_that_is_known_is_not_added_again() -> None:
    state = state_of(added("a"), started("a"))

    assert state.apply(added("a"), 9) == []
    assert state.jobs["a"].state is JobState.RUNNING


def test_groups_have_had_their_turns_in_the_order_of_the_starts() -> None:
    state = QueueState()
    jobs = [
        Job(job_id="1", run_id="1", group_id="late", state=JobState.SUCCEEDED, started_at="2026-02-01T12:00:02"),
        Job(job_id="2", run_id="2", group_id="early", state=JobState.SUCCEEDED, started_at="2026-02-01T12:00:01"),
    ]

    state.apply(Added(jobs=jobs), 1)

    assert sorted(state.served, key=lambda group: state.served[group]) == ["early", "late"]


def test_only_ended_jobs_are_pruned() -> None:
    state = state_of(added("a", "b", group="g"), started("a"), ended("a", JobState.SUCCEEDED))

    changes = state.apply(Pruned(job_ids=["a", "b", "never"]), 9)

    assert [change.before.job_id for change in changes if change.before] == ["a"]
    assert list(state.jobs) == ["b"]
    assert state.of_group("g") == [state.jobs["b"]]


def test_a_priority_can_be_changed_while_a_job_is_queued() -> None:
    state = state_of(added("a", "b"), started("b"))

    apply(state, [Prioritised(job_id="a", priority=5), Prioritised(job_id="b", priority=5)])

    assert (state.jobs["a"].priority, state.jobs["b"].priority) == (5, 0)


def test_queue_json_is_behind_until_it_was_published_up_to_the_last_change() -> None:
    state = QueueState()
    behind = []
    entries: list[tuple[Entry, int]] = [
        (added("a"), 100),
        (Published(upto=100, file=FILE), 130),
        (GroupSaved(group_id="g", upto=100), 150),
        (started("a"), 180),
    ]

    for entry, offset in entries:
        state.apply(entry, offset)
        behind.append(state.is_behind)

    assert behind == [True, False, False, True]


def test_a_group_is_unsaved_until_it_was_saved_up_to_its_last_change() -> None:
    state = QueueState()
    state.apply(added("a", group="g"), 100)
    state.apply(started("a"), 200)

    state.apply(GroupSaved(group_id="g", upto=100), 210)
    assert state.unsaved == {"g": 200}

    state.apply(GroupSaved(group_id="g", upto=200), 220)
    assert state.unsaved == {}


def test_limits_keep_the_last_served_group_unless_they_name_one() -> None:
    state = state_of(added("a", group="g"), started("a"), Limits(max_parallel=7, gpu_slots=3))

    assert (state.max_parallel, state.gpu_slots, state.last_served_group) == (7, 3, "g")


_names = st.sampled_from("abc")
_attempts = st.integers(1, 2)
_entries = st.one_of(
    st.builds(
        Added,
        jobs=st.lists(
            st.builds(Job, job_id=_names, run_id=_names, group_id=st.sampled_from([None, "g", "h"])),
            min_size=1,
            max_size=2,
        ),
    ),
    st.builds(Started, job_id=_names, attempt=_attempts, at=st.just(AT)),
    st.builds(Spawned, job_id=_names, attempt=_attempts, pid=st.integers(1, 9), pid_started=st.just("x")),
    st.builds(
        Ended,
        job_id=_names,
        was=st.sampled_from(list(JobState)),
        attempt=_attempts,
        state=st.sampled_from(list(JobState)),
        at=st.just(AT),
    ),
    st.builds(Returned, job_id=_names, attempt=_attempts, next_attempt=_attempts, at=st.just(AT), reason=st.just("x")),
    st.builds(StopWished, jobs=st.dictionaries(_names, _attempts), reason=st.just("x")),
    st.builds(Prioritised, job_id=_names, priority=st.integers(-1, 1)),
    st.builds(Pruned, job_ids=st.lists(_names, max_size=2)),
    st.builds(Limits, max_parallel=st.integers(1, 4), gpu_slots=st.integers(0, 2)),
    st.builds(Published, upto=st.integers(0, 9), file=st.just(FILE)),
    st.builds(GroupSaved, group_id=st.sampled_from("gh"), upto=st.integers(0, 30)),
)


def seen(state: QueueState) -> object:
    return (
        state.jobs,
        list(state.jobs),
        state.extras,
        state.live_runs,
        {group: jobs for group in state.group_jobs if (jobs := state.of_group(group))},
        state.served,
        state.last_served_group,
        state.max_parallel,
        state.gpu_slots,
    )


@given(st.lists(_entries, max_size=30))
def test_every_move_that_takes_effect_is_one_of_the_table(entries: list[Entry]) -> None:
    for before, after in apply(QueueState(), entries):
        if before is not None and after is not None and before.state is not after.state:
            assert after.state in TRANSITIONS[before.state]


@given(st.lists(_entries, max_size=30))
def test_a_run_has_one_live_job_at_most_and_the_state_knows_it(entries: list[Entry]) -> None:
    state = QueueState()
    apply(state, entries)

    live = [job for job in state.jobs.values() if job.state not in ENDED]
    assert {job.run_id for job in live} == set(state.live_runs)


@given(st.lists(_entries, max_size=30), st.integers(0, 30))
def test_a_checkpoint_and_the_rest_of_the_journal_are_the_whole_journal(entries: list[Entry], cut: int) -> None:
    whole = QueueState()
    apply(whole, entries)

    first = QueueState()
    apply(first, entries[:cut])
    stored = encode_rows(first.checkpoint("next"), "jobs")
    restored = QueueState.restore(decode_checkpoint(stored))
    apply(restored, entries[cut:])

    assert seen(restored) == seen(whole)


@given(_entries)
def test_an_entry_is_read_back_as_it_was_written(entry: Entry) -> None:
    assert decode_entry(msgspec.json.encode(entry)) == entry
