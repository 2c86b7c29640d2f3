"""Not more often than agreed, and never for more than a share of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.runforge.pace import Pace

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock


def test_the_first_time_is_at_once(clock: FakeClock) -> None:
    assert Pace(clock, every_s=0.2, share=0.1).due_s < clock.monotonic()


def test_what_is_cheap_comes_as_often_as_agreed(clock: FakeClock) -> None:
    pace = Pace(clock, every_s=0.2, share=0.1)

    with pace.doing():
        clock.advance(0.001)

    assert pace.due_s - clock.monotonic() == pytest.approx(0.2)


def test_what_is_expensive_waits_until_it_is_below_its_share(clock: FakeClock) -> None:
    pace = Pace(clock, every_s=0.2, share=0.1)

    with pace.doing():
        clock.advance(1.0)

    assert pace.due_s - clock.monotonic() == pytest.approx(9.0)
    assert pace.due_if_asked_s - clock.monotonic() == pytest.approx(1.0)


def test_a_failure_counts_as_a_time(clock: FakeClock) -> None:
    pace = Pace(clock, every_s=0.2, share=0.1)

    with pytest.raises(ValueError, match="no"), pace.doing():
        raise ValueError("no")

    assert pace.due_s > clock.monotonic()
