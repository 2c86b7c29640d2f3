"""`queen assign`, `claim`, `next`, `release`, `complete`, `assignments`: who works on what, on the command line."""

from __future__ import annotations

import click

from queueyard.console import examples
from queueyard.queen.calls import Call, common

_REASON = click.option("-r", "--reason", help="Why.")
_WORKTREE = click.option("--worktree", metavar="NAME", help="The worktree that the work happens in.")
_FORCE = click.option("-f", "--force", is_flag=True, help="Even if another agent holds it.")


@click.command(epilog=examples("queen assign qb-42 ui-engineer --reason 'knows the Button'"))
@click.argument("issue")
@click.argument("assignee", metavar="AGENT")
@_WORKTREE
@_REASON
@common
def assign(call: Call, issue: str, assignee: str, worktree: str | None, reason: str | None) -> None:
    """Give an issue to an agent; whoever holds it is reassigned."""
    given = call.queen.assign(issue, assignee, worktree=worktree, reason=reason)
    before = f" (was {given.previous_agent})" if given.previous_agent else ""
    call.show(given, f"{issue} is assigned to {assignee}{before}")


@click.command(epilog=examples("queen claim qb-42", "queen claim qb-42 --take --reason 'they are offline'"))
@click.argument("issue")
@click.option("--take", is_flag=True, help="Take it from the agent that holds it.")
@_WORKTREE
@_REASON
@common
def claim(call: Call, issue: str, take: bool, worktree: str | None, reason: str | None) -> None:
    """Take an issue for yourself. Refused if another agent holds it, unless --take."""
    claimed = call.queen.claim(issue, take=take, worktree=worktree, reason=reason)
    call.show(claimed, f"{issue} is yours")


@click.command("next", epilog=examples("queen next", "queen next --json"))
@_WORKTREE
@common
def next_(call: Call, worktree: str | None) -> None:
    """Claim the best ready Beads issue and show it. Exit code 1 if nothing is ready.

    Ready: open, not blocked, not deferred, and held by nobody. Two agents never get the same one.
    """
    found = call.queen.next(worktree=worktree)
    if found is None:
        call.out.data(None) if call.as_json else call.out.note("Nothing is ready.")
        click.get_current_context().exit(1)
    issue = found.issue
    call.show(found, f"{issue.id}  P{issue.priority} {issue.issue_type}  {issue.title}\n\n{issue.description}".rstrip())


@click.command(epilog=examples("queen release qb-42 --reason 'blocked by the API'"))
@click.argument("issue")
@_REASON
@_FORCE
@common
def release(call: Call, issue: str, reason: str | None, force: bool) -> None:
    """Give an issue back, unfinished, so that others can take it."""
    call.show(call.queen.release(issue, reason=reason, force=force), f"{issue} is released")


@click.command(epilog=examples("queen complete qb-42 --reason 'landed on trunk'"))
@click.argument("issue")
@_REASON
@_FORCE
@common
def complete(call: Call, issue: str, reason: str | None, force: bool) -> None:
    """Say that the work on an issue is done. The issue itself is closed with Beads: bd close ISSUE."""
    call.show(call.queen.complete(issue, reason=reason, force=force), f"{issue} is completed")


@click.command(epilog=examples("queen assignments", "queen assignments --agent ui-engineer --status all"))
@click.option("--issue", metavar="ID", help="Only those of this issue.")
@click.option(
    "--status",
    type=click.Choice(["active", "completed", "released", "reassigned", "all"]),
    default="active",
    show_default=True,
    help="Only those with this status.",
)
@common
def assignments(call: Call, issue: str | None, status: str) -> None:
    """See who works on what, newest first; with --agent, only what that agent works on."""
    wanted = None if status == "all" else status
    found = call.queen.assignments(agent=call.agent, issue=issue, status=wanted)
    call.show_assignments(found, "Nobody works on anything.")
