"""Event streams: ranges of entry ids, what was trimmed unread, and streams that were made anew. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueyard.pipeline.sources.entries import (
    Marks,
    Plan,
    Range,
    Seen,
    between,
    order,
    plan,
    queue_of,
    split,
    tasks,
)

ALL = 1 << 60
KEY = "{q:mail}:events"


def stream(*ids: str, added: int | None = None, deleted: str = "0-0", last: str | None = None) -> Seen:
    """A stream that holds these entries."""
    return Seen(
        place="redis://here",
        key=KEY,
        first=ids[0] if ids else None,
        last=last or (ids[-1] if ids else "0-0"),
        length=len(ids),
        deleted=deleted,
        added=len(ids) if added is None else added,
    )


def planned(*streams: Seen, most: int = ALL) -> Plan:
    """The last of several plans, each from the marks of the one before."""
    marks: Marks = {}
    for one in streams[:-1]:
        marks = plan(marks, [one], most_entries=ALL).marks
    return plan(marks, [streams[-1]], most_entries=most)


def entries_in(ids: list[str], ranges: list[Range]) -> list[str]:
    return [one for part in ranges for one in ids if order(part.after) < order(one) <= order(part.upto)]


class TestWhatIsNew:
    def test_the_first_time_all_of_it(self) -> None:
        found = planned(stream("5-0", "7-1"))

        assert entries_in(["5-0", "7-1"], found.ranges) == ["5-0", "7-1"]

    def test_later_what_came_behind_the_mark(self) -> None:
        found = planned(stream("5-0", "7-1"), stream("5-0", "7-1", "7-2"))

        assert entries_in(["5-0", "7-1", "7-2"], found.ranges) == ["7-2"]

    def test_nothing_where_nothing_came(self) -> None:
        found = planned(stream("5-0"), stream("5-0"))

        assert (found.ranges, found.lost) == ([], 0)

    def test_the_mark_tells_the_same_ranges_again(self) -> None:
        first = planned(stream("5-0", "7-1"))

        assert between({}, first.marks) == first.ranges
        assert between(first.marks, first.marks) == []

    def test_a_stream_that_is_gone_keeps_its_mark(self) -> None:
        first = planned(stream("5-0"))

        later = plan(first.marks, [], most_entries=ALL)

        assert later.marks == first.marks


class TestWhatIsLost:
    def test_entries_that_were_trimmed_unread_are_counted(self) -> None:
        found = planned(stream("1-0", "2-0"), stream("5-0", "6-0", added=6))

        assert found.lost == 2
        assert found.marks["redis://here"][KEY].lost == 2

    def test_trimming_what_was_read_loses_nothing(self) -> None:
        found = planned(stream("1-0", "2-0"), stream("3-0", added=3))

        assert found.lost == 0

    def test_all_of_it_trimmed_is_counted_and_the_mark_moves_on(self) -> None:
        found = planned(stream("1-0"), stream(added=4, last="9-0"))

        assert (found.lost, found.marks["redis://here"][KEY].last) == (3, "9-0")

    def test_single_entries_that_were_deleted_unread_are_a_loss_of_unknown_size(self) -> None:
        found = planned(stream("1-0"), stream("1-0", "4-0", added=4, deleted="3-0"))

        assert found.lost is None

    def test_a_server_that_does_not_count_leaves_the_size_unknown(self) -> None:
        marks = planned(stream("1-0")).marks
        old = Seen(place="redis://here", key=KEY, first="5-0", last="5-0", length=1, added=None)

        assert plan(marks, [old], most_entries=ALL).lost is None

    def test_what_was_trimmed_before_the_first_look_is_no_loss(self) -> None:
        assert planned(stream("5-0", added=100)).lost == 0


class TestAStreamMadeAnew:
    def test_ids_below_the_mark_are_read_from_the_start_as_a_new_generation(self) -> None:
        found = planned(stream("8-0", "9-0"), stream("3-0"))

        assert [(one.generation, one.upto) for one in found.ranges] == [(1, "3-0")]
        assert entries_in(["3-0"], found.ranges) == ["3-0"]
        assert found.lost is None

    def test_a_lower_count_tells_it_too(self) -> None:
        found = planned(stream("1-0", "2-0", "3-0"), stream("9-0"))

        assert [one.generation for one in found.ranges] == [1]
        assert entries_in(["9-0"], found.ranges) == ["9-0"]


_IDS = st.lists(st.tuples(st.integers(1, 400), st.integers(0, 3)), min_size=1, max_size=60, unique=True).map(
    lambda found: [f"{milliseconds}-{sequence}" for milliseconds, sequence in sorted(found)]
)


@given(ids=_IDS, parts=st.integers(1, 20))
def test_a_range_in_parts_has_every_entry_in_exactly_one(ids: list[str], parts: int) -> None:
    whole = planned(stream(*ids)).ranges[0]

    pieces = split(whole, parts=parts)

    assert entries_in(ids, pieces) == ids


@given(ids=_IDS, most=st.integers(1, 10))
def test_batches_of_limited_size_come_to_the_end_and_miss_nothing(ids: list[str], most: int) -> None:
    marks: Marks = {}
    taken: list[str] = []

    for _ in range(len(ids) + 500):
        step = plan(marks, [stream(*ids)], most_entries=most)
        if not step.ranges:
            break
        assert between(marks, step.marks) == step.ranges
        taken += entries_in(ids, step.ranges)
        marks = step.marks

    assert taken == ids
    assert plan(marks, [stream(*ids)], most_entries=most).ranges == []


@given(sizes=st.lists(st.integers(0, 50), max_size=20), most=st.integers(1, 30))
def test_tasks_hold_all_ranges_in_order_and_none_is_too_large(sizes: list[int], most: int) -> None:
    ranges = [
        Range(place="p", key=f"k{number}", generation=0, after="0-0", upto="1000-0", entries=size)
        for number, size in enumerate(sizes)
    ]

    found = tasks(ranges, most_entries=most)

    assert list(dict.fromkeys(part.key for task in found for part in task)) == [one.key for one in ranges]
    assert all(sum(part.entries for part in task) <= most for task in found)


def test_a_key_names_its_queue() -> None:
    assert queue_of("{q:a}b}:events") == "a}b"
