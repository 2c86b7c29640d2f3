from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queueyard.queen import assignments
from queueyard.queen.errors import AlreadyHeld, NotYours, UnknownAgent, UnknownIssue, UnknownRecord
from queueyard.queen.records import Assignment, AssignmentStatus
from queueyard.queen.rules import owner_of
from queueyard.queen.store import ASSIGNMENTS, Store

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer


@pytest.fixture
def issues(write: Writer) -> None:
    write(
        "issues.jsonl",
        {"id": "qb-1", "title": "one", "priority": 1},
        {"id": "qb-2", "title": "two", "priority": 2},
        {"id": "qb-3", "title": "closed", "status": "closed"},
    )


pytestmark = pytest.mark.usefixtures("issues")


def assign(store: Store, clock: FakeClock, issue: str, agent: str, by: str = "queen", **options: Any) -> Assignment:
    clock.advance(1)
    return assignments.assign(store, clock, issue=issue, agent=agent, by=by, **options)


def claim(store: Store, clock: FakeClock, issue: str, agent: str, **options: Any) -> Assignment:
    return assign(store, clock, issue, agent, by=agent, take=options.pop("take", False), **options)


def holders(store: Store, issue: str) -> list[str]:
    return [owner_of(one) for one in assignments.listed(store, issue=issue, status=AssignmentStatus.ACTIVE)]


# --- assign and claim ------------------------------------------------------------------------------------------------


def test_an_assignment_is_written_in_full_with_both_names_of_the_owner(store: Store, clock: FakeClock) -> None:
    given = assign(store, clock, "qb-1", "ui", worktree="feature-ui", reason="knows buttons")

    store.assignments.refresh()
    assert store.assignments.raw(given.id) == {
        "id": given.id,
        "created_at": "2026-01-01T00:00:01Z",
        "updated_at": "2026-01-01T00:00:01Z",
        "issue_id": "qb-1",
        "agent": "ui",
        "droid": "ui",
        "assigned_by": "queen",
        "status": "active",
        "worktree": "feature-ui",
        "reason": "knows buttons",
    }
    assert given.id.startswith("qa-")


def test_assigning_to_the_holder_changes_nothing(store: Store, clock: FakeClock, home: Home) -> None:
    first = assign(store, clock, "qb-1", "ui")
    before = (home.beads / ASSIGNMENTS).read_bytes()

    assert assign(store, clock, "qb-1", "ui", reason="again") == first
    assert claim(store, clock, "qb-1", "ui") == first
    assert (home.beads / ASSIGNMENTS).read_bytes() == before


def test_assigning_to_somebody_else_takes_it_from_the_holder(store: Store, clock: FakeClock) -> None:
    first = assign(store, clock, "qb-1", "ui")

    second = assign(store, clock, "qb-1", "api", reason="ui is ill")

    assert (second.previous_agent, second.previous_droid) == ("ui", "ui")
    store.assignments.refresh()
    old, new = store.assignments.get(first.id), store.assignments.get(second.id)
    assert old is not None
    assert new is not None
    assert (old.status, old.reason, old.updated_at) == ("reassigned", "ui is ill", second.created_at)
    assert (new.status, owner_of(new)) == ("active", "api")
    assert holders(store, "qb-1") == ["api"]


def test_a_claim_takes_nothing_from_anybody_unless_asked_to(store: Store, clock: FakeClock, home: Home) -> None:
    held = claim(store, clock, "qb-1", "ui")
    before = (home.beads / ASSIGNMENTS).read_bytes()

    with pytest.raises(AlreadyHeld, match="qb-1 is held by ui") as refusal:
        claim(store, clock, "qb-1", "api")
    untouched = (home.beads / ASSIGNMENTS).read_bytes()
    claim(store, clock, "qb-1", "api", take=True)

    assert refusal.value.held == held
    assert refusal.value.facts()["held"]["id"] == held.id
    assert untouched == before
    assert holders(store, "qb-1") == ["api"]


@pytest.mark.parametrize("left", [{"agent": "ui"}, {"droid": "ui"}, {"agent": "", "droid": "ui"}])
def test_what_other_tools_wrote_counts_too(store: Store, clock: FakeClock, write: Writer, left: dict[str, str]) -> None:
    write(ASSIGNMENTS, {"id": "qa-1", "issue_id": "qb-1", "status": "active", "their": 1, **left})

    with pytest.raises(AlreadyHeld, match="ui"):
        claim(store, clock, "qb-1", "api")
    ended = assignments.settle(store, clock, issue="qb-1", agent="ui", status=AssignmentStatus.COMPLETED)

    store.assignments.refresh()
    assert (ended.agent, ended.droid) == ("ui", "ui")
    assert store.assignments.raw("qa-1")["their"] == 1


def test_an_issue_that_several_hold_is_taken_from_all_of_them(store: Store, clock: FakeClock, write: Writer) -> None:
    """Left by tools that do not lock."""
    write(
        ASSIGNMENTS,
        {"id": "qa-1", "issue_id": "qb-1", "agent": "ui", "status": "active"},
        {"id": "qa-2", "issue_id": "qb-1", "agent": "docs", "status": "active"},
    )

    taken = assign(store, clock, "qb-1", "api")

    assert holders(store, "qb-1") == ["api"]
    assert taken.previous_agent == "ui"


def test_what_is_unknown_or_closed_is_not_assigned(store: Store, clock: FakeClock, home: Home) -> None:
    with pytest.raises(UnknownIssue, match="did you mean 'qb-1'"):
        assign(store, clock, "qb-11", "ui")
    with pytest.raises(UnknownIssue, match="qb-3 is closed"):
        assign(store, clock, "qb-3", "ui")

    assert not (home.beads / ASSIGNMENTS).exists()
    assert assign(store, clock, "any-7", "ui", check_issues=False).issue_id == "any-7"


def test_without_any_issues_the_way_to_get_them_is_told(store: Store, clock: FakeClock, home: Home) -> None:
    (home.beads / "issues.jsonl").unlink()

    with pytest.raises(UnknownIssue) as fault:
        assign(store, clock, "qb-1", "ui")
    assert "bd export" in (fault.value.hint or "")
    with pytest.raises(UnknownIssue):
        assignments.next_issue(store, clock, agent="ui")


def test_only_droids_work_and_assign(store: Store, clock: FakeClock, home: Home) -> None:
    home.droids.mkdir(parents=True)
    (home.droids / "ui.md").touch()

    with pytest.raises(UnknownAgent):
        assign(store, clock, "qb-1", "api")
    with pytest.raises(UnknownAgent):
        assign(store, clock, "qb-1", "ui", by="api")
    with pytest.raises(UnknownAgent):
        assignments.next_issue(store, clock, agent="api")


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [AssignmentStatus.COMPLETED, AssignmentStatus.RELEASED])
def test_the_holder_ends_an_assignment_once(store: Store, clock: FakeClock, status: AssignmentStatus) -> None:
    claim(store, clock, "qb-1", "ui", worktree="w")
    clock.advance(1)

    ended = assignments.settle(store, clock, issue="qb-1", agent="ui", status=status, reason="so it is")

    assert (ended.status, ended.reason, ended.worktree) == (status, "so it is", "w")
    assert (ended.created_at, ended.updated_at) == ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z")
    assert holders(store, "qb-1") == []
    with pytest.raises(UnknownRecord, match="nobody works on qb-1"):
        assignments.settle(store, clock, issue="qb-1", agent="ui", status=status)


def test_somebody_else_ends_an_assignment_only_by_force(store: Store, clock: FakeClock) -> None:
    claim(store, clock, "qb-1", "ui")

    with pytest.raises(NotYours, match="held by ui"):
        assignments.settle(store, clock, issue="qb-1", agent="api", status=AssignmentStatus.RELEASED)
    assignments.settle(store, clock, issue="qb-1", agent="api", status=AssignmentStatus.RELEASED, force=True)

    assert holders(store, "qb-1") == []


def test_an_issue_that_was_given_back_can_be_claimed_by_another(store: Store, clock: FakeClock) -> None:
    claim(store, clock, "qb-1", "ui")
    assignments.settle(store, clock, issue="qb-1", agent="ui", status=AssignmentStatus.RELEASED)

    again = claim(store, clock, "qb-1", "api")

    assert again.previous_agent is None
    assert len(assignments.listed(store, issue="qb-1")) == 2


# --- list and next ---------------------------------------------------------------------------------------------------


def test_the_list_is_newest_first_and_filtered(store: Store, clock: FakeClock) -> None:
    first, second = claim(store, clock, "qb-1", "ui"), claim(store, clock, "qb-2", "api")
    assignments.settle(store, clock, issue="qb-1", agent="ui", status=AssignmentStatus.COMPLETED)

    def listed(**wanted: Any) -> list[str]:
        return [one.id for one in assignments.listed(store, **wanted)]

    assert listed() == [second.id, first.id]
    assert listed(agent="ui") == listed(issue="qb-1") == listed(status=AssignmentStatus.COMPLETED) == [first.id]
    assert listed(agent="ui", status=AssignmentStatus.ACTIVE) == []


def test_next_claims_the_best_issue_that_nobody_holds(store: Store, clock: FakeClock) -> None:
    claim(store, clock, "qb-1", "api")

    got = assignments.next_issue(store, clock, agent="ui", worktree="w")

    assert got is not None
    assert (got.issue.title, got.assignment.issue_id, got.assignment.worktree) == ("two", "qb-2", "w")
    assert (owner_of(got.assignment), got.assignment.assigned_by) == ("ui", "ui")
    assert assignments.next_issue(store, clock, agent="ui") is None


def test_next_leaves_an_issue_to_whom_beads_gives_it(store: Store, clock: FakeClock, write: Writer) -> None:
    write("issues.jsonl", {"id": "qb-1", "assignee": "api"}, {"id": "qb-2", "assignee": "ui"})

    got = assignments.next_issue(store, clock, agent="ui")

    assert got is not None
    assert got.issue.id == "qb-2"
    assert assignments.next_issue(store, clock, agent="docs") is None
