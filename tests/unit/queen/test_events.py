from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.events import Event, Kind, System
from queueyard.kernel.ids import ulid_time
from queueyard.queen.events import assignment_events, message_events, reservation_events
from queueyard.queen.records import decode
from queueyard.queen.store import ASSIGNMENTS, MESSAGES, RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from queueyard.kernel.testing import FakeClock
    from queueyard.queen import Queen
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

Line = dict[str, Any]

MESSAGE = {"id": "qm-1", "created_at": "2026-01-01T10:00:00Z", "from": "ui", "to": "api", "read": False}
ASSIGNMENT = {
    "id": "qa-1",
    "created_at": "2026-01-01T10:00:00Z",
    "updated_at": "2026-01-01T10:00:00Z",
    "issue_id": "qb-42",
    "agent": "ui",
    "droid": "ui",
    "assigned_by": "queen",
    "status": "active",
}
RESERVATION = {
    "id": "qr-1",
    "created_at": "2026-01-01T10:00:00Z",
    "expires_at": "2026-01-01T12:00:00Z",
    "pattern": "src/**",
    "agent": "ui",
    "droid": "ui",
    "status": "active",
    "exclusive": True,
}


def messages(*lines: Line) -> list[Event]:
    return list(message_events(lines, source="here"))


def assignments(*lines: Line) -> list[Event]:
    return list(assignment_events(lines, source="here"))


def reservations(*lines: Line) -> list[Event]:
    return list(reservation_events(lines, source="here"))


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind.value, event.at) for event in events]


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_is_queued_by_its_sender_read_by_its_recipient_and_deleted() -> None:
    events = messages(
        MESSAGE | {"issue_id": "qb-42", "importance": "high"},
        {"id": "qm-1", "read": True, "read_at": "2026-01-01T11:00:00Z"},
        {"id": "qm-1", "deleted": True, "deleted_at": "2026-01-01T12:00:00Z"},
    )

    assert told(events) == [
        ("queued", "2026-01-01T10:00:00Z"),
        ("read", "2026-01-01T11:00:00Z"),
        ("deleted", "2026-01-01T12:00:00Z"),
    ]
    assert [event.actor for event in events] == ["ui", "api", "ui"]
    assert {event.group for event in events} == {"qb-42"}
    assert {(event.system, event.source, event.queue, event.item) for event in events} == {
        (System.QUEEN, "here", "messages", "qm-1")
    }
    assert events[0].data == {"to": "api", "importance": "high"}


def test_a_message_without_issue_belongs_to_its_thread() -> None:
    assert messages(MESSAGE | {"thread_id": "qm-0"})[0].group == "qm-0"
    assert messages(MESSAGE)[0].group is None


def test_a_message_that_arrives_read_and_deleted_tells_all_of_it() -> None:
    events = messages(MESSAGE | {"read": True, "deleted": True})

    assert [event.kind for event in events] == [Kind.QUEUED, Kind.READ, Kind.DELETED]
    assert {event.at for event in events} == {"2026-01-01T10:00:00Z"}


# --- assignments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"), [("completed", "succeeded"), ("released", "released"), ("reassigned", "canceled")]
)
def test_an_assignment_is_started_and_ends_once(status: str, kind: str) -> None:
    end = ASSIGNMENT | {"status": status, "updated_at": "2026-01-01T11:00:00Z", "reason": "so it is"}

    events = assignments(ASSIGNMENT, end, end)

    assert told(events) == [("started", "2026-01-01T10:00:00Z"), (kind, "2026-01-01T11:00:00Z")]
    assert [(event.actor, event.group) for event in events] == [("ui", "qb-42")] * 2
    assert events[0].data == {"assigned_by": "queen"}
    assert events[1].reason == "so it is"


def test_who_had_it_before_is_told() -> None:
    assert assignments(ASSIGNMENT | {"previous_agent": "api"})[0].data == {"assigned_by": "queen", "previous": "api"}


def test_an_assignment_with_only_a_droid_has_an_actor() -> None:
    assert assignments({"id": "qa-1", "droid": "ui"})[0].actor == "ui"


# --- reservations ----------------------------------------------------------------------------------------------------


def test_a_reservation_is_started_renewed_and_released() -> None:
    events = reservations(
        RESERVATION,
        RESERVATION | {"expires_at": "2026-01-01T13:00:00Z", "renewed_at": "2026-01-01T11:00:00Z"},
        RESERVATION
        | {"expires_at": "2026-01-01T13:00:00Z", "status": "released", "released_at": "2026-01-01T11:30:00Z"},
    )

    assert told(events) == [
        ("started", "2026-01-01T10:00:00Z"),
        ("renewed", "2026-01-01T11:00:00Z"),
        ("released", "2026-01-01T11:30:00Z"),
    ]
    assert events[0].data == {"pattern": "src/**", "exclusive": True, "expires_at": "2026-01-01T12:00:00Z"}


def test_an_expiry_that_somebody_wrote_down_happened_at_its_end() -> None:
    assert told(reservations(RESERVATION, {"id": "qr-1", "status": "expired"}))[1:] == [
        ("expired", "2026-01-01T12:00:00Z")
    ]


def test_a_renewal_by_a_tool_that_does_not_say_when_is_told_at_the_start() -> None:
    events = reservations(RESERVATION, RESERVATION | {"expires_at": "2026-01-01T13:00:00Z"})

    assert told(events)[1:] == [("renewed", "2026-01-01T10:00:00Z")]


def test_two_renewals_are_two_events() -> None:
    renewals = [RESERVATION | {"expires_at": f"2026-01-01T{hour}:00:00Z"} for hour in (13, 14)]

    assert len({event.id for event in reservations(RESERVATION, *renewals)}) == 3


# --- whatever the lines are like -------------------------------------------------------------------------------------


def test_migrations_and_lines_that_do_not_fit_tell_nothing() -> None:
    assert messages({"_migration": "v2"}, {"id": "qm-1", "read": "yes"}, {"id": "qm-1", "to": 7}) == []
    assert [event.kind for event in messages({"id": "qm-1", "read": "yes"}, MESSAGE, MESSAGE | {"read": True})] == [
        Kind.QUEUED,
        Kind.READ,
    ]


def test_a_time_that_cannot_be_read_is_that_of_the_id_or_the_beginning_of_time() -> None:
    made = "01J00000000000000000000000"

    [known] = messages({"id": f"qm-{made}", "created_at": "yesterday"})
    [unknown] = messages({"id": "qm-1"})

    assert (ulid_time(known.id), known.at[:4]) == (ulid_time(made), "2024")
    assert unknown.at == "1970-01-01T00:00:00Z"


@st.composite
def histories(draw: st.DrawFn) -> dict[str, list[Line]]:
    """The lines of a few reservations, each as its tool would write them."""
    history: dict[str, list[Line]] = {}
    for number in range(draw(st.integers(1, 3))):
        record: Line = RESERVATION | {"id": f"qr-{number}"}
        lines = [record]
        for hour in range(13, 13 + draw(st.integers(0, 3))):
            renewed = draw(st.sampled_from([{}, {"renewed_at": f"2026-01-01T{hour - 2}:30:00Z"}]))
            lines.append(lines[-1] | {"expires_at": f"2026-01-01T{hour}:00:00Z"} | renewed)
        if draw(st.booleans()):
            lines.append(lines[-1] | {"status": "released", "released_at": "2026-01-01T17:00:00Z"})
        history[record["id"]] = lines
    return history


def shuffled(history: dict[str, list[Line]], chance: Random) -> list[Line]:
    """The lines of different records in any order, those of one record in their own."""
    queues = {identifier: list(lines) for identifier, lines in history.items()}
    mixed = []
    while any(queues.values()):
        mixed.append(queues[chance.choice([key for key, queue in queues.items() if queue])].pop(0))
    return mixed


def by_id(events: list[Event]) -> dict[str, Event]:
    return {event.id: event for event in events}


@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_lines_of_different_records_changes_no_event(
    history: dict[str, list[Line]], chance: Random
) -> None:
    straight = reservations(*(line for lines in history.values() for line in lines))

    mixed = reservations(*shuffled(history, chance))

    assert by_id(mixed) == by_id(straight)
    assert len(by_id(straight)) == len(straight)


@given(histories(), st.data())
def test_a_line_that_is_told_twice_adds_no_event(history: dict[str, list[Line]], data: st.DataObject) -> None:
    lines = [line for lines in history.values() for line in lines]
    once = reservations(*lines)
    repeated = [line for line in lines for _ in range(data.draw(st.integers(1, 3)))]

    assert reservations(*repeated) == once


@given(histories())
def test_a_file_that_git_brought_in_a_second_time_adds_no_event(history: dict[str, list[Line]]) -> None:
    lines = [line for lines in history.values() for line in lines]

    assert by_id(reservations(*lines, *lines)) == by_id(reservations(*lines))


@given(histories())
def test_reading_the_same_lines_again_gives_the_same_events(history: dict[str, list[Line]]) -> None:
    lines = [line for lines in history.values() for line in lines]

    assert reservations(*lines) == reservations(*lines)


def test_everything_that_queen_does_is_told_once_with_an_id_of_its_own(
    queen_of: Callable[[str], Queen], clock: FakeClock, home: Home, write: Writer
) -> None:
    write("issues.jsonl", {"id": "qb-1"})
    ui, api = queen_of("ui"), queen_of("api")
    [sent] = ui.send("api", "text")
    clock.advance(60)
    api.read(sent.id)
    ui.delete(sent.id)
    ui.claim("qb-1")
    api.claim("qb-1", take=True)
    api.complete("qb-1")
    ui.reserve(["src/**"])
    clock.advance(60)
    ui.renew()
    ui.unreserve()

    def lines(name: str) -> list[Line]:
        return [decode(line) for line in (home.beads / name).read_bytes().splitlines()]

    everything = [
        *messages(*lines(MESSAGES)),
        *assignments(*lines(ASSIGNMENTS)),
        *reservations(*lines(RESERVATIONS)),
    ]

    assert [event.kind.value for event in everything] == [
        *("queued", "read", "deleted"),
        *("started", "canceled", "started", "succeeded"),
        *("started", "renewed", "released"),
    ]
    assert len(by_id(everything)) == len(everything)
