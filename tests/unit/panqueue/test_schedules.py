"""When repeated jobs are due: intervals, cron lines, daylight saving time, and what is made up for."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.panqueue.errors import BadSchedule
from queueyard.panqueue.schedules import (
    MOST_SLOTS_PER_CALL,
    CatchUp,
    Schedule,
    check_schedule,
    next_slot,
    plan,
    slot_id,
    upcoming,
)

MINUTE = 60_000
HOUR = 60 * MINUTE
BERLIN = "Europe/Berlin"


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1_000)


def slots(cron: str, after: str, count: int, tz: str = BERLIN) -> list[str]:
    found = upcoming(Schedule(name="n", cron=cron, tz=tz), ms(after), count)
    return [moment.isoformat() for moment in found]


class TestDaylightSavingTime:
    """The rules of Debian's cron. In Berlin the clock leaps from 2 to 3 on 29 March 2026 and back on 25 October."""

    def test_an_hour_that_happens_twice_is_one_slot_of_a_fixed_time(self) -> None:
        assert slots("30 2 * * *", "2026-10-24T12:00", 2) == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]

    def test_a_time_that_the_clock_leaps_over_runs_at_the_leap(self) -> None:
        assert slots("30 2 * * *", "2026-03-28T12:00", 2) == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]

    def test_a_wildcard_goes_on_through_both_hours(self) -> None:
        found = slots("*/30 * * * *", "2026-10-24T23:59", 6)

        assert found == [
            *("2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00"),
            *("2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"),
            *("2026-10-25T03:00:00+01:00", "2026-10-25T03:30:00+01:00"),
        ]

    def test_a_wildcard_has_no_slot_in_the_hour_that_is_missing(self) -> None:
        assert slots("0 * * * *", "2026-03-29T00:30", 2) == ["2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"]

    def test_an_interval_knows_no_clock_that_leaps(self) -> None:
        every = Schedule(name="n", every_ms=HOUR, tz=BERLIN)
        found = [int(moment.timestamp() * 1_000) for moment in upcoming(every, ms("2026-10-24T20:30"), 8)]

        assert {later - earlier for earlier, later in pairwise(found)} == {HOUR}


class TestCatchingUp:
    def test_nothing_is_due_before_its_time(self) -> None:
        assert plan(Schedule(name="n", every_ms=MINUTE), 5 * MINUTE, 5 * MINUTE - 1).slots == []

    @pytest.mark.parametrize("kind", [{"every_ms": MINUTE}, {"cron": "* * * * *"}])
    @pytest.mark.parametrize(
        ("policy", "late_ms", "minutes"),
        [
            (CatchUp.ALL, 0, [5, 6, 7]),
            (CatchUp.ONCE, 0, [7]),
            (CatchUp.ONCE, 50_000, [7]),
            (CatchUp.SKIP, 0, [7]),
            (CatchUp.SKIP, 50_000, []),
        ],
    )
    def test_each_policy_makes_up_for_its_own(
        self, kind: dict[str, Any], policy: CatchUp, late_ms: int, minutes: list[int]
    ) -> None:
        made = plan(Schedule(name="n", catch_up=policy, grace_ms=10_000, **kind), 5 * MINUTE, 7 * MINUTE + late_ms)

        assert [slot / MINUTE for slot in made.slots] == minutes
        assert made.next_ms == 8 * MINUTE

    def test_a_year_without_a_scheduler_is_made_up_for_in_steps(self) -> None:
        schedule, next_ms, found = Schedule(name="n", cron="0 * * * *", catch_up=CatchUp.ALL), ms("2025-01-01"), []
        while next_ms <= ms("2025-02-01"):
            made = plan(schedule, next_ms, ms("2025-02-01"))
            assert len(made.slots) <= MOST_SLOTS_PER_CALL
            found += made.slots
            assert made.next_ms is not None
            next_ms = made.next_ms

        assert found == [ms("2025-01-01") + hour * HOUR for hour in range(31 * 24 + 1)]

    @given(
        every=st.integers(100, 10_000_000),
        policy=st.sampled_from(CatchUp),
        start=st.integers(0, 10**12),
        away=st.integers(0, 10**8),
    )
    def test_the_next_slot_is_the_first_that_is_not_due_or_not_dealt_with(
        self, every: int, policy: CatchUp, start: int, away: int
    ) -> None:
        schedule = Schedule(name="n", every_ms=every, catch_up=policy)
        first = next_slot(schedule, start)
        assert first is not None

        made = plan(schedule, first, start + away)

        assert made.next_ms is not None
        assert all(first <= slot <= start + away for slot in made.slots)
        assert made.next_ms > max(made.slots, default=first - 1)
        assert made.next_ms > start + away or len(made.slots) == MOST_SLOTS_PER_CALL


class TestBadInput:
    @pytest.mark.parametrize(
        ("fields", "about"),
        [
            ({"cron": "99 * * * *"}, "not a cron line"),
            ({"cron": "every day"}, "not a cron line"),
            ({"cron": "0 3 * * *", "tz": "Mars/Olympus"}, "no such time zone"),
            ({"cron": "0 3 * * *", "tz": "../../etc/passwd"}, "no such time zone"),
            ({"cron": "0 3 * * *", "every_ms": 1_000}, "one of the two"),
            ({}, "one of the two"),
            ({"every_ms": 5}, "too often"),
            ({"every_ms": -1_000}, "too often"),
            ({"every_ms": 1_000, "name": ""}, "not a name"),
            ({"every_ms": 1_000, "name": "a\nb"}, "not a name"),
            ({"cron": "0 0 31 2 *"}, "(never comes|not a cron line)"),
        ],
    )
    def test_what_makes_no_sense_is_refused_with_a_hint(self, fields: dict[str, Any], about: str) -> None:
        with pytest.raises(BadSchedule, match=about) as refused:
            check_schedule(Schedule(**({"name": "n"} | fields)))

        assert refused.value.hint


def test_the_id_of_a_slot_tells_its_moment() -> None:
    assert slot_id("nightly", ms("2026-03-29T01:00")) == "nightly@2026-03-29T01:00:00Z"
