from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.clock import (
    SYSTEM_CLOCK,
    BadTime,
    format_duration,
    from_rfc3339,
    parse_duration,
    parse_since,
    to_rfc3339,
)

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)
ANY_ZONE = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ANY_MOMENT = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ANY_ZONE)  # noqa: DTZ001


def test_the_system_clock_is_in_utc_and_its_seconds_only_go_up() -> None:
    before = SYSTEM_CLOCK.monotonic()

    SYSTEM_CLOCK.sleep(0)

    assert SYSTEM_CLOCK.now().tzinfo is UTC
    assert SYSTEM_CLOCK.monotonic() >= before


class TestRfc3339:
    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            (NOON, "2026-01-31T12:00:00Z"),
            (NOON + timedelta(microseconds=500_000), "2026-01-31T12:00:00.5Z"),
            (NOON + timedelta(microseconds=1), "2026-01-31T12:00:00.000001Z"),
            (NOON.replace(tzinfo=timezone(timedelta(hours=2))), "2026-01-31T10:00:00Z"),
        ],
    )
    def test_a_time_is_written_in_utc_without_trailing_zeros(self, moment: datetime, text: str) -> None:
        assert to_rfc3339(moment) == text

    @pytest.mark.parametrize(
        "text",
        [
            "2026-01-31T12:00:00Z",
            "2026-01-31t12:00:00z",
            "2026-01-31 12:00:00",
            "  2026-01-31T12:00:00Z\n",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31T13:00:00+0100",
            "2026-01-31T06:30:00 -05:30",
            "2026-01-31T12:00:00.000000000Z",
        ],
    )
    def test_the_spellings_of_other_tools_are_read(self, text: str) -> None:
        assert from_rfc3339(text) == NOON

    def test_nanoseconds_are_cut_and_not_rounded(self) -> None:
        assert from_rfc3339("2026-01-31T12:00:00.123456999Z") == NOON + timedelta(microseconds=123_456)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "now",
            "2026-01-31",
            "2026-01-31T14Z",
            "2026-W05-6T12:00:00Z",
            "2026-01-31T12:00:0xZ",
            "2026-02-30T12:00:00Z",
            "2026-01-31T25:00:00Z",
            "2026-01-31T12:00:00+99:99",
            "0001-01-01T00:00:00+23:59",
            "٢٠٢٦-٠١-٣١T١٢:٠٠:٠٠Z",  # noqa: RUF001
        ],
    )
    def test_anything_else_is_a_bad_time_with_an_example(self, text: str) -> None:
        with pytest.raises(BadTime, match="not a time") as caught:
            from_rfc3339(text)

        assert caught.value.hint == "Write it like 2026-01-31T14:00:00Z."

    @given(moment=ANY_MOMENT)
    def test_what_is_written_is_read_back_to_the_microsecond(self, moment: datetime) -> None:
        assert from_rfc3339(to_rfc3339(moment)) == moment

    @given(text=st.text())
    def test_no_text_gets_anything_but_a_time_or_a_bad_time(self, text: str) -> None:
        try:
            moment = from_rfc3339(text)
        except BadTime:
            return
        assert moment.tzinfo is UTC


class TestDuration:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("90s", 90),
            ("1h30m", 5400),
            ("2d", 172_800),
            ("1w", 604_800),
            ("1.5h", 5400),
            ("250ms", 0.25),
            ("100us", 0.0001),
            ("100µs", 0.0001),
            ("-2h", -7200),
            ("+2h", 7200),
            (" 5m ", 300),
        ],
    )
    def test_numbers_with_units_are_read(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == timedelta(seconds=seconds)

    @pytest.mark.parametrize("text", ["", "90", "h", "1h 30m", "--5s", "5 s", "1e3s", "5x", "5s!", "-", ".5h"])
    def test_a_number_without_a_unit_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(BadTime, match="not a duration") as caught:
            parse_duration(text)

        assert caught.value.hint == "Write a number with its unit: 90s, 45m, 1h30m, 2d, 1w."

    @pytest.mark.parametrize("text", ["36526d", "9" * 5000 + "w"])
    def test_more_than_a_hundred_years_is_refused(self, text: str) -> None:
        with pytest.raises(BadTime, match="longer than a hundred years"):
            parse_duration(text)

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0, "0s"),
            (0.4, "0s"),
            (-0.4, "0s"),
            (12, "12s"),
            (3900, "1h 5m"),
            (3_661, "1h 1m"),
            (3 * 86_400 + 4 * 3600 + 59, "3d 4h"),
            (-90, "-1m 30s"),
        ],
    )
    def test_a_duration_is_shown_in_two_units_at_most(self, seconds: float, text: str) -> None:
        assert format_duration(timedelta(seconds=seconds)) == text

    @given(seconds=st.integers(0, 10**9))
    def test_what_is_shown_is_never_more_and_is_read_back(self, seconds: int) -> None:
        shown = parse_duration(format_duration(timedelta(seconds=seconds)).replace(" ", ""))

        assert timedelta(0) <= timedelta(seconds=seconds) - shown < timedelta(days=1)


class TestSince:
    @pytest.mark.parametrize(
        ("text", "moment"),
        [
            ("2h", NOON - timedelta(hours=2)),
            ("2h ago", NOON - timedelta(hours=2)),
            ("2026-01-30", NOON - timedelta(hours=36)),
            ("2026-01-31T11:00:00Z", NOON - timedelta(hours=1)),
        ],
    )
    def test_durations_dates_and_times_are_points_in_the_past(self, text: str, moment: datetime) -> None:
        assert parse_since(text, NOON) == moment

    @pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "5"])
    def test_anything_else_is_refused_with_examples(self, text: str) -> None:
        with pytest.raises(BadTime, match="not a point in time") as caught:
            parse_since(text, NOON)

        assert caught.value.hint == "Write 2h, 3d, 2026-01-31 or 2026-01-31T14:00:00Z."
