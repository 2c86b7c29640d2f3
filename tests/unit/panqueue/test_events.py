"""Entries of the stream as shared events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueyard.kernel.events import Kind, System
from queueyard.panqueue.events import event_from, events_from


def test_an_entry_tells_everything_that_it_holds() -> None:
    fields = {"kind": "failed", "item": "j1", "attempt": "3", "actor": "w1", "reason": "boom", "group": "k"}

    event = event_from("1700000000123-4", fields, source="here", queue="emails")

    assert event is not None
    assert (event.system, event.kind, event.item, event.attempt) == (System.PANQUEUE, Kind.FAILED, "j1", 3)
    assert (event.at, event.actor, event.reason, event.group) == ("2023-11-14T22:13:20.123Z", "w1", "boom", "k")


def test_reading_twice_gives_the_same_id_and_another_entry_another() -> None:
    def read(entry: str) -> str:
        event = event_from(entry, {"kind": "queued", "item": "j"}, source="s", queue="q")
        assert event is not None
        return event.id

    assert read("5-0") == read("5-0")
    assert read("5-0") != read("5-1")


@given(st.text(max_size=20), st.dictionaries(st.text(max_size=8), st.text(max_size=8)))
def test_what_is_none_of_ours_is_left_out_and_never_raises(entry: str, fields: dict[str, str]) -> None:
    event = event_from(entry, fields, source="s", queue="q")

    assert event is None or event.queue == "q"


def test_a_page_of_entries_is_read_in_its_order() -> None:
    page = [[b"1-0", [b"kind", b"queued", b"item", b"a"]], [b"2-0", [b"what", b"?"]], [b"3-0", [b"kind", b"started"]]]

    assert [(entry, event.kind) for entry, event in events_from(page, source="s", queue="q")] == [
        ("1-0", Kind.QUEUED),
        ("3-0", Kind.STARTED),
    ]
