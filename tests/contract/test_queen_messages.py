"""Messages: the record on disk, threads, the inbox, and every rule of the schema about them."""

from __future__ import annotations

from datetime import timedelta
import json
import re
from typing import TYPE_CHECKING

import pytest
from ulid import ULID

from queueyard.kernel.clock import from_rfc3339
from scripts import finish

if TYPE_CHECKING:
    from contract.conftest import Record, Repo

FILE = "queen_messages.jsonl"
MESSAGE_ID = re.compile(r"qm-[0-7][0-9A-HJKMNP-TV-Z]{25}")
RFC3339_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")


def ids(messages: list[Record]) -> list[str]:
    return [message["id"] for message in messages]


class TestTheRecord:
    """spec: Message Record."""

    def test_every_field_that_was_given_stands_in_one_compact_line(self, repo: Repo) -> None:
        """spec: Message Record; File Locations; ID Generation; CLI Mapping, `queen msg send`."""
        shown = repo.json(
            *("msg", "send", "ui-engineer", "Is <b> & “ü”", "ready?"),
            *("--issue", "qb-42", "--subject", "Button\ncomponent", "--importance", "high"),
            agent="queen",
        )

        [line] = repo.lines(FILE)
        [record] = repo.records(FILE)
        assert line.decode() == json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        assert MESSAGE_ID.fullmatch(record.pop("id"))
        assert RFC3339_Z.fullmatch(record.pop("created_at"))
        assert record == {
            "from": "queen",
            "to": "ui-engineer",
            "subject": "Button component",
            "body": "Is <b> & “ü” ready?",
            "issue_id": "qb-42",
            "importance": "high",
            "read": False,
        }
        assert shown.items() >= record.items()

    def test_what_was_not_given_takes_its_default_or_is_left_out(self, repo: Repo) -> None:
        """spec: Message Record; optional fields may be missing."""
        repo.json("msg", "send", "b", "hello", agent="a")
        repo.json("msg", "send", "b", "--issue", "qb-1", agent="a")

        plain, about = repo.records(FILE)
        assert list(plain) == ["id", "created_at", "from", "to", "subject", "body", "importance", "read"]
        assert (plain["subject"], plain["importance"], plain["read"]) == ("Message from a", "normal", False)
        assert (about["subject"], about["body"], about["issue_id"]) == ("[qb-1]", "", "qb-1")

    def test_ids_sort_by_time_and_tell_it(self, repo: Repo) -> None:
        """spec: ID Generation, "Lexicographically sortable (time-ordered)"."""
        repo.droids("a", "b", "c", "d")
        repo.json("msg", "send", "@all", "one", agent="a")
        repo.json("msg", "send", "@all", "two", agent="a")

        records = repo.records(FILE)
        assert len(records) == 6
        assert ids(records) == sorted(set(ids(records)))
        for record in records:
            made = ULID.from_str(record["id"].removeprefix("qm-")).datetime
            assert abs(made - from_rfc3339(record["created_at"])) < timedelta(minutes=1)

    def test_a_single_dash_reads_the_body_from_stdin(self, repo: Repo) -> None:
        repo.json("msg", "send", "b", "-", agent="a", stdin="# Title\n\nzwölf\n")
        [first] = repo.records(FILE)
        repo.json("msg", "reply", first["id"], "-", agent="b", stdin="dreizehn\n")

        assert [record["body"] for record in repo.records(FILE)] == ["# Title\n\nzwölf", "dreizehn"]

    def test_importance_is_one_of_four_words(self, repo: Repo) -> None:
        """spec: Message Record, importance."""
        for word in ("low", "normal", "high", "urgent"):
            repo.json("msg", "send", "b", "x", "-i", word, agent="a")

        told = repo.refused("msg", "send", "b", "x", "-i", "bogus", agent="a")

        assert [record["importance"] for record in repo.records(FILE)] == ["low", "normal", "high", "urgent"]
        assert told["kind"] == "InvalidValue"
        assert "low, normal, high, urgent" in told["hint"]

    def test_an_id_may_be_typed_in_lower_case_or_by_its_end(self, repo: Repo) -> None:
        """spec: ID Generation, "Case-insensitive"."""
        sent = repo.json("msg", "send", "b", "x", agent="a")["id"]

        assert repo.json("msg", "read", sent.lower(), "--peek", agent="b")["id"] == sent
        assert repo.json("msg", "read", sent[-8:], "--peek", agent="b")["id"] == sent


class TestReading:
    """spec: Message Record, read and read_at; ADR 15."""

    def test_reading_appends_the_whole_record_again_as_read_and_only_once(self, repo: Repo) -> None:
        """spec: Append-Only Semantics 2; CLI Mapping, `queen msg read`."""
        sent = repo.json("msg", "send", "b", "hello", "--issue", "qb-1", agent="a")

        shown = repo.json("msg", "read", sent["id"], agent="b")
        repo.json("msg", "read", sent["id"], agent="b")

        created, updated = repo.records(FILE)
        assert RFC3339_Z.fullmatch(updated["read_at"])
        assert updated == created | {"read": True, "read_at": updated["read_at"]}
        assert (shown["read"], shown["read_at"], shown["body"]) == (True, updated["read_at"], "hello")

    def test_peeking_and_somebody_else_reading_mark_nothing(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1"))
        before = repo.lines(FILE)

        assert repo.json("msg", "read", "qm-1", "--peek", agent="b")["body"] == "text of qm-1"
        assert repo.json("msg", "read", "qm-1", agent="c")["body"] == "text of qm-1"

        assert repo.lines(FILE) == before

    def test_whoever_does_not_say_who_they_are_marks_it_read(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1"))

        assert repo.json("msg", "read", "qm-1")["read"] is True

    def test_people_see_who_when_what_and_the_text(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1", issue_id="qb-1", importance="urgent", body="line 1\nline 2"))

        shown = repo.queen("msg", "read", "qm-1", agent="b").stdout

        assert shown.endswith("\n\nline 1\nline 2\n")
        for told in ("From: a", "To: b", "Subject: about qm-1", "Issue: qb-1", "Importance: urgent", "Id: qm-1"):
            assert told in shown

    def test_no_such_message(self, repo: Repo) -> None:
        told = repo.refused("msg", "read", "qm-none", agent="b")

        assert (told["kind"], told["error"]) == ("UnknownRecord", "no message 'qm-none'")


class TestThreads:
    """spec: Message Record, Threading."""

    def test_a_reply_names_its_parent_and_the_first_message_as_its_thread(self, repo: Repo) -> None:
        """spec: Message Record, Threading; Validation Rules, Messages 5; CLI Mapping, `queen msg reply`."""
        repo.write(FILE, repo.message("qm-root", subject="plan", issue_id="qb-1", importance="high"))

        first = repo.json("msg", "reply", "qm-root", "yes", agent="b")
        second = repo.json("msg", "reply", first["id"], "good", agent="a")

        _, one, two = repo.records(FILE)
        assert (one["from"], one["to"], one["subject"], one["body"]) == ("b", "a", "Re: plan", "yes")
        assert (one["reply_to"], one["thread_id"]) == ("qm-root", "qm-root")
        assert (one["issue_id"], one["importance"], one["read"]) == ("qb-1", "high", False)
        assert (two["from"], two["to"], two["subject"]) == ("a", "b", "Re: plan")
        assert (two["reply_to"], two["thread_id"], two["id"]) == (first["id"], "qm-root", second["id"])

    def test_an_answer_to_oneself_goes_to_the_other_side(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1"))

        assert repo.json("msg", "reply", "qm-1", "and another thing", agent="a")["to"] == "b"

    @pytest.mark.parametrize("key", ["qm-1", "qm-3", "qb-1", "issue:qb-1"])
    @pytest.mark.parametrize("form", ["qm-1", "issue:qb-1"])
    def test_a_thread_is_found_by_any_message_and_by_issue_in_both_forms(self, repo: Repo, form: str, key: str) -> None:
        """spec: Message Record, thread_id; the public tool puts a root into `issue:<id>` itself."""
        rooted = {"thread_id": form} if form.startswith("issue:") else {}
        repo.write(
            FILE,
            repo.message("qm-3", created_at="2024-12-14T10:30:00.5Z", issue_id="qb-1", reply_to="qm-1", thread_id=form),
            repo.message("qm-2", created_at="2024-12-14T10:31:00Z", issue_id="qb-1", reply_to="qm-1", thread_id=form),
            repo.message("qm-1", created_at="2024-12-14T10:30:00Z", issue_id="qb-1", **rooted),
            repo.message("qm-other", issue_id="qb-2"),
        )

        assert ids(repo.json("msg", "thread", key)) == ["qm-1", "qm-3", "qm-2"]

    def test_a_thread_of_nobody(self, repo: Repo) -> None:
        assert repo.refused("msg", "thread", "qb-9")["kind"] == "UnknownRecord"

    def test_an_answer_must_answer_something(self, repo: Repo) -> None:
        """spec: Validation Rules, Messages 4."""
        repo.write(FILE, repo.message("qm-1"), repo.message("qm-gone"), {"id": "qm-gone", "deleted": True})
        before = repo.lines(FILE)

        for missing in ("qm-none", "qm-gone"):
            told = repo.refused("msg", "send", "b", "x", "--reply-to", missing, agent="a")
            assert told["kind"] == "UnknownRecord"
        assert repo.refused("msg", "reply", "qm-none", "x", agent="b")["kind"] == "UnknownRecord"
        assert repo.lines(FILE) == before

        sent = repo.json("msg", "send", "c", "x", "--reply-to", "qm-1", agent="a")
        assert (sent["reply_to"], sent["thread_id"]) == ("qm-1", "qm-1")


class TestWhoMaySendToWhom:
    """spec: Validation Rules, Messages; ADR 11 and 12."""

    def test_an_unknown_droid_is_refused_with_a_suggestion(self, repo: Repo) -> None:
        """spec: Validation Rules, Messages 2 and 3."""
        repo.droids("ui-engineer", "backend-engineer")

        to = repo.refused("msg", "send", "ui-enginer", "x", agent="backend-engineer")
        sender = repo.refused("msg", "send", "ui-engineer", "x", agent="backend")

        assert to["kind"] == sender["kind"] == "UnknownAgent"
        assert to["error"] == "unknown droid: 'ui-enginer'; did you mean 'ui-engineer'?"
        assert "did you mean 'backend-engineer'?" in sender["error"]
        assert to["hint"] == "List them: queen droids"
        assert repo.lines(FILE) == []

    @pytest.mark.parametrize("name", ["human", "queen"])
    def test_human_and_queen_are_always_valid(self, repo: Repo, name: str) -> None:
        """spec: Validation Rules, Messages 2 and 3."""
        repo.droids("ui-engineer")

        repo.json("msg", "send", name, "x", agent="ui-engineer")
        repo.json("msg", "send", "ui-engineer", "x", agent=name)

        assert [(one["from"], one["to"]) for one in repo.records(FILE)] == [
            ("ui-engineer", name),
            (name, "ui-engineer"),
        ]

    def test_without_a_folder_of_droids_every_plain_name_is_accepted(self, repo: Repo) -> None:
        repo.json("msg", "send", "whoever", "x", agent="anybody")

        told = repo.refused("msg", "send", "two words", "x", agent="anybody")

        assert told["kind"] == "InvalidValue"
        assert len(repo.lines(FILE)) == 1

    def test_everybody_is_every_droid_but_the_sender(self, repo: Repo) -> None:
        repo.droids("a", "b", "c")

        sent = repo.json("msg", "send", "@all", "freeze", agent="b")

        assert [one["to"] for one in sent] == [one["to"] for one in repo.records(FILE)] == ["a", "c"]
        assert len(set(ids(sent))) == 2

    def test_everybody_is_who_ever_wrote_where_there_are_no_droids(self, repo: Repo) -> None:
        assert repo.refused("msg", "send", "@all", "x", agent="a")["kind"] == "UnknownAgent"
        repo.write(FILE, repo.message("qm-1", **{"from": "x", "to": "y"}))

        assert [one["to"] for one in repo.json("msg", "send", "@all", "x", agent="a")] == ["x", "y"]


class TestTheInbox:
    """spec: CLI Mapping, `queen msg inbox`; ADR 14."""

    def fill(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.message("qm-old", created_at="2024-12-14T10:00:00Z", read=True),
            repo.message("qm-late", created_at="2024-12-16T10:00:00Z"),
            repo.message("qm-middle", created_at="2024-12-15T10:00:00Z"),
            repo.message("qm-mine", to="a", **{"from": "b"}),
        )

    def test_it_lists_what_is_to_me_newest_first_and_marks_nothing(self, repo: Repo) -> None:
        """spec: CLI Mapping, `queen msg inbox`."""
        self.fill(repo)
        before = repo.contents()

        assert ids(repo.json("msg", "inbox", agent="b")) == ["qm-late", "qm-middle", "qm-old"]
        assert ids(repo.json("msg", "inbox", "--unread", agent="b")) == ["qm-late", "qm-middle"]
        assert ids(repo.json("msg", "sent", agent="b")) == ["qm-mine"]
        assert repo.contents() == before

    @pytest.mark.parametrize("since", ["2024-12-15", "2024-12-15T10:00:00Z", "2024-12-15T11:00:00+01:00"])
    def test_since_takes_a_date_or_a_time_and_includes_it(self, repo: Repo, since: str) -> None:
        self.fill(repo)

        assert ids(repo.json("msg", "inbox", "--since", since, agent="b")) == ["qm-late", "qm-middle"]

    def test_since_takes_a_duration(self, repo: Repo) -> None:
        self.fill(repo)
        repo.write(FILE, repo.message("qm-new", created_at=repo.moment(hours=-30)))

        assert ids(repo.json("msg", "inbox", "--since", "2d", agent="b")) == ["qm-new"]
        assert repo.json("msg", "inbox", "--since", "1d", agent="b") == []
        assert repo.refused("msg", "inbox", "--since", "yesterday", agent="b")["kind"] == "BadTime"

    def test_the_limit_is_twenty_and_zero_lists_all(self, repo: Repo) -> None:
        moments = [f"2024-12-14T10:{minute:02d}:00Z" for minute in range(25)]
        repo.write(FILE, *(repo.message(f"qm-{at}", created_at=at) for at in moments))
        newest_first = [f"qm-{at}" for at in reversed(moments)]

        assert ids(repo.json("msg", "inbox", agent="b")) == newest_first[:20]
        assert ids(repo.json("msg", "inbox", "-n", "3", agent="b")) == newest_first[:3]
        assert ids(repo.json("msg", "inbox", "--limit", "0", agent="b")) == newest_first
        assert repo.refused("msg", "inbox", "--limit", "-1", agent="b")["kind"] == "InvalidValue"

    def test_peek_shows_the_texts_and_marks_none_while_mark_marks_those_that_it_shows(self, repo: Repo) -> None:
        self.fill(repo)
        before = repo.contents()

        peeked = repo.queen("msg", "inbox", "--unread", "--peek", agent="b")
        assert "text of qm-late" in peeked.stdout
        assert repo.contents() == before

        marked = repo.json("msg", "inbox", "--unread", "--limit", "1", "--mark", agent="b")
        assert [(one["id"], one["read"]) for one in marked] == [("qm-late", True)]
        [update] = repo.records(FILE)[4:]
        assert (update["id"], update["read"], update["body"]) == ("qm-late", True, "text of qm-late")
        assert update["read_at"] == marked[0]["read_at"]
        assert ids(repo.json("msg", "inbox", "--unread", agent="b")) == ["qm-middle"]

    def test_peek_and_mark_contradict_each_other(self, repo: Repo) -> None:
        answer = repo.queen("msg", "inbox", "--peek", "--mark", agent="b")

        assert (answer.code, answer.stdout) == (2, "")

    def test_people_see_what_is_unread_and_urgent(self, repo: Repo) -> None:
        self.fill(repo)
        repo.write(FILE, repo.message("qm-urgent", created_at="2024-12-17T10:00:00Z", importance="urgent"))

        rows = repo.queen("msg", "inbox", agent="b").stdout.splitlines()[1:]

        assert [row[:2].strip() for row in rows] == ["*!", "*", "*", ""]
        assert rows[0].split()[1:4] == ["qm-urgent", "a", "b"]


class TestSearchAndStats:
    """Beyond the spec: `queen msg search` and `stats`."""

    def test_search_looks_into_subject_and_body_in_any_case_newest_first(self, repo: Repo) -> None:
        repo.write(
            FILE,
            repo.message("qm-1", subject="The BUTTON", created_at="2024-12-14T10:30:00.5Z"),
            repo.message("qm-2", body="a button", created_at="2024-12-14T10:30:00Z"),
            repo.message("qm-3", body="button", created_at="2024-12-13T10:30:00Z", to="c", **{"from": "d"}),
            repo.message("qm-4", body="button", deleted=True),
            repo.message("qm-5"),
        )

        assert ids(repo.json("msg", "search", "button")) == ["qm-1", "qm-2", "qm-3"]
        assert ids(repo.json("msg", "search", "button", "--mine", agent="b")) == ["qm-1", "qm-2"]
        assert ids(repo.json("msg", "search", "button", "--limit", "1")) == ["qm-1"]
        assert ids(repo.json("msg", "search", "button", "--since", "2024-12-14")) == ["qm-1", "qm-2"]
        assert repo.json("msg", "search", "a", "BUTTON") == repo.json("msg", "search", "a button")
        assert repo.refused("msg", "search", " ")["kind"] == "InvalidValue"

    def test_stats_count_messages_and_not_lines(self, repo: Repo) -> None:
        """spec: Migration 2, a `_migration` line is no record; Append-Only Semantics 3."""
        repo.write(
            FILE,
            {"_migration": "v1_to_v2", "at": "2024-12-14T10:00:00Z"},
            repo.message("qm-1", created_at="2024-12-14T10:00:00Z"),
            repo.message("qm-2", created_at="2024-12-15T10:00:00Z", importance="high"),
            {"id": "qm-1", "read": True},
            repo.message("qm-3"),
            {"id": "qm-3", "deleted": True},
        )

        counted = repo.json("msg", "stats")
        since = repo.json("msg", "stats", "--since", "2024-12-15")

        assert counted == {
            "total": 2,
            "unread": 1,
            "by_agent": {"b": 2},
            "by_sender": {"a": 2},
            "by_importance": {"normal": 1, "high": 1},
        }
        assert (since["since"], since["since_total"], since["since_unread"]) == ("2024-12-15T00:00:00Z", 1, 1)


class TestDeleting:
    """spec: Append-Only Semantics 3; ADR 17."""

    def test_a_deleted_message_is_hidden_everywhere_and_stays_in_the_file(self, repo: Repo) -> None:
        """spec: Append-Only Semantics 3; Message Record, deleted."""
        sent = repo.json("msg", "send", "b", "secret", "--issue", "qb-1", agent="a")

        gone = repo.json("msg", "delete", sent["id"], agent="b")

        created, deleted = repo.records(FILE)
        assert deleted == created | {"deleted": True, "deleted_at": deleted["deleted_at"]}
        assert ids(gone) == [sent["id"]]
        assert repo.json("msg", "inbox", agent="b") == repo.json("msg", "search", "secret") == []
        assert repo.json("msg", "stats")["total"] == 0
        for words in (("read", sent["id"]), ("thread", "qb-1"), ("reply", sent["id"], "x")):
            assert repo.refused("msg", *words, agent="b")["kind"] == "UnknownRecord"

    def test_only_sender_and_recipient_may_delete(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1"), repo.message("qm-2", to="c"))
        before = repo.lines(FILE)

        told = repo.refused("msg", "delete", "qm-2", "qm-1", agent="c")

        assert told["kind"] == "NotYours"
        assert repo.lines(FILE) == before


class TestWaiting:
    """Beyond the spec: `queen msg wait`, so that nobody has to poll."""

    def test_it_returns_when_another_process_sends(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-other", **{"from": "c"}))
        waiting = repo.start("msg", "wait", "--agent", "b", "--from", "a", "--timeout", "50s", "--json")

        sent = repo.json("msg", "send", "b", "wake up", agent="a")

        answer = finish(waiting)
        assert (answer.code, ids(answer.json)) == (0, [sent["id"]])

    def test_it_returns_at_once_if_something_is_unread_and_marks_nothing(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1"), repo.message("qm-2", read=True))
        before = repo.contents()

        assert ids(repo.json("msg", "wait", agent="b")) == ["qm-1"]
        assert repo.contents() == before

    def test_it_exits_1_when_the_time_is_up(self, repo: Repo) -> None:
        repo.write(FILE, repo.message("qm-1", read=True))

        told = repo.refused("msg", "wait", "--timeout", "10ms", agent="b")

        assert told["kind"] == "TimedOut"
        assert "no message for b within 0.01 s" in told["error"]
