from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest

from queueyard.queen import messages
from queueyard.queen.errors import InvalidValue, LineTooLong, NotYours, UnknownAgent, UnknownRecord
from queueyard.queen.records import LONGEST_LINE_BYTES, Message
from queueyard.queen.store import ARCHIVE, MESSAGES, Store

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer


def send(store: Store, clock: FakeClock, sender: str, to: str, body: str = "text", **options: Any) -> Message:
    """One message, a second after the one before."""
    clock.advance(1)
    [message] = messages.send(store, clock, sender=sender, to=to, body=body, **options)
    return message


def droids(home: Home, *names: str) -> None:
    home.droids.mkdir(parents=True)
    for name in names:
        (home.droids / f"{name}.md").touch()


def written(home: Home) -> int:
    """How many lines the file has."""
    return (home.beads / MESSAGES).read_bytes().count(b"\n")


def ids(found: list[Message]) -> list[str]:
    return [message.id for message in found]


# --- send ------------------------------------------------------------------------------------------------------------


def test_what_was_sent_is_in_the_inbox_of_the_one_and_in_the_list_of_the_other(store: Store, clock: FakeClock) -> None:
    sent = send(store, clock, "ui", "api", "How is it going?", subject="Hello", importance="high")

    assert messages.inbox(store, agent="api") == messages.sent(store, agent="ui") == [sent]
    assert messages.inbox(store, agent="ui") == messages.sent(store, agent="api") == []
    assert (sent.subject, sent.body, sent.importance, sent.read) == ("Hello", "How is it going?", "high", False)
    assert sent.created_at == "2026-01-01T00:00:01Z"
    assert sent.id.startswith("qm-")


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({}, "Message from ui"),
        ({"issue": "qb-42"}, "[qb-42]"),
        ({"issue": "qb-42", "subject": "Button"}, "Button"),
        ({"subject": "two\n lines "}, "two lines"),
    ],
)
def test_a_message_has_a_subject_of_one_line(
    store: Store, clock: FakeClock, options: dict[str, str], subject: str
) -> None:
    assert send(store, clock, "ui", "api", **options).subject == subject


def test_a_message_to_all_goes_to_every_droid_but_the_sender(store: Store, clock: FakeClock, home: Home) -> None:
    droids(home, "ui", "api", "docs")

    sent = messages.send(store, clock, sender="ui", to="@all", body="text")

    assert [message.to for message in sent] == ["api", "docs"]
    assert len({message.id for message in sent}) == 2


def test_a_message_to_all_goes_to_everybody_ever_heard_of_where_there_are_no_droids(
    store: Store, clock: FakeClock
) -> None:
    send(store, clock, "ui", "api")
    send(store, clock, "docs", "human")

    sent = messages.send(store, clock, sender="ui", to="@all", body="text")

    assert [message.to for message in sent] == ["api", "docs", "human"]


def test_a_message_to_all_needs_somebody_else(store: Store, clock: FakeClock) -> None:
    with pytest.raises(UnknownAgent, match="nobody else"):
        messages.send(store, clock, sender="ui", to="@all", body="text")


@pytest.mark.parametrize(("sender", "to"), [("ui", "apo"), ("u", "api"), ("ui", ""), ("ui", "a b")])
def test_a_message_from_or_to_nobody_known_is_refused(
    store: Store, clock: FakeClock, home: Home, sender: str, to: str
) -> None:
    droids(home, "ui", "api")

    with pytest.raises((UnknownAgent, InvalidValue)):
        messages.send(store, clock, sender=sender, to=to, body="text")

    assert not (home.beads / MESSAGES).exists()


def test_what_the_schema_does_not_allow_is_not_sent(store: Store, clock: FakeClock, home: Home) -> None:
    with pytest.raises(InvalidValue):
        send(store, clock, "ui", "api", importance="bogus")
    with pytest.raises(LineTooLong):
        send(store, clock, "ui", "api", "x" * LONGEST_LINE_BYTES)
    with pytest.raises(UnknownRecord):
        send(store, clock, "ui", "api", reply_to="qm-nothing")
    with pytest.raises(InvalidValue):
        send(store, clock, "ui", "api", "\ud800")

    assert not (home.beads / MESSAGES).exists()


# --- reply -----------------------------------------------------------------------------------------------------------


def test_a_reply_goes_back_with_issue_importance_and_thread(store: Store, clock: FakeClock) -> None:
    first = send(store, clock, "ui", "api", subject="Button", issue="qb-42", importance="urgent")

    answer = messages.reply(store, clock, sender="api", identifier=first.id, body="Done")

    assert (answer.sender, answer.to, answer.subject) == ("api", "ui", "Re: Button")
    assert (answer.issue_id, answer.importance) == ("qb-42", "urgent")
    assert (answer.reply_to, answer.thread_id) == (first.id, first.id)


def test_a_reply_to_a_reply_stays_in_the_thread_of_the_first(store: Store, clock: FakeClock) -> None:
    first = send(store, clock, "ui", "api")
    second = messages.reply(store, clock, sender="api", identifier=first.id, body="2")

    third = messages.reply(store, clock, sender="ui", identifier=second.id, body="3")

    assert (third.thread_id, third.reply_to, third.to, third.subject) == (first.id, second.id, "api", second.subject)


def test_answering_oneself_goes_to_the_other_side(store: Store, clock: FakeClock) -> None:
    first = send(store, clock, "ui", "api")

    assert messages.reply(store, clock, sender="ui", identifier=first.id, body="also").to == "api"


def test_a_reply_to_a_message_with_an_odd_importance_is_normal(store: Store, clock: FakeClock, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1", "from": "ui", "to": "api", "importance": "odd"})

    assert messages.reply(store, clock, sender="api", identifier="qm-1", body="x").importance == "normal"


# --- inbox -----------------------------------------------------------------------------------------------------------


def test_the_inbox_is_newest_first_limited_and_filtered(store: Store, clock: FakeClock) -> None:
    sent = [send(store, clock, "ui", "api", str(number)) for number in range(6)]
    messages.read(store, clock, identifier=sent[4].id, agent="api")
    newest_first = ids(sent)[::-1]

    assert ids(messages.inbox(store, agent="api", limit=2)) == newest_first[:2]
    assert ids(messages.inbox(store, agent="api", limit=0)) == newest_first
    assert ids(messages.inbox(store, agent="api", unread=True)) == [newest_first[0], *newest_first[2:]]
    since = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=4)
    assert ids(messages.inbox(store, agent="api", since=since)) == newest_first[:3]
    with pytest.raises(InvalidValue, match="negative"):
        messages.inbox(store, agent="api", limit=-1)


def test_a_message_that_was_sent_on_to_somebody_else_is_in_the_new_inbox_only(store: Store, write: Writer) -> None:
    write(MESSAGES, {"id": "qm-1", "from": "ui", "to": "api"}, {"id": "qm-1", "to": "docs"})

    assert messages.inbox(store, agent="api") == []
    assert ids(messages.inbox(store, agent="docs")) == ["qm-1"]


def test_listing_marks_nothing(store: Store, clock: FakeClock, home: Home) -> None:
    send(store, clock, "ui", "api")

    messages.inbox(store, agent="api")

    assert written(home) == 1


def test_a_message_with_a_line_that_does_not_fit_is_still_there(store: Store, clock: FakeClock, write: Writer) -> None:
    sent = send(store, clock, "ui", "api")
    write(MESSAGES, {"id": sent.id, "read": "yes"}, {"id": sent.id, "subject": 7})

    assert messages.inbox(store, agent="api", unread=True) == [sent]
    assert messages.stats(store).total == 1
    assert ids(messages.search(store, "text")) == [sent.id]


# --- read ------------------------------------------------------------------------------------------------------------


def test_reading_marks_once(store: Store, clock: FakeClock, home: Home) -> None:
    sent = send(store, clock, "ui", "api")
    clock.advance(1)

    first = messages.read(store, clock, identifier=sent.id, agent="api")
    clock.advance(1)
    second = messages.read(store, clock, identifier=sent.id, agent="api")

    assert (first.read, first.read_at) == (True, "2026-01-01T00:00:02Z")
    assert second == first
    assert written(home) == 2


@pytest.mark.parametrize(
    ("agent", "peek", "marks"), [("api", False, True), (None, False, True), ("api", True, False), ("ui", False, False)]
)
def test_only_the_recipient_or_somebody_unknown_marks_and_never_a_peek(
    store: Store, clock: FakeClock, agent: str | None, peek: bool, marks: bool
) -> None:
    sent = send(store, clock, "ui", "api")

    seen = messages.read(store, clock, identifier=sent.id, agent=agent, peek=peek)

    assert seen.read is marks
    assert bool(messages.inbox(store, agent="api", unread=True)) is not marks


def test_an_update_keeps_the_keys_of_other_tools(store: Store, clock: FakeClock, write: Writer) -> None:
    write(
        MESSAGES, {"id": "qm-1", "from": "ui", "to": "api", "their": {"own": [1]}, "created_at": "2026-01-01T00:00:00Z"}
    )

    messages.read(store, clock, identifier="qm-1", agent="api")
    messages.delete(store, clock, identifiers=["qm-1"], agent="api")

    raw = store.messages(lambda index: index.get("qm-1"))
    assert raw is not None
    assert raw["their"] == {"own": [1]}
    assert (raw["read"], raw["deleted"], raw["created_at"]) == (True, True, "2026-01-01T00:00:00Z")


def test_the_longest_message_can_be_read_and_deleted(store: Store, clock: FakeClock, home: Home) -> None:
    send(store, clock, "ui", "docs", "")
    overhead = (home.beads / MESSAGES).stat().st_size
    sent = send(store, clock, "ui", "api", "x" * (LONGEST_LINE_BYTES - overhead))

    messages.read(store, clock, identifier=sent.id, agent="api")

    seen = messages.inbox(store, agent="api")
    assert [(message.read, len(message.body)) for message in seen] == [(True, LONGEST_LINE_BYTES - overhead)]
    messages.delete(store, clock, identifiers=[sent.id], agent="api")
    assert messages.inbox(store, agent="api") == []
    assert max(map(len, (home.beads / MESSAGES).read_bytes().split(b"\n"))) <= LONGEST_LINE_BYTES


def test_a_message_that_is_gone_by_now_is_not_marked(store: Store, clock: FakeClock, home: Home) -> None:
    sent = send(store, clock, "ui", "api")
    (home.beads / MESSAGES).write_bytes(b"")

    with pytest.raises(UnknownRecord, match="any more"):
        messages.mark_read(store, clock, [sent])

    assert (home.beads / MESSAGES).read_bytes() == b""


def test_many_are_marked_with_one_write(store: Store, clock: FakeClock) -> None:
    sent = [send(store, clock, "ui", "api", str(number)) for number in range(3)]
    read_before = messages.read(store, clock, identifier=sent[0].id, agent="api")

    marked = messages.mark_read(store, clock, messages.inbox(store, agent="api"))

    assert all(message.read for message in marked)
    assert marked[-1] == read_before
    assert ids(marked) == ids(sent)[::-1]


# --- find ------------------------------------------------------------------------------------------------------------


def test_a_message_is_found_by_as_much_of_its_id_as_is_needed(store: Store, clock: FakeClock) -> None:
    sent = send(store, clock, "ui", "api")
    body = sent.id.removeprefix("qm-")

    for typed in (sent.id, body, sent.id.lower(), body[:24], sent.id[-6:]):
        assert messages.find(store, typed, near="api").id == sent.id
    assert messages.find(store, sent.id, near=None).id == sent.id
    with pytest.raises(UnknownRecord):
        messages.find(store, body, near=None)


def test_what_may_be_several_messages_is_refused(store: Store, write: Writer) -> None:
    write(MESSAGES, *({"id": f"qm-A{number}", "to": "api"} for number in range(3)))

    with pytest.raises(UnknownRecord, match="may be 3 messages"):
        messages.find(store, "qm-A", near="api")


@pytest.mark.parametrize("typed", ["", "qm-404", "\udcff"])
def test_what_is_no_message_is_not_found(store: Store, clock: FakeClock, typed: str) -> None:
    send(store, clock, "ui", "api")

    with pytest.raises(UnknownRecord, match="no message"):
        messages.find(store, typed, near="api")


# --- delete ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["ui", "api"])
def test_sender_and_recipient_may_delete(store: Store, clock: FakeClock, agent: str) -> None:
    sent = send(store, clock, "ui", "api")

    [gone] = messages.delete(store, clock, identifiers=[sent.id], agent=agent)

    assert gone.deleted
    assert messages.inbox(store, agent="api") == messages.sent(store, agent="ui") == []
    assert messages.stats(store).total == 0
    with pytest.raises(UnknownRecord):
        messages.find(store, sent.id, near="api")


def test_nobody_else_may_delete_and_then_nothing_is_deleted(store: Store, clock: FakeClock) -> None:
    mine, theirs = send(store, clock, "docs", "api"), send(store, clock, "ui", "api")

    with pytest.raises(NotYours):
        messages.delete(store, clock, identifiers=[mine.id, theirs.id], agent="docs")

    assert len(messages.inbox(store, agent="api")) == 2


# --- thread ----------------------------------------------------------------------------------------------------------


def test_a_thread_is_found_by_any_of_its_messages_and_told_oldest_first(store: Store, clock: FakeClock) -> None:
    first = send(store, clock, "ui", "api")
    clock.advance(1)
    second = messages.reply(store, clock, sender="api", identifier=first.id, body="2")
    clock.advance(1)
    third = messages.reply(store, clock, sender="ui", identifier=second.id, body="3")
    send(store, clock, "ui", "api", "another")

    for key in (first.id, second.id, third.id):
        assert ids(messages.thread(store, key)) == [first.id, second.id, third.id]


def test_a_thread_is_found_by_its_issue_in_both_forms(store: Store, clock: FakeClock, write: Writer) -> None:
    ours = send(store, clock, "ui", "api", issue="qb-42")
    answer = messages.reply(store, clock, sender="api", identifier=ours.id, body="2")
    write(
        MESSAGES,
        {"id": "qm-T", "from": "ui", "to": "api", "thread_id": "issue:qb-42", "created_at": "2026-01-02T00:00:00Z"},
    )

    for key in ("qb-42", "issue:qb-42", "qm-T"):
        assert ids(messages.thread(store, key)) == [ours.id, answer.id, "qm-T"]


def test_a_thread_is_in_the_order_of_time_not_of_text(store: Store, write: Writer) -> None:
    common = {"from": "ui", "to": "api", "thread_id": "qm-1"}
    write(
        MESSAGES,
        {"id": "qm-2", "created_at": "2026-01-01T00:00:00.5Z", **common},
        {"id": "qm-1", "created_at": "2026-01-01T00:00:00Z", **common},
        {"id": "qm-3", "created_at": "2026-01-01T02:00:00+01:00", **common},
    )

    assert ids(messages.thread(store, "qm-1")) == ["qm-1", "qm-2", "qm-3"]


def test_deleted_messages_are_not_part_of_a_thread(store: Store, clock: FakeClock) -> None:
    first = send(store, clock, "ui", "api")
    second = messages.reply(store, clock, sender="api", identifier=first.id, body="2")

    messages.delete(store, clock, identifiers=[first.id], agent="ui")

    assert ids(messages.thread(store, second.id)) == [second.id]


def test_a_thread_that_nobody_started_is_not_found(store: Store) -> None:
    with pytest.raises(UnknownRecord):
        messages.thread(store, "qb-404")


# --- stats and search ------------------------------------------------------------------------------------------------


def test_stats_count_what_is_not_deleted(store: Store, clock: FakeClock, write: Writer) -> None:
    first = send(store, clock, "ui", "api", importance="high")
    send(store, clock, "ui", "docs")
    third = send(store, clock, "docs", "api")
    messages.read(store, clock, identifier=first.id, agent="api")
    messages.delete(store, clock, identifiers=[third.id], agent="docs")
    write(MESSAGES, {"_migration": "v2"}, b"no json\n")

    everything = messages.stats(store)
    recent = messages.stats(store, since=datetime(2026, 1, 1, 0, 0, 2, tzinfo=UTC))

    assert (everything.total, everything.unread) == (2, 1)
    assert everything.by_agent == {"api": 1, "docs": 1}
    assert everything.by_sender == {"ui": 2}
    assert everything.by_importance == {"high": 1, "normal": 1}
    assert (everything.since, everything.since_total) == (None, None)
    assert (recent.since, recent.since_total, recent.since_unread) == ("2026-01-01T00:00:02Z", 1, 1)


def test_a_search_looks_into_subject_and_body_in_any_case_newest_first(store: Store, clock: FakeClock) -> None:
    by_body = send(store, clock, "ui", "api", "the BUTTON is red")
    by_subject = send(store, clock, "docs", "api", subject="Button")
    send(store, clock, "ui", "api", "nothing")
    gone = send(store, clock, "ui", "api", "button")
    messages.delete(store, clock, identifiers=[gone.id], agent="ui")

    assert ids(messages.search(store, "button")) == [by_subject.id, by_body.id]
    assert ids(messages.search(store, "button", limit=1)) == [by_subject.id]
    assert ids(messages.search(store, "button", agent="ui")) == [by_body.id]
    with pytest.raises(InvalidValue):
        messages.search(store, "  ")


def test_a_search_finds_archived_messages_folded(store: Store, home: Home, write: Writer) -> None:
    (home.beads / ARCHIVE).mkdir()
    write(
        f"{ARCHIVE}/queen_messages-2026-01-01.jsonl",
        {"id": "qm-1", "from": "ui", "to": "api", "body": "button", "created_at": "2025-01-01T00:00:00Z"},
        {"id": "qm-1", "read": True},
        {"id": "qm-2", "from": "ui", "to": "api", "body": "button", "created_at": "2025-01-02T00:00:00Z"},
    )
    write(MESSAGES, {"id": "qm-2", "deleted": True})

    [found] = messages.search(store, "button")

    assert (found.id, found.body, found.read) == ("qm-1", "button", True)


@given(
    history=st.lists(
        st.tuples(st.sampled_from(["ui", "api", "docs"]), st.sampled_from(["ui", "api", "docs"]), st.booleans()),
        max_size=8,
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
def test_inbox_sent_and_stats_tell_the_same_story(
    store: Store, clock: FakeClock, home: Home, history: list[tuple[str, str, bool]]
) -> None:
    (home.beads / MESSAGES).unlink(missing_ok=True)
    for sender, to, is_read in history:
        message = send(store, clock, sender, to)
        if is_read:
            messages.read(store, clock, identifier=message.id, agent=to)

    told = messages.stats(store)
    agents = ("ui", "api", "docs")
    inboxes = {agent: messages.inbox(store, agent=agent, limit=0) for agent in agents}
    unread = {agent: messages.inbox(store, agent=agent, unread=True, limit=0) for agent in agents}

    assert told.total == len(history) == sum(map(len, inboxes.values()))
    assert told.unread == sum(map(len, unread.values())) == sum(not is_read for *_, is_read in history)
    assert told.by_sender == {agent: n for agent in agents if (n := len(messages.sent(store, agent=agent, limit=0)))}
    assert {agent: [one for one in found if not one.read] for agent, found in inboxes.items()} == unread
