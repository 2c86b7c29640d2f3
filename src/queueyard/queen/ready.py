"""Which Beads issue may be worked on now, and which one first. Pure.

The rules are those of Beads itself: open or in progress, not pinned, not deferred, not ephemeral, of a kind that is
work, and not waiting for another issue. Young issues come first, by priority; the others by age.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from queueyard.kernel.clock import BadTime, from_rfc3339
from queueyard.queen.rules import moment_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queueyard.queen.records import Issue

CLOSED = frozenset({"closed", "done", "tombstone"})
_WORKABLE = frozenset({"open", "in_progress"})
_NO_WORK = frozenset({"gate", "molecule", "message", "merge-request", "agent", "role", "rig", "epic"})
_BLOCKING = frozenset({"blocks", "conditional-blocks", "waits-for"})
_YOUNG = timedelta(hours=48)


def ready_issues(issues: Mapping[str, Issue], now: datetime) -> list[Issue]:
    """The issues that can be started now, best first."""
    ready = [issue for issue in issues.values() if _can_start(issue, issues, now)]
    return sorted(ready, key=lambda issue: _rank(issue, now))


def _can_start(issue: Issue, issues: Mapping[str, Issue], now: datetime) -> bool:
    return (
        issue.status in _WORKABLE
        and not issue.pinned
        and not issue.ephemeral
        and issue.issue_type not in _NO_WORK
        and not _is_deferred(issue, now)
        and not _is_blocked(issue, issues, now, frozenset())
    )


def _is_deferred(issue: Issue, now: datetime) -> bool:
    if not issue.defer_until:
        return False
    try:
        return from_rfc3339(issue.defer_until) > now
    except BadTime:
        return False


def _is_blocked(issue: Issue, issues: Mapping[str, Issue], now: datetime, on_the_way: frozenset[str]) -> bool:
    """By an issue that is not closed, or through a parent that is blocked or deferred itself."""
    if issue.id in on_the_way:
        return False  # a circle of parents blocks nobody
    for edge in issue.dependencies or ():
        other = issues.get(edge.depends_on_id)
        if other is None or other.status in CLOSED:
            continue
        if edge.type in _BLOCKING:
            return True
        if edge.type == "parent-child" and (
            other.status in {"blocked", "deferred"}
            or _is_deferred(other, now)
            or _is_blocked(other, issues, now, on_the_way | {issue.id})
        ):
            return True
    return False


def _rank(issue: Issue, now: datetime) -> tuple[bool, int, datetime, str]:
    created = moment_of(issue.created_at)
    is_young = now - created < _YOUNG
    return not is_young, issue.priority if is_young else 0, created, issue.id
