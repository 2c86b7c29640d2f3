from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
import threading

from hypothesis import given
from hypothesis import strategies as st
import pytest
from ulid import ULID

from queueyard.kernel.ids import UlidSource, derived_ulid, find_id, new_id, new_ulid, sequence_id, ulid_time
from queueyard.kernel.testing import FakeClock

ANY_MOMENT = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001


def to_the_millisecond(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


class TestUlidSource:
    @given(steps_s=st.lists(st.sampled_from([-3600.0, -0.001, 0.0, 0.0005, 0.001, 3600.0]), min_size=1, max_size=50))
    def test_ids_strictly_increase_whatever_the_clock_does(self, steps_s: list[float]) -> None:
        clock = FakeClock()
        source = UlidSource(clock)
        made = [source.new()]

        for step_s in steps_s:
            clock.advance(step_s)
            made.append(source.new())

        assert all(earlier < later for earlier, later in pairwise(made))

    def test_a_millisecond_that_is_used_up_carries_into_the_next(self) -> None:
        clock = FakeClock()
        source = UlidSource(clock, random_bits=lambda bits: 2**bits - 1)

        first, second = source.new(), source.new()

        assert first.endswith("Z" * 16)
        assert second.endswith("0" * 16)
        assert second > first

    def test_threads_never_get_the_same_id(self) -> None:
        source = UlidSource(FakeClock())
        made: list[list[str]] = [[] for _ in range(4)]

        def make(mine: list[str]) -> None:
            mine.extend(source.new() for _ in range(500))

        threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len({identifier for mine in made for identifier in mine}) == 2000
        assert all(mine == sorted(mine) for mine in made)

    @given(moment=ANY_MOMENT, randomness=st.integers(0, 2**80 - 1))
    def test_python_ulid_reads_the_same_time_and_randomness(self, moment: datetime, randomness: int) -> None:
        made = UlidSource(FakeClock(moment), random_bits=lambda _bits: randomness).new()

        peer = ULID.from_str(made)

        assert str(peer) == made
        assert peer.milliseconds == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        assert int.from_bytes(peer.bytes[6:], "big") == randomness

    def test_a_new_id_has_its_prefix_and_26_characters(self) -> None:
        prefix, _, body = new_id("qm").partition("-")

        assert prefix == "qm"
        assert str(ULID.from_str(body)) == body
        assert new_ulid() > body


class TestUlidTime:
    @given(moment=ANY_MOMENT)
    def test_the_time_is_that_of_the_making_to_the_millisecond(self, moment: datetime) -> None:
        made = UlidSource(FakeClock(moment)).new()

        assert ulid_time(made) == to_the_millisecond(moment)
        assert ulid_time(f"qm-{made.lower()}") == to_the_millisecond(moment)

    @given(value=st.integers(0, 2**128 - 1))
    def test_python_ulid_agrees_on_the_time_of_any_ulid(self, value: int) -> None:
        peer = ULID.from_int(value)

        told = ulid_time(str(peer))

        assert told is None or (told - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) == (
            peer.milliseconds
        )
        assert (told is None) == (peer.milliseconds >= 253_402_300_800_000)  # the year 10000

    def test_letters_that_people_confuse_are_read_as_digits(self) -> None:
        assert ulid_time("O1ARZ3NDEKTSV4RRFFQ69G5FAV") == ulid_time("01ARZ3NDEKTSV4RRFFQ69G5FAV")
        assert ulid_time("0lARZ3NDEKTSV4RRFFQ69G5FAV") == ulid_time("01ARZ3NDEKTSV4RRFFQ69G5FAV")

    @pytest.mark.parametrize("identifier", ["", "qm-01HZ1A", "7", "8" + "Z" * 25, "U" * 26, "ß" * 13, "000007"])
    def test_a_short_or_foreign_id_merely_has_no_time(self, identifier: str) -> None:
        assert ulid_time(identifier) is None

    @given(identifier=st.text())
    def test_no_text_makes_the_reading_fail(self, identifier: str) -> None:
        told = ulid_time(identifier)

        assert told is None or told.tzinfo is UTC


class TestDerivedUlid:
    @given(moment=ANY_MOMENT, parts=st.lists(st.text()))
    def test_the_same_change_has_the_same_id_and_its_own_time(self, moment: datetime, parts: list[str]) -> None:
        derived = derived_ulid(moment, *parts)

        assert derived == derived_ulid(moment, *parts)
        assert ulid_time(derived) == to_the_millisecond(moment)

    @given(
        one=st.lists(st.text(alphabet="a:1\x1f\x00", max_size=3), max_size=3),
        other=st.lists(st.text(alphabet="a:1\x1f\x00", max_size=3), max_size=3),
    )
    def test_different_parts_never_share_an_id(self, one: list[str], other: list[str]) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)

        assert (derived_ulid(moment, *one) == derived_ulid(moment, *other)) == (one == other)

    def test_a_separator_inside_a_part_does_not_make_two_changes_one(self) -> None:
        moment = datetime(2026, 1, 1, tzinfo=UTC)

        assert derived_ulid(moment, "a\x1fb", "c") != derived_ulid(moment, "a", "b\x1fc")

    def test_a_moment_before_1970_counts_as_1970(self) -> None:
        assert ulid_time(derived_ulid(datetime(1969, 1, 1, tzinfo=UTC), "a")) == datetime(1970, 1, 1, tzinfo=UTC)

    def test_a_name_that_is_not_unicode_still_gets_an_id(self) -> None:
        assert len(derived_ulid(datetime(2026, 1, 1, tzinfo=UTC), "\udcff")) == 26


class TestFindId:
    KNOWN = ("qm-01HZ1A", "qm-01HZ1AB", "qm-02XY9B", "qa-01HZ1C")

    @pytest.mark.parametrize(
        ("typed", "found"),
        [
            ("qm-01HZ1A", ["qm-01HZ1A"]),
            ("QM-01hz1a", ["qm-01HZ1A"]),
            ("02", ["qm-02XY9B"]),
            ("qa", ["qa-01HZ1C"]),
            ("9b", ["qm-02XY9B"]),
            ("01HZ1A", ["qm-01HZ1A", "qm-01HZ1AB"]),
            ("zz", []),
            ("", []),
        ],
    )
    def test_an_id_may_be_typed_short_without_prefix_and_in_any_case(self, typed: str, found: list[str]) -> None:
        assert find_id(typed, self.KNOWN) == found

    def test_the_same_spelling_wins_over_another_case(self) -> None:
        assert find_id("ab", ["AB", "ab", "abc"]) == ["ab"]

    def test_two_ids_that_differ_by_case_only_are_both_meant_by_a_third_spelling(self) -> None:
        assert find_id("Ab", ["AB", "ab", "abc"]) == ["AB", "ab"]

    @given(known=st.lists(st.text(min_size=1), min_size=1, unique=True), data=st.data())
    def test_a_known_id_always_finds_itself_alone(self, known: list[str], data: st.DataObject) -> None:
        typed = data.draw(st.sampled_from(known))

        assert find_id(typed, known) == [typed]


class TestSequenceId:
    @pytest.mark.parametrize(("number", "text"), [(0, "000000"), (7, "000007"), (1_234_567, "1234567")])
    def test_numbers_are_padded_and_never_cut(self, number: int, text: str) -> None:
        assert sequence_id(number) == text

    @given(one=st.integers(0, 999_999), other=st.integers(0, 999_999))
    def test_names_sort_as_numbers(self, one: int, other: int) -> None:
        assert (sequence_id(one) < sequence_id(other)) == (one < other)

    def test_a_negative_number_is_refused(self) -> None:
        with pytest.raises(ValueError, match="starts at zero"):
            sequence_id(-1)
