"""Feeds: ranges of numbers, and a server that was set up anew. Pure."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import msgspec

from queueyard.pipeline.sources.sequences import Mark, Marks, Range, Seen, between, plan, split

ALL = 1 << 60


def feed(head: int, kind: str = "changes", space: str = "docs", first: str | None = None) -> Seen:
    return Seen(place="http://here", space=space, kind=kind, head=head, first=first)


def numbers(ranges: list[Range]) -> list[int]:
    return [number for one in ranges for number in range(one.after + 1, one.upto + 1)]


@given(heads=st.lists(st.integers(0, 40), max_size=8).map(sorted), most=st.integers(1, 50))
def test_every_number_of_a_growing_feed_is_planned_exactly_once(heads: list[int], most: int) -> None:
    marks: Marks = {}
    taken: list[int] = []

    for head in heads:
        while True:
            ranges, after = plan(marks, [feed(head)], most_entries=most)
            if not ranges:
                break
            assert between(marks, after) == ranges
            taken += numbers(ranges)
            marks = after

    assert taken == list(range(1, max(heads, default=0) + 1))


@given(after=st.integers(0, 30), length=st.integers(1, 60), most=st.integers(1, 25))
def test_a_range_in_parts_has_every_number_once(after: int, length: int, most: int) -> None:
    whole = Range(place="p", space="s", kind="audit", generation=0, after=after, upto=after + length)

    assert numbers(split(whole, most_entries=most)) == numbers([whole])


def test_feeds_of_two_kinds_and_spaces_have_marks_of_their_own() -> None:
    feeds = [feed(3), feed(2, kind="audit"), feed(1, space="a/b")]

    ranges, marks = plan({}, feeds, most_entries=ALL)

    assert [(one.space, one.kind, one.upto) for one in ranges] == [
        ("docs", "changes", 3),
        ("docs", "audit", 2),
        ("a/b", "changes", 1),
    ]
    assert plan(marks, feeds, most_entries=ALL)[0] == []


def test_a_feed_that_is_shorter_than_what_was_read_is_another_one() -> None:
    _, marks = plan({}, [feed(9)], most_entries=ALL)

    ranges, _ = plan(marks, [feed(4)], most_entries=ALL)

    assert [(one.generation, one.after, one.upto) for one in ranges] == [(1, 0, 4)]


def test_a_feed_that_begins_otherwise_is_another_one_however_long_it_is() -> None:
    _, marks = plan({}, [feed(4, first="a")], most_entries=ALL)

    same, _ = plan(marks, [feed(9, first="a")], most_entries=ALL)
    other, _ = plan(marks, [feed(4, first="b")], most_entries=ALL)

    assert [(one.generation, one.after, one.upto) for one in same] == [(0, 4, 9)]
    assert [(one.generation, one.after, one.upto) for one in other] == [(1, 0, 4)]


def test_a_mark_of_an_older_note_takes_the_beginning_that_it_finds() -> None:
    old = {"http://here": {"docs/changes": msgspec.convert({"seq": 4, "since": 0, "generation": 2}, Mark)}}

    ranges, marks = plan(old, [feed(5, first="a")], most_entries=ALL)

    assert [(one.generation, one.after) for one in ranges] == [(2, 4)]
    assert marks["http://here"]["docs/changes"].first == "a"
