from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
import pytest

from queueyard.queen.segments import Segment, SegmentBuilder, looks_like_a_message


def message(identifier: str, **fields: Any) -> bytes:
    named = {"from" if key == "sender" else key: value for key, value in fields.items()}
    return msgspec.json.encode({"id": identifier, **named}) + b"\n"


def at(hour: int) -> str:
    return f"2026-01-01T{hour:02}:00:00Z"


def built(*lines: bytes, start: int = 0) -> Segment:
    builder = SegmentBuilder(start)
    builder.add(lines)
    return Segment(memoryview(builder.build([])))


def ids(segment: Segment, ordinals: Any, lines: tuple[bytes, ...]) -> list[str]:
    """The ids behind ordinals, read where the segment says that their first lines stand."""
    content = b"".join(lines)
    offsets = [segment.lines_of(ordinal)[0] for ordinal in ordinals]
    return [msgspec.json.decode(content[offset:].split(b"\n", 1)[0])["id"] for offset in offsets]


def test_a_look_up_by_id_gives_the_lines_of_the_message_in_order() -> None:
    lines = (message("a"), message("b"), message("a", read=True), message("a", deleted=True))

    segment = built(*lines)

    [ordinal] = segment.by_id("a")
    assert segment.lines_of(ordinal) == [0, len(lines[0] + lines[1]), len(lines[0] + lines[1] + lines[2])]
    assert list(segment.by_id("c")) == []
    assert len(segment) == 2


def test_offsets_count_from_the_start_of_the_file_not_of_the_range() -> None:
    lines = (message("a"), message("b"))

    segment = built(*lines, start=1000)

    [ordinal] = segment.by_id("b")
    assert segment.lines_of(ordinal) == [1000 + len(lines[0])]
    assert (segment.start, segment.end) == (1000, 1000 + len(lines[0] + lines[1]))


def test_messages_are_posted_to_everybody_who_was_ever_named_newest_first() -> None:
    lines = (
        message("a", to="ui", sender="queen", created_at=at(1)),
        message("b", to="ui", sender="api", created_at=at(3)),
        message("c", to="ui", sender="queen", created_at=at(2)),
        message("a", to="api"),
    )

    segment = built(*lines)

    assert ids(segment, segment.received_by("ui", unread=False), lines) == ["b", "c", "a"]
    assert ids(segment, segment.received_by("api", unread=False), lines) == ["a"]
    assert ids(segment, segment.sent_by("queen"), lines) == ["c", "a"]
    assert segment.agents() == {"ui", "api", "queen"}


def test_a_message_that_is_named_in_many_lines_is_posted_once() -> None:
    segment = built(*[message("a", to="ui", sender="queen", read=False)] * 5)

    assert len(list(segment.received_by("ui", unread=False))) == 1
    assert len(list(segment.sent_by("queen"))) == 1


def test_threads_and_issues_are_found_by_their_names() -> None:
    lines = (message("a", thread_id="t", issue_id="qb-1"), message("b", thread_id="t"), message("c", issue_id="qb-1"))

    segment = built(*lines)

    assert sorted(ids(segment, segment.by_thread("t"), lines)) == ["a", "b"]
    assert sorted(ids(segment, segment.by_issue("qb-1"), lines)) == ["a", "c"]


@pytest.mark.parametrize(
    ("changes", "unread"),
    [
        ([{}], True),
        ([{"read": False}], True),
        ([{"read": True}], False),
        ([{"deleted": True}], False),
        ([{"read": True}, {"subject": "x"}], False),
        ([{"read": True}, {"read": False}], True),
        ([{"read": True}, {"read": None}], True),
        ([{"deleted": True}, {"deleted": None}], True),
        ([{"read": True, "deleted": True}, {"deleted": False}], False),
    ],
)
def test_what_the_range_knows_to_be_read_or_deleted_is_not_unread(changes: list[dict[str, Any]], unread: bool) -> None:
    first, *later = changes

    segment = built(message("a", to="ui", **first), *(message("a", **change) for change in later))

    assert bool(list(segment.received_by("ui", unread=True))) is unread
    assert list(segment.received_by("ui", unread=False))


@pytest.mark.parametrize("change", [{"read": False}, {"read": None}, {"deleted": False}, {"deleted": None}])
def test_what_a_line_makes_unread_without_saying_whose_it_is_is_kept_apart(change: dict[str, Any]) -> None:
    lines = (message("a", **change), message("b", to="ui", read=False), message("c", subject="x"))

    segment = built(*lines)

    assert ids(segment, segment.revived(), lines) == ["a"]
    assert segment.agents() == {"ui"}


def test_a_line_without_a_time_comes_before_all_others() -> None:
    lines = (
        message("a", to="ui", created_at=at(1)),
        message("b", to="ui"),
        message("c", to="ui", created_at="yesterday"),
        message("d", to="ui", created_at=at(2)),
    )

    segment = built(*lines)

    found = ids(segment, segment.received_by("ui", unread=False), lines)
    assert (set(found[:2]), found[2:]) == ({"b", "c"}, ["d", "a"])


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T02:00:00Z",
        "2026-01-01T02:00:00.123456789Z",
        "2026-01-01T02:00:00",
        "2026-01-01 02:00:00",
        "2026-01-01t02:00:00z",
        "2026-01-01T03:00:00+01:00",
        "2026-01-01T03:00:00+0100",
        "2026-01-01T02:00:00 Z",
        " 2026-01-01T02:00:00Z ",
    ],
)
def test_every_time_that_can_be_read_puts_a_message_in_its_place(text: str) -> None:
    lines = (
        message("late", to="ui", created_at=at(3)),
        message("it", to="ui", created_at=text),
        message("early", to="ui", created_at=at(1)),
    )

    segment = built(*lines)

    assert ids(segment, segment.received_by("ui", unread=False), lines) == ["late", "it", "early"]


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b'{"to":"ui"}\n',
        b'{"id":"","to":"ui"}\n',
        b'{"id":7,"to":"ui"}\n',
        b'{"id":"x","to":7}\n',
        b'{"id":"x","to":"ui","body":7}\n',
        b'{"id":"x","to":"ui","body":"\xff"}\n',
        b'{"id":"x","to":"ui","strange":"\xff"}\n',
        b'{"id":"x","to":"ui","created_at":7}\n',
        b'{"id":"x","to":"ui"}{"id":"y","to":"ui"}\n',
    ],
)
def test_a_line_that_is_no_message_is_remembered_as_bad_and_the_next_one_is_found(line: bytes) -> None:
    last = message("z", to="ui")

    segment = built(line, last)

    assert [offset for offset, _ in segment.bad] == [0]
    [ordinal] = segment.received_by("ui", unread=False)
    assert segment.lines_of(ordinal) == [len(line)]
    assert segment.end == len(line + last)


@pytest.mark.parametrize(
    "line", [b"\n", b"  \r\n", b'{"_migration":"v1"}\n', b'{"_migration":"v1","id":"m","to":"ui"}\n']
)
def test_blank_lines_and_migrations_are_neither_messages_nor_bad(line: bytes) -> None:
    segment = built(line, message("a", to="ui"))

    assert segment.bad == []
    assert len(segment) == 1


def test_a_message_with_text_of_any_language_is_a_message() -> None:
    lines = (message("ä", to="ü", sender="日本", thread_id="нить", issue_id="ß", body="🐝"),)

    segment = built(*lines)

    for found in (
        segment.by_id("ä"),
        segment.by_thread("нить"),
        segment.by_issue("ß"),
        segment.received_by("ü", unread=True),
        segment.sent_by("日本"),
    ):
        assert ids(segment, found, lines) == ["ä"]


def test_asking_for_what_no_file_can_hold_finds_nothing() -> None:
    assert list(built(message("a")).by_id("\udcff")) == []


@pytest.mark.parametrize("torn", [b'{"id":"b","to":"u', b"   ", b"{"])
def test_a_torn_last_line_is_left_for_the_next_time(torn: bytes) -> None:
    whole = message("a", to="ui")

    segment = built(whole, torn)

    assert segment.end == len(whole)
    assert segment.bad == []


def test_lines_can_be_added_in_portions() -> None:
    lines = [message(str(number), to="ui", created_at=at(number)) for number in range(10)]
    at_once, by_and_by = SegmentBuilder(0), SegmentBuilder(0)

    at_once.add(lines)
    for line in lines:
        by_and_by.add([line])

    assert by_and_by.build([]) == at_once.build([])


def test_a_range_without_messages_is_a_segment_too() -> None:
    segment = built()

    assert len(segment) == 0
    everything = chain(segment.by_id("a"), segment.received_by("ui", unread=True), segment.revived())
    assert list(everything) == []


@pytest.mark.parametrize(
    "damage", [lambda it: it[:-8], lambda it: it + b"\0" * 8, lambda it: b"x" + it[1:], lambda it: b""]
)
def test_bytes_that_are_no_whole_segment_are_refused(damage: Any) -> None:
    builder = SegmentBuilder(0)
    builder.add([message("a", to="ui")])
    content = builder.build([])

    with pytest.raises((ValueError, msgspec.DecodeError)):
        Segment(memoryview(damage(content)))


def test_only_what_a_segment_would_take_looks_like_a_message() -> None:
    assert looks_like_a_message(b'{"id":"a","strange":1e999}') == "a"
    assert looks_like_a_message(b'{"id":7}') is None
    assert looks_like_a_message(b"torn") is None
