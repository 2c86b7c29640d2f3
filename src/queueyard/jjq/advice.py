"""What to tell somebody whose item failed: what, why, where to look, and which commands come next. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.jjq.records import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.jjq.records import Failure, Outcome

_MOST_PATHS = 20


def failure_lines(outcome: Outcome, trunk: str) -> Iterator[str]:
    """One line per fact, then the commands. spec: run, steps 7 and 9: the workspace path is among them."""
    failure = outcome.failure
    if failure is None:
        return
    candidate = failure.candidate
    yield f"item {failure.id} failed: {_why(failure, trunk)}"
    yield f"  candidate:  {candidate.short} {candidate.commit_id[:12]} {candidate.subject}".rstrip()
    for path in failure.conflict_paths[:_MOST_PATHS]:
        yield f"  conflict:   {path}"
    if len(failure.conflict_paths) > _MOST_PATHS:
        yield f"  conflict:   ... and {len(failure.conflict_paths) - _MOST_PATHS} more"
    if failure.workspace_path:
        yield f"  workspace:  {failure.workspace_path}"
    if failure.reason is Reason.CONFLICTS:
        yield "To resolve:"
        yield f"  jj rebase -b {candidate.short} -d {trunk}"
        yield f"  jj edit {candidate.short}    # edit the conflicts away"
    else:
        yield f"Its output: jjq log --item {failure.id}"
        yield "To mend it:"
        yield f"  jj edit {candidate.short}    # change what is wrong"
    yield f"  jjq retry {failure.id}"


def _why(failure: Failure, trunk: str) -> str:
    if failure.reason is Reason.CONFLICTS:
        return f"it conflicts with {trunk}"
    if failure.reason is Reason.TIMEOUT:
        return "its check took too long and was stopped"
    return f"its check failed with exit code {failure.exit_code}"


def failure_summary(outcomes: list[Outcome]) -> str:
    """One sentence for the end of a run in which something failed."""
    failed = [outcome for outcome in outcomes if outcome.failure]
    if len(outcomes) == 1:
        return f"item {outcomes[0].id} failed"
    which = ", ".join(str(outcome.id) for outcome in failed)
    return f"processed {len(outcomes)} items: {len(outcomes) - len(failed)} landed, {len(failed)} failed ({which})"
