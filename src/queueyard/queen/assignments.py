"""The verbs of assignments: assign, claim, release, complete, next, and the list.

Whoever changes who works on what holds the lock from the look to the append, so an issue never has two holders.
"""

from __future__ import annotations

import difflib

import msgspec

from queueyard.kernel.clock import Clock, to_rfc3339
from queueyard.kernel.ids import new_id
from queueyard.queen.errors import AlreadyHeld, NotYours, UnknownIssue, UnknownRecord
from queueyard.queen.ready import CLOSED, ready_issues
from queueyard.queen.records import Assignment, AssignmentStatus, Issue, Raw
from queueyard.queen.rules import check_agent, holder_of, moment_of, move_assignment, owner_of, with_owner
from queueyard.queen.store import ASSIGNMENTS, Store


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """An issue that was just claimed, with what there is to know about it."""

    issue: Issue
    assignment: Assignment


def assign(
    store: Store,
    clock: Clock,
    *,
    issue: str,
    agent: str,
    by: str,
    take: bool = True,
    worktree: str | None = None,
    reason: str | None = None,
    check_issues: bool = True,
) -> Assignment:
    """Give the issue to `agent`. Whoever holds it already keeps its record; another holder is reassigned.

    With `take=False` (a claim) AlreadyHeld is raised instead of taking the issue from somebody.
    """
    droids = store.droids()
    check_agent(agent, droids)
    check_agent(by, droids)
    if check_issues:
        check_issue(store, issue)
    with store.locked():
        return _assign(store, clock, issue=issue, agent=agent, by=by, take=take, worktree=worktree, reason=reason)


def next_issue(store: Store, clock: Clock, *, agent: str, worktree: str | None = None) -> Next | None:
    """Claim the best ready issue that nobody holds; None if there is none."""
    check_agent(agent, store.droids())
    issues = _issues(store)
    with store.locked():
        store.assignments.refresh()
        held = {one.issue_id for one in store.assignments.all() if one.status is AssignmentStatus.ACTIVE}
        for issue in ready_issues(issues, clock.now()):
            if issue.id not in held and issue.assignee in {None, "", agent}:
                claimed = _assign(
                    store, clock, issue=issue.id, agent=agent, by=agent, take=False, worktree=worktree, reason=None
                )
                return Next(issue=issue, assignment=claimed)
    return None


def settle(
    store: Store,
    clock: Clock,
    *,
    issue: str,
    agent: str | None,
    status: AssignmentStatus,
    reason: str | None = None,
    force: bool = False,
) -> Assignment:
    """End the active assignment of an issue as released or completed; `force` ends that of another agent."""
    with store.locked():
        store.assignments.refresh()
        held = holder_of(issue, store.assignments.all())
        if held is None:
            raise UnknownRecord(f"nobody works on {issue}", hint="See who works on what: queen assignments")
        if not force and agent != owner_of(held):
            raise NotYours(f"{issue} is held by {owner_of(held)}", hint="Ask them, or use --force.")
        raw = _moved(store, clock, held, status, reason=reason)
        store.append(ASSIGNMENTS, [raw], what="assignment")
        return msgspec.convert(raw, Assignment)


def listed(
    store: Store, *, agent: str | None = None, issue: str | None = None, status: AssignmentStatus | None = None
) -> list[Assignment]:
    """Assignments, newest first."""
    store.assignments.refresh()
    chosen = [
        one
        for one in store.assignments.all()
        if (agent is None or owner_of(one) == agent)
        and (issue is None or one.issue_id == issue)
        and (status is None or one.status is status)
    ]
    return sorted(chosen, key=lambda one: (moment_of(one.created_at), one.id), reverse=True)


def check_issue(store: Store, issue: str) -> Issue:
    """The issue, if Beads has it and it is still open. UnknownIssue, with the nearest id, otherwise."""
    issues = _issues(store)
    found = issues.get(issue)
    if found is None:
        near = difflib.get_close_matches(issue, issues, n=1)
        raise UnknownIssue(
            f"Beads has no issue {issue!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            hint="If it is new, export it first: bd export -o .beads/issues.jsonl",
        )
    if found.status in CLOSED:
        raise UnknownIssue(f"{issue} is {found.status}", hint=f"Open it again first: bd reopen {issue}")
    return found


def _issues(store: Store) -> dict[str, Issue]:
    issues = store.issues()
    if issues is None:
        raise UnknownIssue(
            f"no issues.jsonl in {store.home.beads}",
            hint="Export it: bd export -o .beads/issues.jsonl    (or: queen config set check_issues false)",
        )
    return issues


def _assign(
    store: Store,
    clock: Clock,
    *,
    issue: str,
    agent: str,
    by: str,
    take: bool,
    worktree: str | None,
    reason: str | None,
) -> Assignment:
    """The part that must happen under the lock."""
    store.assignments.refresh()
    held = holder_of(issue, store.assignments.all())
    if held is not None and owner_of(held) == agent:
        return held
    if held is not None and not take:
        raise AlreadyHeld(
            f"{issue} is held by {owner_of(held)} since {held.created_at}",
            held=held,
            hint=f"Ask them: queen msg send {owner_of(held)} ...    or take it: queen claim {issue} --take",
        )
    moment = to_rfc3339(clock.now())
    raws: list[Raw] = []
    new: Raw = {
        "id": new_id("qa"),
        "created_at": moment,
        "updated_at": moment,
        "issue_id": issue,
        **with_owner(agent),
        "assigned_by": by,
        "status": str(AssignmentStatus.ACTIVE),
    }
    new |= {key: value for key, value in (("worktree", worktree), ("reason", reason)) if value}
    if held is not None:
        # Should tools that do not lock have left several, it is taken from all of them.
        raws += [
            _moved(store, clock, one, AssignmentStatus.REASSIGNED, reason=reason)
            for one in store.assignments.all()
            if one.issue_id == issue and one.status is AssignmentStatus.ACTIVE
        ]
        new |= {"previous_agent": owner_of(held), "previous_droid": owner_of(held)}
    raws.append(new)
    # One write: nobody ever sees the issue between two holders, and a crash leaves all of it or nothing.
    store.append_together(ASSIGNMENTS, raws, what="assignment")
    return msgspec.convert(new, Assignment)


def _moved(store: Store, clock: Clock, held: Assignment, to: AssignmentStatus, *, reason: str | None) -> Raw:
    raw = store.assignments.raw(held.id) | with_owner(owner_of(held))
    raw["status"] = str(move_assignment(held, to))
    raw["updated_at"] = to_rfc3339(clock.now())
    if reason:
        raw["reason"] = reason
    return raw
