"""The decisions, one by one, and the promises of the scheduler as properties."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
import itertools

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.runforge.errors import InvalidValue
from queueyard.runforge.lineup import LineUp
from queueyard.runforge.records import (
    Added,
    DaemonFile,
    DaemonState,
    Ended,
    Extra,
    Job,
    JobState,
    Policy,
    Prioritised,
    Returned,
    group_key,
)
from queueyard.runforge.rules import (
    MOST_LOST,
    after_failure,
    after_loss,
    again,
    check_id,
    choose,
    extra_again,
    fate_of,
    from_local_iso,
    group_id_for,
    handed_back,
    is_healthy,
    job_ids,
    local_iso,
    merge,
    retries_of,
    run_stem,
)
from queueyard.runforge.state import QueueState

NOON = datetime(2026, 2, 1, 12, 0, 0, tzinfo=UTC)
AT = "2026-02-01T12:00:00.000000"


def job(name: str, group: str | None = None, **fields: object) -> Job:
    return Job(job_id=name, run_id=f"run-{name}", group_id=group, **fields)  # type: ignore[arg-type]


def served_order(jobs: list[Job], policy: Policy) -> list[Job]:
    """Start everything, one after the other, by the pure rule."""
    waiting = list(jobs)
    order: list[Job] = []
    served: dict[str, int] = {}
    last: str | None = None
    while chosen := choose(waiting, last_served=last, served=served, policy=policy):
        waiting.remove(chosen)
        order.append(chosen)
        last = group_key(chosen)
        served[last] = len(order)
    assert not waiting
    return order


class TestChoosing:
    def test_nothing_waits_nothing_is_chosen(self) -> None:
        assert choose([], last_served=None, served={}) is None

    def test_a_higher_priority_comes_first_within_its_group(self) -> None:
        low, high = job("1", "a"), job("2", "a", priority=5)

        assert choose([low, high], last_served=None, served={}) == high

    def test_of_equal_priority_the_first_comes_first(self) -> None:
        first, second = job("1", "a"), job("2", "a")

        assert choose([first, second], last_served=None, served={}) == first

    def test_a_high_priority_does_not_go_past_another_group(self) -> None:
        early, urgent = job("1", "a"), job("2", "b", priority=99)

        assert choose([early, urgent], last_served=None, served={}) == early

    def test_another_group_than_the_last_is_preferred(self) -> None:
        same, other = job("1", "a"), job("2", "b")

        assert choose([same, other], last_served="a", served={"a": 1}) == other

    def test_the_last_group_goes_on_if_it_is_alone(self) -> None:
        assert choose([job("1", "a")], last_served="a", served={"a": 1}) == job("1", "a")

    def test_runs_without_a_group_are_a_group(self) -> None:
        alone, grouped = job("1"), job("2", "a")

        assert choose([alone, grouped], last_served="__ungrouped__", served={"__ungrouped__": 1}) == grouped

    def test_paused_groups_are_left_out(self) -> None:
        assert choose([job("1", "a"), job("2", "b")], last_served=None, served={}, paused={"a"}) == job("2", "b")

    def test_without_a_free_gpu_the_next_job_that_needs_none_is_the_head(self) -> None:
        on_gpu, on_cpu = job("1", "a", requires_gpu=True, priority=1), job("2", "a")

        assert choose([on_gpu, on_cpu], last_served=None, served={}, gpu_free=False) == on_cpu
        assert choose([on_gpu, on_cpu], last_served=None, served={}, gpu_free=True) == on_gpu

    def test_the_literal_steps_starve_the_third_group_and_ours_do_not(self) -> None:
        jobs = [job(f"{group}{number}", group) for group in "abc" for number in range(6)]

        literal = "".join(str(one.group_id) for one in served_order(jobs, Policy.CONTRACT_V1))
        fair = "".join(str(one.group_id) for one in served_order(jobs, Policy.FAIR))

        assert literal == "abababababab" + "cccccc"
        assert fair == "abc" * 6

    @given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=20))
    def test_with_two_groups_both_policies_are_the_same(self, shape: list[tuple[str, int]]) -> None:
        jobs = [job(f"{number}", group, priority=priority) for number, (group, priority) in enumerate(shape)]

        assert served_order(jobs, Policy.FAIR) == served_order(jobs, Policy.CONTRACT_V1)


class TestFairness:
    """Through the fast line-up, which is held equal to the rule elsewhere: 1 to 50 groups."""

    shapes = st.lists(
        st.lists(st.integers(-3, 3), min_size=1, max_size=8), min_size=1, max_size=50
    )  # groups of priorities

    @staticmethod
    def order_of(shape: list[list[int]]) -> list[Job]:
        jobs = {
            f"{group}.{number}": job(f"{group}.{number}", f"g{group}", priority=priority)
            for group, priorities in enumerate(shape)
            for number, priority in enumerate(priorities)
        }
        line_up = LineUp()
        for one in jobs.values():
            line_up.add(one)
        order = []
        while name := line_up.next():
            line_up.serve(jobs[name])
            line_up.forget(jobs[name])
            order.append(jobs[name])
        return order

    @given(shapes)
    def test_every_job_is_started_as_long_as_there_are_any(self, shape: list[list[int]]) -> None:
        order = self.order_of(shape)

        assert Counter(one.group_id for one in order) == {f"g{n}": len(jobs) for n, jobs in enumerate(shape)}

    @given(shapes)
    def test_no_group_waits_for_more_than_one_service_of_each_other_group(self, shape: list[list[int]]) -> None:
        order = self.order_of(shape)

        places: dict[str, list[int]] = {}
        for place, one in enumerate(order):
            places.setdefault(str(one.group_id), [-1]).append(place)
        for served in places.values():
            assert all(later - earlier <= len(shape) for earlier, later in itertools.pairwise(served))

    @given(shapes)
    def test_within_a_group_priority_decides_and_then_the_order_of_arrival(self, shape: list[list[int]]) -> None:
        order = self.order_of(shape)

        for group, priorities in enumerate(shape):
            own = [one for one in order if one.group_id == f"g{group}"]
            expected = sorted(range(len(priorities)), key=lambda number: (-priorities[number], number))
            assert [one.job_id for one in own] == [f"{group}.{number}" for number in expected]


class TestWaitingForOthers:
    def test_it_goes_once_all_have_succeeded(self) -> None:
        jobs = {"a": job("a", state=JobState.SUCCEEDED), "b": job("b", state=JobState.RUNNING)}

        assert fate_of(["a"], jobs) is True
        assert fate_of(["a", "b"], jobs) is False

    def test_a_failure_is_passed_on_before_a_cancellation(self) -> None:
        jobs = {"a": job("a", state=JobState.CANCELED), "b": job("b", state=JobState.FAILED)}

        assert fate_of(["a", "b"], jobs) == (JobState.FAILED, "b, which it waits for, failed")
        assert fate_of(["a"], jobs) == (JobState.CANCELED, "a, which it waits for, was canceled")

    def test_one_that_was_pruned_counts_as_done(self) -> None:
        assert fate_of(["long gone"], {}) is True


class TestEnds:
    running = job("a", "g", state=JobState.RUNNING, attempt=2)

    def test_a_failure_without_retries_is_the_end(self) -> None:
        entry = after_failure(self.running, Extra(), "boom", at=AT, now_s=0.0, random=lambda: 0.0)

        assert entry == Ended(job_id="a", was=JobState.RUNNING, attempt=2, state=JobState.FAILED, at=AT, error="boom")

    def test_a_failure_with_retries_is_one_more_attempt(self) -> None:
        entry = after_failure(self.running, Extra(retries=1), "boom", at=AT, now_s=100.0, random=lambda: 0.0)

        assert entry == Returned(job_id="a", attempt=2, next_attempt=3, at=AT, reason="boom")

    def test_the_pause_doubles_with_each_attempt(self) -> None:
        extra = Extra(retries=9, backoff_ms=1000)
        due = [
            after_failure(
                job("a", state=JobState.RUNNING, attempt=attempt), extra, "x", at=AT, now_s=0.0, random=lambda: 0.0
            )
            for attempt in (1, 2, 3)
        ]

        assert [one.not_before for one in due if isinstance(one, Returned)] == [1.0, 2.0, 4.0]

    def test_a_lost_run_is_done_again_but_not_for_ever(self) -> None:
        first = after_loss(self.running, Extra(), at=AT)
        last = after_loss(self.running, Extra(lost=MOST_LOST - 1), at=AT)

        assert isinstance(first, Returned)
        assert (first.next_attempt, first.lost) == (2, True)
        assert isinstance(last, Ended)
        assert last.state is JobState.FAILED

    def test_handing_back_does_not_spend_an_attempt(self) -> None:
        entry = handed_back(self.running, "shut down", at=AT)

        assert (entry.attempt, entry.next_attempt, entry.lost) == (2, 2, False)


class TestRetrying:
    def test_only_the_last_job_of_a_run_counts(self) -> None:
        failed_once = [
            job("1", "g", state=JobState.FAILED),
            Job(job_id="2", run_id="run-1", group_id="g", state=JobState.SUCCEEDED, attempt=2),
            job("3", "g", state=JobState.FAILED),
            job("4", "g", state=JobState.CANCELED),
        ]

        assert [one.job_id for one in retries_of(failed_once)] == ["3"]

    def test_the_next_attempt_keeps_what_the_run_needs(self) -> None:
        old = job("1", "g", state=JobState.FAILED, priority=3, requires_gpu=True, attempt=2, error="boom")

        new = again(old, "9", at=AT)

        assert new == Job(
            job_id="9",
            run_id="run-1",
            group_id="g",
            priority=3,
            requires_gpu=True,
            attempt=3,
            created_at=AT,
        )

    def test_what_it_waits_for_is_followed_to_its_next_attempt(self) -> None:
        extra = Extra(after=("1", "7"), retries=2, backoff_ms=5, timeout_s=9.0, lost=2, pid=4)

        assert extra_again(extra, {"1": "9"}) == Extra(after=("9", "7"), retries=2, backoff_ms=5, timeout_s=9.0)


class TestOtherTools:
    def test_a_job_that_we_do_not_know_is_added(self) -> None:
        assert merge({}, {}, [job("new")], at=AT) == [Added(jobs=[job("new")])]

    def test_what_it_does_not_hold_is_not_removed(self) -> None:
        assert merge({"mine": job("mine")}, {"run-mine": "mine"}, [], at=AT) == []

    @pytest.mark.parametrize("state", [JobState.CANCELED, JobState.FAILED, JobState.SUCCEEDED])
    def test_it_may_end_a_queued_job(self, state: JobState) -> None:
        theirs = job("a", state=state, finished_at="2026-02-01T13:00:00", error="why")

        entries = merge({"a": job("a")}, {"run-a": "a"}, [theirs], at=AT)

        assert entries == [
            Ended(job_id="a", was=JobState.QUEUED, attempt=1, state=state, at="2026-02-01T13:00:00", error="why")
        ]

    @pytest.mark.parametrize("mine", [JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED])
    @pytest.mark.parametrize("theirs", list(JobState))
    def test_no_state_goes_back_and_nobody_else_speaks_for_a_running_job(
        self, mine: JobState, theirs: JobState
    ) -> None:
        assert merge({"a": job("a", state=mine)}, {}, [job("a", state=theirs)], at=AT) == []

    def test_that_a_queued_job_runs_is_not_believed(self) -> None:
        """A stale copy of a job that was handed back says so, and nobody would ever end it."""
        assert merge({"a": job("a")}, {}, [job("a", state=JobState.RUNNING)], at=AT) == []

    def test_the_end_of_an_earlier_attempt_is_no_end(self) -> None:
        mine, theirs = job("a", attempt=2), job("a", attempt=1, state=JobState.FAILED)

        assert merge({"a": mine}, {}, [theirs], at=AT) == []

    def test_it_may_change_the_priority_of_a_queued_job(self) -> None:
        entries = merge({"a": job("a")}, {"run-a": "a"}, [job("a", priority=7)], at=AT)

        assert entries == [Prioritised(job_id="a", priority=7)]

    def test_two_jobs_with_one_id_become_two_jobs_and_the_same_two_each_time(self) -> None:
        """The public tool counts from 1 in each process, so two of one second share their ids."""
        first = Job(job_id="job_1", run_id="x")
        second = Job(job_id="job_1", run_id="y")

        [added] = merge({}, {}, [first, second], at=AT)

        assert isinstance(added, Added)
        assert [one.run_id for one in added.jobs] == ["x", "y"]
        assert len({one.job_id for one in added.jobs}) == 2
        known = {one.job_id: one for one in added.jobs}
        assert merge(known, {"x": "job_1", "y": added.jobs[1].job_id}, [first, second], at=AT) == []

    def test_a_run_that_is_live_is_not_added_a_second_time(self) -> None:
        assert merge({"a": job("a")}, {"run-a": "a"}, [Job(job_id="b", run_id="run-a")], at=AT) == []

    @given(st.data())
    def test_merging_twice_changes_nothing_the_second_time(self, data: st.DataObject) -> None:
        states = st.sampled_from(list(JobState))
        jobs = st.builds(
            Job,
            job_id=st.sampled_from("abcd"),
            run_id=st.sampled_from("rst"),
            state=states,
            attempt=st.integers(1, 2),
            priority=st.integers(0, 1),
        )
        foreign = data.draw(st.lists(jobs, max_size=6))
        state = _state_of(data.draw(st.lists(jobs, max_size=4, unique_by=lambda one: one.job_id)))

        for entry in merge(state.jobs, state.live_runs, foreign, at=AT):
            state.apply(entry, 1)

        assert merge(state.jobs, state.live_runs, foreign, at=AT) == []


def _state_of(jobs: list[Job]) -> QueueState:
    state = QueueState()
    state.apply(Added(jobs=jobs), 0)
    return state


class TestNames:
    def test_job_ids_count_from_one_and_leave_out_what_is_taken(self) -> None:
        stem = f"job_{NOON.astimezone():%Y%m%d_%H%M%S}"

        ids = job_ids(NOON, {f"{stem}_0002"})

        assert [next(ids), next(ids)] == [f"{stem}_0001", f"{stem}_0003"]

    def test_a_group_id_holds_twenty_characters_of_the_name(self) -> None:
        assert group_id_for("tiny C sweep!", NOON).endswith("_tiny_C_sweep_")
        assert group_id_for("x" * 30, NOON).endswith("_" + "x" * 20)
        assert group_id_for("größe", NOON).endswith("_gr__e")

    def test_two_sweeps_of_one_second_have_different_stems(self) -> None:
        assert run_stem(NOON, 1).endswith("-sweep")
        assert run_stem(NOON, 2).endswith("-sweep2")

    @pytest.mark.parametrize("text", ["", "..", "../up", "a/b", "a\\b", "a b", "x" * 257, "nul", "line\nbreak", "."])
    def test_an_id_that_is_no_folder_or_no_word_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidValue, match="not a run id"):
            check_id(text, "run")

    def test_local_times_have_microseconds_and_no_zone(self) -> None:
        text = local_iso(NOON)

        assert len(text) == 26
        assert from_local_iso(text) == NOON
        assert from_local_iso("2026-02-01T12:00:00Z") == NOON
        assert from_local_iso("yesterday") is None


class TestHealth:
    @pytest.mark.parametrize(
        ("state", "age_s", "healthy"),
        [
            (DaemonState.RUNNING, 0, True),
            (DaemonState.RUNNING, 30, True),
            (DaemonState.RUNNING, 31, False),
            (DaemonState.STOPPING, 0, False),
            (DaemonState.STOPPED, 0, False),
        ],
    )
    def test_it_runs_and_its_heart_beat_within_thirty_seconds(
        self, state: DaemonState, age_s: int, healthy: bool
    ) -> None:
        beat = local_iso(NOON - timedelta(seconds=age_s))

        assert is_healthy(DaemonFile(pid=1, started_at=AT, last_heartbeat=beat, state=state), NOON) is healthy

    def test_a_heartbeat_that_is_no_time_is_none(self) -> None:
        daemon = DaemonFile(pid=1, started_at=AT, last_heartbeat="soon", state=DaemonState.RUNNING)

        assert not is_healthy(daemon, NOON)
