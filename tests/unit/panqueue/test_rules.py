"""The decisions of panqueue as properties."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.panqueue.errors import BadQueue
from queueyard.panqueue.records import BackoffRule, JobState, Keep
from queueyard.panqueue.rules import (
    MOST_CLAIMED_PER_CALL,
    Slots,
    batches,
    check_key,
    check_queue_id,
    claim_count,
    is_ready,
    reconnect_delay_s,
    retention_arguments,
    retry_delay_ms,
    state_named,
    survivors,
    told_reason,
    usable_delay_ms,
)

small = st.integers(0, 300)


class TestClaimCount:
    @given(st.integers(1, 300), small, small, small, st.integers(1, 4))
    def test_never_more_are_held_than_may_run(
        self, concurrency: int, held: int, asked: int, finishing: int, lanes: int
    ) -> None:
        held = min(held, concurrency)
        finishing = min(finishing, held)
        asked = min(asked, concurrency - held)
        slots = Slots(concurrency=concurrency, held=held, asked=asked, lanes=lanes)

        claim = claim_count(slots, finishing=finishing, open_for_work=True)

        assert claim >= 0
        assert held - finishing + asked + claim <= concurrency

    @given(st.integers(1, 300), st.integers(1, 4))
    def test_an_idle_worker_asks_for_its_share(self, concurrency: int, lanes: int) -> None:
        slots = Slots(concurrency=concurrency, held=0, asked=0, lanes=lanes)

        claim = claim_count(slots, finishing=0, open_for_work=True)

        assert claim == math.ceil(concurrency / lanes)

    def test_no_call_asks_for_more_than_a_script_may_take(self) -> None:
        slots = Slots(concurrency=10_000, held=0, asked=0, lanes=2)

        assert claim_count(slots, finishing=0, open_for_work=True) == MOST_CLAIMED_PER_CALL

    def test_a_closed_worker_asks_for_nothing(self) -> None:
        slots = Slots(concurrency=10, held=0, asked=0, lanes=2)

        assert claim_count(slots, finishing=5, open_for_work=False) == 0


class TestBackoff:
    @given(st.integers(0, 10_000), st.integers(0, 100_000), st.floats(1, 5), st.floats(0, 1), st.integers(1, 80))
    def test_a_delay_is_never_negative_nor_above_its_cap(
        self, base: int, cap: int, factor: float, jitter: float, failures: int
    ) -> None:
        rule = BackoffRule(base_ms=base, cap_ms=cap, factor=factor, jitter=jitter)

        assert 0 <= retry_delay_ms(rule, failures, lambda: 0.37) <= max(cap, 0)

    def test_without_jitter_it_doubles_up_to_the_cap(self) -> None:
        rule = BackoffRule(base_ms=100, cap_ms=500, factor=2, jitter=0)

        assert [retry_delay_ms(rule, failures, lambda: 0.5) for failures in (1, 2, 3, 4)] == [100, 200, 400, 500]

    @pytest.mark.parametrize(
        ("asked", "used"), [(None, -1), (0, 0), (-5, 0), (1.9, 1), (math.nan, 0), (math.inf, 365 * 86_400_000)]
    )
    def test_what_a_function_says_is_made_usable(self, asked: float | None, used: int) -> None:
        assert usable_delay_ms(asked) == used

    @given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
    def test_the_pause_before_reconnecting_is_short_and_never_nothing(self, attempt: int, chance: float) -> None:
        assert 0.05 <= reconnect_delay_s(attempt, lambda: chance) <= 2.2


class TestRetention:
    jobs = st.lists(st.tuples(st.text("abc", min_size=1), st.integers(0, 1_000_000)), unique_by=lambda one: one[0])

    @given(jobs, st.none() | st.integers(0, 5), st.none() | st.integers(0, 500), st.integers(0, 1_000_000))
    def test_the_newest_within_both_bounds_survive(
        self, finished: list[tuple[str, int]], count: int | None, age_s: int | None, now: int
    ) -> None:
        left = survivors(finished, Keep(count=count, age_s=age_s), now)

        times = dict(finished)
        gone = set(times) - set(left)
        assert count is None or len(left) <= count
        assert age_s is None or all(times[job] > now - age_s * 1_000 for job in left)
        young = [job for job in gone if age_s is None or times[job] > now - age_s * 1_000]
        assert all((times[job], job) <= (times[kept], kept) for job in young for kept in left)

    def test_nothing_survives_where_nothing_is_kept(self) -> None:
        assert survivors([("a", 1)], None, 2) == []

    def test_the_scripts_are_told_in_milliseconds(self) -> None:
        assert retention_arguments(None) == ("0", "", "")
        assert retention_arguments(Keep()) == ("1", "", "")
        assert retention_arguments(Keep(count=5, age_s=1.5)) == ("1", "1500", "5")


class TestNames:
    @pytest.mark.parametrize("name", ["emails", "a:b.c-d_e", "żółw", "x" * 512])
    def test_usual_names_are_taken(self, name: str) -> None:
        assert check_queue_id(name) == name

    @pytest.mark.parametrize("name", ["", "{", "a}b", "tab\there", "x" * 513, "ż" * 257])
    def test_names_that_would_break_the_tag_are_refused(self, name: str) -> None:
        with pytest.raises(BadQueue):
            check_queue_id(name)

    def test_a_key_may_hold_anything_but_must_be_something(self) -> None:
        assert check_key("user {7}: żółw\n") == "user {7}: żółw\n"
        with pytest.raises(BadQueue):
            check_key("")

    def test_a_state_is_found_in_any_case(self) -> None:
        assert state_named("Failed") is JobState.FAILED
        with pytest.raises(BadQueue, match="no such state"):
            state_named("gone")


@given(st.lists(st.integers(0, 50)), st.integers(1, 7), st.integers(1, 60))
def test_batches_cover_everything_once_and_keep_their_bounds(sizes: list[int], most: int, most_bytes: int) -> None:
    ranges = list(batches(sizes, most=most, most_bytes=most_bytes))

    covered = [place for start, end in ranges for place in range(start, end)]
    assert covered == list(range(len(sizes)))
    assert all(end - start <= most for start, end in ranges)
    assert all(sum(sizes[start:end]) <= most_bytes or end - start == 1 for start, end in ranges)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_a_key_is_ready_only_with_work_and_room(waiting: int, active: int, limit: int) -> None:
    assert is_ready(waiting=waiting, active=active, limit=limit) == (waiting >= 1 and limit - active >= 1)


def test_a_reason_is_the_message_else_the_name_and_never_endless() -> None:
    assert told_reason(ValueError("no paper")) == "no paper"
    assert told_reason(ValueError()) == "ValueError"
    assert len(told_reason(ValueError("x" * 10_000))) == 2_000
