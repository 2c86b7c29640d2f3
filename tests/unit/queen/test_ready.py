from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import pytest

from queueyard.kernel.clock import to_rfc3339
from queueyard.queen.ready import ready_issues
from queueyard.queen.records import Dependency, Issue

if TYPE_CHECKING:
    from random import Random

NOW = datetime(2026, 1, 10, tzinfo=UTC)
TOMORROW = "2026-01-11T00:00:00Z"
YESTERDAY = "2026-01-09T00:00:00Z"


def waits_for(*edges: tuple[str, str]) -> tuple[Dependency, ...]:
    return tuple(Dependency(type=kind, depends_on_id=other) for kind, other in edges)


def ready(*issues: Issue) -> list[str]:
    return [issue.id for issue in ready_issues({issue.id: issue for issue in issues}, NOW)]


@pytest.mark.parametrize("status", ["open", "in_progress"])
def test_an_issue_that_is_open_or_in_progress_is_ready(status: str) -> None:
    assert ready(Issue(id="qb-1", status=status)) == ["qb-1"]


@pytest.mark.parametrize(
    "status", ["closed", "done", "tombstone", "blocked", "deferred", "pinned", "hooked", "of their own"]
)
def test_an_issue_of_any_other_status_is_not(status: str) -> None:
    assert ready(Issue(id="qb-1", status=status)) == []


@pytest.mark.parametrize("kind", ["gate", "molecule", "message", "merge-request", "agent", "role", "rig", "epic"])
def test_what_is_no_work_is_not_ready(kind: str) -> None:
    assert ready(Issue(id="qb-1", issue_type=kind)) == []


@pytest.mark.parametrize("kind", ["bug", "feature", "task", "chore", "decision", "spike", "story", "milestone", "odd"])
def test_every_other_type_is_work(kind: str) -> None:
    assert ready(Issue(id="qb-1", issue_type=kind)) == ["qb-1"]


def test_pinned_and_ephemeral_issues_are_not_ready() -> None:
    assert ready(Issue(id="qb-1", pinned=True), Issue(id="qb-2", ephemeral=True), Issue(id="qb-3")) == ["qb-3"]


@pytest.mark.parametrize(
    ("until", "does"), [(TOMORROW, False), (YESTERDAY, True), ("2026-01-10T00:00:00Z", True), ("some day", True)]
)
def test_an_issue_waits_until_the_time_that_it_is_deferred_to(until: str, does: bool) -> None:
    assert bool(ready(Issue(id="qb-1", defer_until=until))) is does


@pytest.mark.parametrize("kind", ["blocks", "conditional-blocks", "waits-for"])
@pytest.mark.parametrize(
    ("status", "does"), [("open", True), ("in_progress", True), ("deferred", True), ("closed", False), ("done", False)]
)
def test_a_blocking_edge_holds_an_issue_back_until_the_other_is_closed(kind: str, status: str, does: bool) -> None:
    other = Issue(id="qb-2", status=status, pinned=True)

    found = ready(Issue(id="qb-1", dependencies=waits_for((kind, "qb-2"))), other)

    assert found == ([] if does else ["qb-1"])


@pytest.mark.parametrize(
    "kind", ["related", "discovered-from", "replies-to", "duplicates", "supersedes", "tracks", "caused-by", "odd"]
)
def test_an_edge_that_only_informs_holds_nothing_back(kind: str) -> None:
    other = Issue(id="qb-2", pinned=True)

    assert ready(Issue(id="qb-1", dependencies=waits_for((kind, "qb-2"))), other) == ["qb-1"]


def test_an_edge_to_an_issue_that_nobody_knows_holds_nothing_back() -> None:
    assert ready(Issue(id="qb-1", dependencies=waits_for(("blocks", "qb-404")))) == ["qb-1"]


@pytest.mark.parametrize(
    ("parent", "does"),
    [
        (Issue(id="qb-2", issue_type="epic"), False),
        (Issue(id="qb-2", issue_type="epic", status="blocked"), True),
        (Issue(id="qb-2", issue_type="epic", status="deferred"), True),
        (Issue(id="qb-2", issue_type="epic", defer_until=TOMORROW), True),
        (Issue(id="qb-2", issue_type="epic", dependencies=waits_for(("blocks", "qb-3"))), True),
        (Issue(id="qb-2", issue_type="epic", dependencies=waits_for(("parent-child", "qb-4"))), True),
        (Issue(id="qb-2", issue_type="epic", status="closed", dependencies=waits_for(("blocks", "qb-3"))), False),
    ],
    ids=["open", "blocked", "deferred", "deferred by date", "waiting", "child of a waiting one", "closed"],
)
def test_a_child_waits_with_its_parent(parent: Issue, does: bool) -> None:
    child = Issue(id="qb-1", dependencies=waits_for(("parent-child", "qb-2")))
    open_one = Issue(id="qb-3", pinned=True)
    waiting = Issue(id="qb-4", pinned=True, dependencies=waits_for(("waits-for", "qb-3")))

    assert ready(child, parent, open_one, waiting) == ([] if does else ["qb-1"])


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_circle_of_parents_blocks_nobody(length: int) -> None:
    circle = [
        Issue(id=f"qb-{n}", dependencies=waits_for(("parent-child", f"qb-{(n + 1) % length}"))) for n in range(length)
    ]

    assert sorted(ready(*circle)) == sorted(issue.id for issue in circle)


def test_a_circle_of_blocking_edges_blocks_all_of_it() -> None:
    one = Issue(id="qb-1", dependencies=waits_for(("blocks", "qb-2")))
    other = Issue(id="qb-2", dependencies=waits_for(("blocks", "qb-1")))

    assert ready(one, other) == []


def test_young_issues_come_first_by_priority_and_the_others_by_age() -> None:
    issues = [
        Issue(id="old-urgent", priority=0, created_at="2026-01-05T00:00:00Z"),
        Issue(id="older", priority=4, created_at="2026-01-01T00:00:00Z"),
        Issue(id="young", priority=2, created_at="2026-01-09T12:00:00Z"),
        Issue(id="young-urgent", priority=0, created_at="2026-01-09T18:00:00Z"),
        Issue(id="young-too", priority=2, created_at="2026-01-09T06:00:00Z"),
        Issue(id="no-time", priority=0),
    ]

    assert ready(*issues) == ["young-urgent", "young-too", "young", "no-time", "older", "old-urgent"]


issue_lists = st.lists(
    st.builds(
        Issue,
        id=st.integers(0, 7).map("qb-{}".format),
        status=st.sampled_from(["open", "closed", "blocked"]),
        priority=st.integers(0, 4),
        created_at=st.integers(0, 96).map(lambda hours: to_rfc3339(NOW - timedelta(hours=hours))),
        dependencies=st.lists(
            st.builds(
                Dependency,
                type=st.sampled_from(["blocks", "parent-child", "related"]),
                depends_on_id=st.integers(0, 7).map("qb-{}".format),
            ),
            max_size=3,
        ).map(tuple),
    ),
    max_size=8,
    unique_by=lambda issue: issue.id,
)


@given(issue_lists, st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_the_file(issues: list[Issue], chance: Random) -> None:
    shuffled = list(issues)
    chance.shuffle(shuffled)

    assert ready(*shuffled) == ready(*issues)


@given(issue_lists)
def test_closing_an_issue_never_holds_another_one_back(issues: list[Issue]) -> None:
    before = set(ready(*issues))

    for closed in issues:
        rest = [issue for issue in issues if issue.id != closed.id]
        after = ready(*rest, Issue(id=closed.id, status="closed"))

        assert before - {closed.id} <= set(after)
