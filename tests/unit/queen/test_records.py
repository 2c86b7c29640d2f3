from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.queen.records import (
    Assignment,
    AssignmentStatus,
    Message,
    Reservation,
    ReservationStatus,
    decode,
    decode_record,
    encode,
    fits,
    is_migration,
    to_raw,
    view,
    view_or_none,
)

FULL_MESSAGE = {
    "id": "qm-1",
    "created_at": "2024-12-14T10:30:00Z",
    "from": "queen",
    "to": "ui",
    "subject": "Hello",
    "body": "text",
    "issue_id": "qb-42",
    "reply_to": "qm-0",
    "thread_id": "qm-0",
    "importance": "high",
    "read": True,
    "read_at": "2024-12-14T10:36:00Z",
    "deleted": True,
    "deleted_at": "2024-12-14T10:37:00Z",
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
records = st.builds(
    lambda rest, identifier: {**rest, "id": identifier},
    st.dictionaries(st.text(min_size=1, max_size=12), json_values, max_size=6),
    st.text(min_size=1, max_size=12),
)


@given(records)
def test_a_record_reads_back_as_it_was_written(raw: dict[str, Any]) -> None:
    assert decode(encode(raw)) == raw


@given(records)
def test_a_record_is_one_line(raw: dict[str, Any]) -> None:
    assert b"\n" not in encode(raw)


def test_known_keys_come_first_in_the_order_of_the_schema_and_others_behind_them_as_they_came() -> None:
    raw = {"z": 1, "body": "b", "a": 2, "to": "ui", "id": "qm-1", "from": "queen", "created_at": "now"}

    written = encode(raw)

    assert list(decode(written)) == ["id", "created_at", "from", "to", "body", "z", "a"]


@pytest.mark.parametrize(
    "line",
    [b"", b"null", b"[]", b'"text"', b"{}", b'{"id":""}', b'{"id":7}', b'{"id":null}', b'{"id":"x"', b"\xff", b"{"],
)
def test_what_is_no_object_with_an_id_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, msgspec.DecodeError)):
        decode(line)


def test_a_migration_needs_no_id() -> None:
    raw = decode(b'{"_migration":"v1_to_v2","at":"2024-12-14T10:00:00Z"}')

    assert is_migration(raw)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Message, b'{"id":"qm-1","to":7}'),
        (Message, b'{"id":"qm-1","read":"yes"}'),
        (Message, b'{"id":"qm-1","created_at":7}'),
        (Assignment, b'{"id":"qa-1","status":"lost"}'),
        (Reservation, b'{"id":"qr-1","exclusive":1}'),
    ],
)
def test_a_line_with_a_value_of_the_wrong_type_does_not_fit(
    kind: type[Message | Assignment | Reservation], line: bytes
) -> None:
    assert not fits(decode(line), kind)
    with pytest.raises(msgspec.ValidationError):
        decode_record(line, kind)


def test_null_fits_everywhere_but_as_an_id() -> None:
    line = {"id": "qm-1", **dict.fromkeys(FULL_MESSAGE.keys() - {"id"})}

    assert fits(line, Message)
    assert decode_record(encode(line), Message) == line


def test_a_migration_fits_everywhere() -> None:
    assert is_migration(decode_record(b'{"_migration":"v1","status":"lost","to":7}', Message))


def test_every_field_of_a_message_is_seen_under_its_name() -> None:
    message = view(FULL_MESSAGE, Message)

    assert (message.sender, message.to, message.issue_id, message.reply_to) == ("queen", "ui", "qb-42", "qm-0")
    assert (message.read, message.deleted, message.importance) == (True, True, "high")
    assert to_raw(message) == FULL_MESSAGE


def test_missing_fields_take_the_defaults_of_the_schema() -> None:
    assert view({"id": "qm-1"}, Message) == Message(id="qm-1", importance="normal", read=False, deleted=False)
    assert view({"id": "qa-1"}, Assignment).status is AssignmentStatus.ACTIVE
    assert view({"id": "qr-1"}, Reservation).status is ReservationStatus.ACTIVE
    assert view({"id": "qr-1"}, Reservation).exclusive


def test_a_record_that_fits_no_shape_has_no_view() -> None:
    assert view_or_none({"id": "qr-1", "status": "sleeping"}, Reservation) is None
    assert view_or_none({"id": "qr-1", "status": "expired"}, Reservation) is not None


def test_what_is_not_there_is_not_told() -> None:
    class Answer(msgspec.Struct):
        messages: list[Message]
        nothing: None = None

    told = to_raw(Answer(messages=[Message(id="qm-1", to="ui")]))

    assert told["messages"][0].keys() == {
        "id",
        "created_at",
        "from",
        "to",
        "subject",
        "body",
        "importance",
        "read",
        "deleted",
    }
    assert told.keys() == {"messages"}
