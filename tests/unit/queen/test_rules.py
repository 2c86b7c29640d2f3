from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.queen.errors import IllegalMove, InvalidValue, LineTooLong, UnknownAgent
from queueyard.queen.records import LONGEST_LINE_BYTES, Assignment, AssignmentStatus, Message, Reservation
from queueyard.queen.rules import (
    Clash,
    check_agent,
    check_importance,
    check_line,
    check_period,
    clash_of,
    clashes,
    first_come,
    fold,
    holder_of,
    holds,
    moment_of,
    move_assignment,
    owner_of,
    subject_of_reply,
    surplus_holders,
    thread_of,
    with_owner,
)

if TYPE_CHECKING:
    from random import Random

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
# The spec's own example, less the answer in between.
SPEC_LINES = [
    {
        "id": "qm-01HZ1A",
        "created_at": "2024-12-14T10:30:00Z",
        "from": "queen",
        "to": "ui-engineer",
        "subject": "[qb-42] Assigned: Button component",
        "body": "You've been assigned...",
        "issue_id": "qb-42",
        "importance": "normal",
        "read": False,
    },
    {
        "id": "qm-01HZ1A",
        "created_at": "2024-12-14T10:36:00Z",
        "from": "queen",
        "to": "ui-engineer",
        "read": True,
        "read_at": "2024-12-14T10:36:00Z",
    },
]

fields = st.sampled_from(["to", "subject", "read", "created_at", "strange"])
lines = st.builds(
    lambda identifier, changes: {"id": identifier, **changes},
    st.sampled_from(["qm-1", "qm-2", "qm-3"]),
    st.dictionaries(fields, st.none() | st.integers(0, 3), max_size=4),
)


def folded(history: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    for line in history:
        records[line["id"]] = fold(records.get(line["id"]), line)
    return records


def field_by_field(history: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same by another road: for each field, the last line that names it, or the first for created_at."""
    records = {}
    for identifier in {line["id"]: None for line in history}:
        mine = [line for line in history if line["id"] == identifier]
        record = {"id": identifier}
        for name in {name: None for line in mine for name in line}:
            named = [line[name] for line in mine if name in line]
            if name == "created_at":
                named = [value for value in named if value is not None][:1]
            if named and named[-1] is not None:
                record[name] = named[-1]
        records[identifier] = record
    return records


@given(st.lists(lines))
def test_folding_line_by_line_is_merging_field_by_field(history: list[dict[str, Any]]) -> None:
    assert folded(history) == field_by_field(history)


@given(st.lists(lines), st.randoms(use_true_random=False))
def test_the_order_of_lines_of_different_records_does_not_matter(history: list[dict[str, Any]], chance: Random) -> None:
    queues = {identifier: [line for line in history if line["id"] == identifier] for identifier in folded(history)}

    shuffled = []
    while any(queues.values()):
        shuffled.append(queues[chance.choice([key for key, queue in queues.items() if queue])].pop(0))

    assert folded(shuffled) == folded(history)


@given(st.lists(lines))
def test_telling_the_last_line_again_changes_nothing(history: list[dict[str, Any]]) -> None:
    assert folded(history + history[-1:]) == folded(history)


@given(st.lists(lines, min_size=1))
def test_folding_leaves_what_it_was_given_as_it_was(history: list[dict[str, Any]]) -> None:
    before = [dict(line) for line in history]

    folded(history)

    assert history == before


def test_the_example_of_the_spec_folds_to_one_read_message_with_its_subject_and_first_time() -> None:
    record = folded(SPEC_LINES)["qm-01HZ1A"]

    assert record["subject"] == "[qb-42] Assigned: Button component"
    assert record["body"] == "You've been assigned..."
    assert record["created_at"] == "2024-12-14T10:30:00Z"
    assert record["read"] is True


def test_null_clears_a_field_for_good_until_somebody_names_it_again() -> None:
    history: list[dict[str, Any]] = [{"id": "qm-1", "read": True}, {"id": "qm-1", "read": None}]

    assert "read" not in folded(history)["qm-1"]
    assert folded([*history, {"id": "qm-1", "read": True}])["qm-1"]["read"] is True


@pytest.mark.parametrize(
    ("record", "owner"),
    [
        (Reservation(id="qr-1", agent="ui"), "ui"),
        (Reservation(id="qr-1", droid="ui"), "ui"),
        (Reservation(id="qr-1", agent="", droid="ui"), "ui"),
        (Reservation(id="qr-1", agent="ui", droid="old"), "ui"),
        (Assignment(id="qa-1"), ""),
    ],
)
def test_the_owner_is_the_agent_or_else_the_droid(record: Assignment | Reservation, owner: str) -> None:
    assert owner_of(record) == owner


def test_an_owner_is_written_under_both_names() -> None:
    assert with_owner("ui") == {"agent": "ui", "droid": "ui"}


def test_a_message_belongs_to_the_thread_that_it_names_or_starts_its_own() -> None:
    assert thread_of(Message(id="qm-2", thread_id="qm-1")) == "qm-1"
    assert thread_of(Message(id="qm-2", thread_id="issue:qb-42")) == "issue:qb-42"
    assert thread_of(Message(id="qm-2")) == "qm-2"
    assert thread_of(Message(id="qm-2", thread_id="")) == "qm-2"


def test_a_reply_says_re_once() -> None:
    assert subject_of_reply("Hello") == "Re: Hello"
    assert subject_of_reply("Re: Hello") == "Re: Hello"
    assert subject_of_reply("RE: Hello") == "RE: Hello"


@pytest.mark.parametrize("to", [status for status in AssignmentStatus if status is not AssignmentStatus.ACTIVE])
def test_an_active_assignment_can_end_in_three_ways(to: AssignmentStatus) -> None:
    assert move_assignment(Assignment(id="qa-1", issue_id="qb-1"), to) is to


@pytest.mark.parametrize("to", list(AssignmentStatus))
@pytest.mark.parametrize("ended", [status for status in AssignmentStatus if status is not AssignmentStatus.ACTIVE])
def test_an_assignment_that_has_ended_goes_nowhere(ended: AssignmentStatus, to: AssignmentStatus) -> None:
    with pytest.raises(IllegalMove, match="qb-1"):
        move_assignment(Assignment(id="qa-1", issue_id="qb-1", status=ended), to)


def test_of_two_active_assignments_of_an_issue_the_first_holds_it_and_the_other_is_surplus() -> None:
    ended = Assignment(id="qa-0", issue_id="qb-1", status=AssignmentStatus.COMPLETED)
    first = Assignment(id="qa-1", issue_id="qb-1", agent="ui")
    second = Assignment(id="qa-2", issue_id="qb-1", agent="api")
    other = Assignment(id="qa-3", issue_id="qb-2", agent="api")

    assert holder_of("qb-1", [ended, first, second, other]) is first
    assert holder_of("qb-3", [ended, first, second, other]) is None
    assert surplus_holders([ended, first, second, other]) == [second]


@pytest.mark.parametrize(
    ("reservation", "does"),
    [
        (Reservation(id="qr-1", expires_at="2026-01-01T12:00:01Z"), True),
        (Reservation(id="qr-1", expires_at="2026-01-01T12:00:00Z"), True),
        (Reservation(id="qr-1", expires_at="2026-01-01T11:59:59.999999Z"), False),
        (Reservation(id="qr-1", expires_at="2026-01-01T13:30:00+01:00"), True),
        (Reservation(id="qr-1", expires_at="2026-01-01T13:00:00", released_at="2026-01-01T11:00:00Z"), False),
        (Reservation(id="qr-1", expires_at="next week"), True),
        (Reservation(id="qr-1", expires_at=""), True),
    ],
)
def test_a_reservation_holds_until_its_end_unless_it_was_given_back(reservation: Reservation, does: bool) -> None:
    assert holds(reservation, NOW) is does


@pytest.mark.parametrize("status", ["expired", "released"])
def test_a_reservation_that_is_no_longer_active_does_not_hold(status: Any) -> None:
    assert not holds(Reservation(id="qr-1", expires_at="2027-01-01T00:00:00Z", status=status), NOW)


@pytest.mark.parametrize(
    ("exclusive", "other", "clash"),
    [
        (True, True, Clash.BLOCKS),
        (True, False, Clash.WARNS),
        (False, True, Clash.WARNS),
        (False, False, Clash.NONE),
    ],
)
def test_exclusive_blocks_exclusive_and_shared_is_only_told(exclusive: bool, other: bool, clash: Clash) -> None:
    held = Reservation(id="qr-1", pattern="src/**", agent="api", exclusive=other)

    found = clashes("src/a", [held], agent="ui", exclusive=exclusive)

    assert clash_of(exclusive=exclusive, other_exclusive=other) is clash
    assert [(one.pattern, one.held, one.clash) for one in found] == (
        [] if clash is Clash.NONE else [("src/a", held, clash)]
    )


def test_nobody_is_in_ones_own_way() -> None:
    mine = [Reservation(id="qr-1", agent="ui"), Reservation(id="qr-2", droid="ui")]

    assert clashes("src/a", mine, agent="ui", exclusive=True) == []


def test_who_came_first_has_the_right_and_then_the_smaller_name() -> None:
    early = Reservation(id="qr-2", agent="z", created_at="2026-01-01T00:00:00Z")
    late = Reservation(id="qr-1", agent="a", created_at="2026-01-01T00:00:00.5Z")
    twin = Reservation(id="qr-0", agent="zz", created_at="2026-01-01T00:00:00Z")

    assert first_come(late, early) == first_come(early, late) == (early, late)
    assert first_come(twin, early) == first_come(early, twin) == (early, twin)


def test_times_sort_by_what_they_mean_and_unreadable_ones_come_first() -> None:
    texts = ["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:00Z", "soon", "2026-01-01T00:30:00+01:00", ""]

    assert sorted(texts, key=moment_of) == ["soon", "", texts[3], texts[1], texts[0]]


@pytest.mark.parametrize("name", ["", " ", "a b", " ui", "ui\n", "\t", "a\x00b", "a\x1bb"])
def test_what_is_no_name_is_refused_even_where_there_are_no_droids(name: str) -> None:
    with pytest.raises(InvalidValue, match="not a droid name"):
        check_agent(name, None)


@pytest.mark.parametrize("name", ["ui-engineer", "human", "queen"])
def test_droids_and_the_two_that_are_always_there_are_known(name: str) -> None:
    assert check_agent(name, {"ui-engineer"}) == name


def test_every_plain_name_is_known_where_there_are_no_droids() -> None:
    assert check_agent("anybody", None) == "anybody"


@pytest.mark.parametrize(("typed", "meant"), [("ui-enginer", "ui-engineer"), ("ui", "ui-engineer"), ("humn", "human")])
def test_an_unknown_droid_is_refused_with_the_nearest_name(typed: str, meant: str) -> None:
    with pytest.raises(UnknownAgent, match=f"did you mean '{meant}'"):
        check_agent(typed, {"ui-engineer", "backend"})


def test_an_unknown_droid_like_no_other_is_refused_without_a_guess() -> None:
    with pytest.raises(UnknownAgent) as refusal:
        check_agent("zzz", {"ui-engineer"})

    assert "did you mean" not in str(refusal.value)


def test_an_importance_that_the_schema_does_not_know_is_refused() -> None:
    assert check_importance("urgent") == "urgent"
    with pytest.raises(InvalidValue, match="bogus") as refusal:
        check_importance("bogus")
    assert "low, normal, high, urgent" in (refusal.value.hint or "")


def test_a_line_may_be_as_long_as_other_tools_can_read_and_no_longer() -> None:
    longest = b"x" * LONGEST_LINE_BYTES

    assert check_line(longest, what="message") == longest
    with pytest.raises(LineTooLong, match="the message is 3 bytes too long"):
        check_line(longest + b"xyz", what="message")


def test_a_period_must_end_behind_its_start() -> None:
    assert check_period(NOW, NOW + timedelta(microseconds=1)) == ("2026-01-01T12:00:00Z", "2026-01-01T12:00:00.000001Z")
    for wrong in (timedelta(0), timedelta(seconds=-1)):
        with pytest.raises(InvalidValue):
            check_period(NOW, NOW + wrong)
