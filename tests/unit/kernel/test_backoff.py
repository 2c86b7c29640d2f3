from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.backoff import Backoff

ANY_BACKOFF = st.builds(
    Backoff,
    base_ms=st.integers(0, 10_000),
    cap_ms=st.integers(0, 3_600_000),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
)


def test_without_jitter_each_delay_is_the_one_before_times_the_factor() -> None:
    backoff = Backoff(base_ms=100, cap_ms=1_000, factor=2, jitter=0)

    delays = [backoff.delay_ms(attempt, lambda: 0.5) for attempt in range(1, 7)]

    assert delays == [100, 200, 400, 800, 1_000, 1_000]


def test_full_jitter_spreads_between_nothing_and_the_whole_delay() -> None:
    backoff = Backoff(base_ms=1_000, cap_ms=60_000, jitter=1)

    assert backoff.delay_ms(2, lambda: 0.0) == 2_000
    assert backoff.delay_ms(2, lambda: 0.75) == 500


def test_no_base_means_no_delay_however_many_attempts() -> None:
    backoff = Backoff(base_ms=0)

    assert backoff.delay_ms(1, lambda: 0.0) == 0
    assert backoff.delay_ms(100_000, lambda: 0.0) == 0


@given(backoff=ANY_BACKOFF, attempt=st.integers(1, 10**9), chance=st.floats(0, 1, exclude_max=True))
def test_no_delay_is_negative_or_longer_than_the_cap(backoff: Backoff, attempt: int, chance: float) -> None:
    delay = backoff.delay_ms(attempt, lambda: chance)

    assert 0 <= delay <= backoff.cap_ms


@given(backoff=ANY_BACKOFF, attempt=st.integers(1, 10_000))
def test_a_later_attempt_never_waits_less_for_the_same_chance(backoff: Backoff, attempt: int) -> None:
    assert backoff.delay_ms(attempt, lambda: 0.0) <= backoff.delay_ms(attempt + 1, lambda: 0.0)


@pytest.mark.parametrize("attempt", [0, -1])
def test_attempts_count_from_one(attempt: int) -> None:
    with pytest.raises(ValueError, match="attempts count from 1"):
        Backoff().delay_ms(attempt, lambda: 0.0)
