"""Flows as they are described and read back; nothing here talks to a server."""

from __future__ import annotations

import msgspec
import pytest

from queueyard.panqueue import ChildResult, FlowJob, chain, group
from queueyard.panqueue.errors import BadFlow
from queueyard.panqueue.flows import planned, read_children, walk


def test_a_chain_is_each_waiting_for_the_one_before() -> None:
    root = planned(chain(*(FlowJob("q", n, name=f"n{n}") for n in range(3))))

    assert [job.name for job in walk(root)] == ["n2", "n1", "n0"]


def test_a_group_is_one_waiting_for_many() -> None:
    root = planned(group([FlowJob("q", n) for n in range(3)], then=FlowJob("q", "sum")))

    assert [child.name for child in root.children] == ["0", "1", "2"]


def test_ids_follow_from_the_root_and_the_place() -> None:
    root = planned(FlowJob("q", 1, children=[FlowJob("q", 2, children=[FlowJob("r", 3)])]))

    assert [job.id for job in walk(root)] == [root.id, f"{root.id}.0", f"{root.id}.0.0"]


def test_a_chain_of_nothing_is_refused() -> None:
    with pytest.raises(BadFlow, match="a chain needs a job"):
        chain()


def test_results_are_read_in_the_order_of_the_plan_whoever_ended_first() -> None:
    plan = msgspec.json.encode(planned(group([FlowJob("q", n) for n in range(3)], then=FlowJob("q", 9))).children)
    flat = [b"kid:2", b"-no luck", b"kid:0", b"+7", b"plan", plan, b"id", b"j"]

    found = read_children(flat)

    assert list(found.items()) == [
        ("0", ChildResult(ok=True, result=7)),
        ("2", ChildResult(ok=False, reason="no luck")),
    ]
