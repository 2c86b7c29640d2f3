"""`jjq push`, `wait`, `retry`, `requeue`, `delete`: items come and go, on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.jjq.calls import Call, common, seconds

if TYPE_CHECKING:
    from queueyard.jjq.records import Item

_TIMEOUT = click.option("--timeout", metavar="TIME", help="Give up waiting after this long: 90s, 10m.")


@click.command(epilog=examples("jjq push @-", "jjq push my-feature --wait", "jjq push @- --wait --timeout 10m"))
@click.argument("revset")
@click.option("-w", "--wait", "and_wait", is_flag=True, help="Wait until it has landed (exit code 0) or failed (1).")
@_TIMEOUT
@common
def push(call: Call, revset: str, and_wait: bool, timeout: str | None) -> None:
    """Queue the one revision that REVSET means for merging to trunk.

    If you amend the revision while it is queued, the amended one is what gets checked and lands.
    """
    timeout_s = seconds(timeout)
    item = call.jjq.push(revset)
    if not and_wait:
        _told(call, item, f"revision {item.commit.short} queued at {item.id}")
        return
    call.say(f"revision {item.commit.short} queued at {item.id}; waiting for it to land")
    _wait(call, item.id, timeout_s)


@click.command(epilog=examples("jjq wait 7", "jjq wait 7 --timeout 10m && echo landed"))
@click.argument("identifier", metavar="ID")
@_TIMEOUT
@common
def wait(call: Call, identifier: str, timeout: str | None) -> None:
    """Wait until an item has left the queue. Exit code 0 if it landed, 1 if it failed, was deleted or time is up."""
    from queueyard.jjq.rules import parse_id  # noqa: PLC0415

    _wait(call, parse_id(identifier), seconds(timeout))


@click.command(epilog=examples("jjq retry 7", "jjq retry 7 @-", "jjq requeue 7"))
@click.argument("identifier", metavar="ID")
@click.argument("revset", required=False)
@common
def retry(call: Call, identifier: str, revset: str | None) -> None:
    """Queue a failed item again under a new id, at the end of the queue; as it is, or as another revision."""
    item = call.jjq.retry(identifier, revset)
    _told(call, item, f"item {int(identifier)} requeued: revision {item.commit.short} queued at {item.id}")


@click.command(epilog=examples("jjq delete 7"))
@click.argument("identifier", metavar="ID")
@common
def delete(call: Call, identifier: str) -> None:
    """Take an item out of the queue, or else out of the failed items. Its workspace, if any, stays: jjq clean."""
    from queueyard.jjq.looking import SCOPE_WORDS  # noqa: PLC0415

    scope, item = call.jjq.delete(identifier)
    if call.as_json:
        call.out.data({"id": item.id, "deleted_from": scope.value})
    else:
        call.say(f"item {item.id} deleted from {SCOPE_WORDS[scope]}")


def _told(call: Call, item: Item, text: str) -> None:
    if call.as_json:
        commit = item.commit
        call.out.data({"id": item.id, "change_id": commit.change_id, "commit_id": commit.commit_id})
    else:
        call.say(text)


def _wait(call: Call, number: int, timeout_s: float | None) -> None:
    outcome = call.jjq.wait(number, timeout_s=timeout_s, note=call.note)
    merge = f" as {outcome.merge_commit_id[:12]}" if outcome.merge_commit_id else ""
    call.show(outcome, f"item {number} has landed{merge}")
