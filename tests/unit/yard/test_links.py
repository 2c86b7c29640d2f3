"""What ties events together: ids that they carry, and ids in what was written."""

from __future__ import annotations

from typing import Any

import pytest

from queueyard.kernel.events import Event, Kind, System
from queueyard.yard.links import Link, link_of, texts_in, together, words_of
from queueyard.yard.trace import steps


def event(system: System, item: str, **fields: Any) -> Event:
    told = {
        "id": f"{system}-{item}",
        "at": "2026-01-01T00:00:00Z",
        "source": "/here",
        "queue": "q",
        "kind": Kind.QUEUED,
    }
    return Event(system=system, item=item, **(told | fields))


def found(typed: str, *events: Event, labels: tuple[Link, ...] = ()) -> list[str]:
    names = [one.item for one in events]
    return [names[place] for place in sorted(together(typed, [*map(link_of, events), *labels])) if place < len(names)]


def test_an_issue_leads_to_its_assignment_run_change_and_push() -> None:
    events = [
        event(System.QUEEN, "qa-1", group="qy-1"),
        event(System.RUNFORGE, "job_1", group="grp_a", data={"run_id": "run-1"}),
        event(System.JJQ, "000007", data={"subject": "qy-1: a button", "change": "kkkk", "commit": "c0ffee00"}),
        event(System.JJQ, "000007", data={"merge": "feed00"}, kind=Kind.SUCCEEDED),
        event(System.OPS, "01REQ:1", group="01REQ", data={"message": "docs of qy-1"}),
        event(System.QUEEN, "qa-2", group="qy-2"),
    ]
    labels = (Link(ids=frozenset(["grp_a"]), words=words_of("rates for qy-1")),)

    wanted = ["qa-1", "job_1", "000007", "000007", "01REQ:1"]
    assert found("qy-1", *events, labels=labels) == wanted


@pytest.mark.parametrize("typed", ["run-1", "grp_a", "qa-1", "jjq:7", "7", "c0ffee0012", "c0ffee00", "01REQ"])
def test_every_name_on_the_way_leads_to_the_same_work(typed: str) -> None:
    events = [
        event(System.QUEEN, "qa-1", group="qy-1"),
        event(System.RUNFORGE, "job_1", group="grp_a", data={"run_id": "run-1"}),
        event(System.JJQ, "000007", data={"subject": "qy-1: a button", "commit": "c0ffee0012"}),
        event(System.OPS, "01REQ:1", group="01REQ", data={"message": "docs of qy-1"}),
    ]
    labels = (Link(ids=frozenset(["grp_a"]), words=words_of("rates for qy-1")),)

    assert len(found(typed, *events, labels=labels)) == 4


def test_what_many_share_links_nothing() -> None:
    """Agents, concurrency keys, sources and plain words are no ids."""
    events = [
        event(System.QUEEN, "qa-1", group="qy-1", actor="ana", reason="button"),
        event(System.QUEEN, "qa-2", group="qy-2", actor="ana", reason="button"),
        event(System.PANQUEUE, "1", group="customer-7"),
        event(System.PANQUEUE, "2", group="customer-7"),
        event(System.JJQ, "000001", data={"subject": "button"}),
        event(System.JJQ, "000002", data={"subject": "button"}),
    ]

    assert found("qy-1", *events) == ["qa-1"]
    assert found("2", *events) == ["2", "000002"]


def test_numbers_that_each_queue_counts_anew_do_not_meet() -> None:
    mails = event(System.PANQUEUE, "1", queue="mails")
    bills = event(System.PANQUEUE, "1", queue="bills")
    labels = (Link(ids=frozenset(["mails:1"]), words=words_of("for qy-9")),)

    assert [one.queue for one in (mails, bills) if link_of(one).is_called("mails:1")] == ["mails"]
    assert together("qy-9", [link_of(mails), link_of(bills), *labels]) == {0, 2}


def test_an_item_that_was_queued_again_is_the_same_work() -> None:
    first = event(System.JJQ, "000001", data={"subject": "qy-3"})
    again = event(System.JJQ, "000001", kind=Kind.RETRIED, data={"as": "000002"})
    second = event(System.JJQ, "000002", kind=Kind.SUCCEEDED)

    assert found("qy-3", first, again, second) == ["000001", "000001", "000002"]


def test_words_keep_ids_whole_and_texts_are_found_in_any_json() -> None:
    assert words_of("fix qy-1.2 (was: qy-3)", None) == {"fix", "qy-1.2", "was", "qy-3"}
    assert list(texts_in({"a": ["b", {"c": 1}], "d": "e"})) == ["a", "b", "c", "d", "e"]


def test_events_of_one_kind_about_one_thing_are_one_step() -> None:
    batches = [event(System.OPS, f"01REQ:{number}", group="01REQ", actor="mac") for number in (1, 2, 3)]
    other = event(System.OPS, "01REQ:1", group="01REQ", kind=Kind.SUCCEEDED)

    told = steps([*batches, other])

    assert [(one.kind, one.what, one.count, one.actors) for one in told] == [
        (Kind.QUEUED, "01REQ", 3, ["mac"]),
        (Kind.SUCCEEDED, "01REQ", 1, []),
    ]
