"""`jjq status`, `log`, `tail` and `stats`: looking, on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.jjq.calls import Call, common, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from queueyard.jjq.looking import FailedView, ItemView, QueuedView, Status
    from queueyard.kernel.events import Event

_DEFAULT_ENTRIES = 20
_PADDED = 6


@click.command(epilog=examples("jjq status", "jjq status 7", "jjq status --json"))
@click.argument("identifier", metavar="[ID]", required=False)
@common
def status(call: Call, identifier: str | None) -> None:
    """Show what is queued, what failed recently and what landed; or everything about one item."""
    if identifier is not None:
        _show_item(call, call.jjq.item(identifier))
        return
    now = call.jjq.status()
    if call.as_json:
        from queueyard.jjq.records import to_raw  # noqa: PLC0415

        call.out.data(to_raw(now))
    elif not now.initialized:
        call.say("not initialized: nothing was ever queued here")
    else:
        _show_status(call, now)


def _show_status(call: Call, now: Status) -> None:
    if now.running:
        call.say("run in progress" + (f": {now.runner}" if now.runner else ""))
    if not now.queue and not now.failed:
        call.say("queue is empty")
    _show_rows(call, "Queued:", now.queue)
    _show_rows(call, "Failed (recent):", now.failed)
    if now.landed:
        call.out.text("Landed (recent):")
        for one in now.landed:
            call.out.text(f"  {one.id:>6}  {one.commit_id[:12]}  {call.ago(one.at)} ago")


def _show_rows(call: Call, title: str, rows: Sequence[QueuedView | FailedView]) -> None:
    if rows:
        call.out.text(title)
    for row in rows:
        subject = row.description.partition("\n")[0] or "(no description)"
        call.out.text(f"  {row.id:>6}  {row.change_id[:12]}  {plain(subject)}")


def _show_item(call: Call, item: ItemView) -> None:
    from queueyard.jjq.records import to_raw  # noqa: PLC0415

    if call.as_json:
        call.out.data(to_raw(item))
        return
    view = item.queued or item.failed
    facts: list[tuple[str, object]] = [("Item", item.id), ("State", item.state), ("Position", item.position)]
    if view:
        facts += [("Change", view.change_id[:12]), ("Commit", view.commit_id[:12])]
        facts += [("Description", view.description.partition("\n")[0])]
    if item.failed:
        failed = item.failed
        facts += [("Reason", failed.failure_reason), ("Candidate", (failed.candidate_change_id or "")[:12] or None)]
        facts += [("Conflict", path) for path in failed.conflict_paths or ()]
        facts += [("Workspace", failed.workspace_path), ("Next", f"jjq retry {item.id}    or: jjq delete {item.id}")]
    facts += [("Landed as", item.merge_commit_id), ("Requeued as", item.requeued_as)]
    facts += [("Output", f"jjq log --item {item.id}" if item.log_path else None)]
    for name, value in facts:
        if value is not None:
            call.out.text(f"{call.out.style(name + ':', 'bold')} {plain(str(value))}")
    for event in item.events:
        call.out.text(f"  {event.at}  {event.kind}" + (f" ({event.reason})" if event.reason else ""))


@click.command(epilog=examples("jjq log", "jjq log 50", "jjq log --item 7", "jjq log --follow --json"))
@click.argument("limit", metavar="[LIMIT]", required=False)
@click.option("-i", "--item", "identifier", metavar="ID", help="The output of this item's checks instead.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens from now; oldest first then.")
@common
def log(call: Call, limit: str | None, identifier: str | None, follow: bool) -> None:
    """Show the latest LIMIT entries of the journal (default: 20), newest first.

    An id of six digits, such as 000007, in the place of LIMIT means the output of that item's checks.
    """
    if identifier is None and limit is not None and len(limit) == _PADDED and limit.isdigit():
        identifier = limit
    if identifier is not None:
        _show_log(call, call.jjq.log_path(identifier), identifier, follow=follow)
        return
    count = _entries(limit)
    events = call.jjq.events(on_bad=lambda bad: call.out.warn(str(bad)))[-count:] if count else []
    if follow:
        _follow_events(call, events)
    elif call.as_json:
        call.out.data(list(reversed(events)))
    elif events:
        call.out.table(("TIME", "ITEM", "WHAT", ""), [_row(event) for event in reversed(events)])
    else:
        call.say("nothing happened yet")


def _entries(limit: str | None) -> int:
    from queueyard.kernel.errors import UsageFault  # noqa: PLC0415

    if limit is None:
        return _DEFAULT_ENTRIES
    if not (limit.isascii() and limit.isdigit()):
        raise UsageFault(f"not a number of entries: {limit!r}", hint="jjq log 50")
    return int(limit)


def _row(event: Event) -> tuple[str, str, str, str]:
    data = event.data
    details = [event.reason or "", data.get("subject", ""), data.get("merge", "")[:12]]
    if "as" in data:
        details.append(f"as {int(data['as'])}")
    if "duration_ms" in data:
        details.append(f"{data['duration_ms'] / 1000:.1f} s")
    return event.at, str(int(event.item)), event.kind.value, "  ".join(one for one in details if one)


def _follow_events(call: Call, first: Sequence[Event]) -> None:
    from queueyard.jjq.events import read_journal  # noqa: PLC0415

    store = call.jjq.store
    path = store.home.journal
    start = path.stat().st_size if path.exists() else 0
    for event in first:
        _print_event(call, event)
    try:
        while True:
            size = path.stat().st_size if path.exists() else 0
            if size > start:
                for event, _ in read_journal(path, start=start, on_bad=lambda _: None):
                    _print_event(call, event)
                start = size
            store.clock.sleep(0.1)
    except KeyboardInterrupt:
        return


def _print_event(call: Call, event: Event) -> None:
    import msgspec  # noqa: PLC0415

    line = msgspec.json.encode(event).decode() if call.as_json else "  ".join(_row(event))
    click.echo(line)


@click.command(epilog=examples("jjq tail", "jjq tail 7", "jjq tail --no-follow"))
@click.argument("identifier", metavar="[ID]", required=False)
@click.option("--no-follow", is_flag=True, help="Print what there is and leave.")
@common
def tail(call: Call, identifier: str | None, no_follow: bool) -> None:
    """Follow the output of the check that runs now, or of one item, until it has ended."""
    from queueyard.jjq.looking import latest_log  # noqa: PLC0415

    path = call.jjq.log_path(identifier) if identifier else latest_log(call.jjq.store)
    if path is None:
        call.say("no check has run yet")
        return
    _show_log(call, path, identifier or str(int(path.stem)), follow=not no_follow)


def _show_log(call: Call, path: Path, identifier: str, *, follow: bool) -> None:
    from queueyard.jjq.errors import NoSuchItem  # noqa: PLC0415
    from queueyard.jjq.looking import follow_log  # noqa: PLC0415

    if not path.exists():
        raise NoSuchItem(f"no check of item {int(identifier)} has run here", hint="See what happened: jjq log")
    if call.as_json:
        call.out.data({"id": int(identifier), "path": str(path), "output": path.read_text(errors="replace")})
        return
    try:
        for piece in follow_log(call.jjq.store, path, follow=follow):
            click.echo(piece, nl=False)
    except KeyboardInterrupt:
        return


@click.command(epilog=examples("jjq stats", "jjq stats --since 7d --json"))
@click.option("--since", metavar="TIME", help="Only what happened after: 2h, 7d, 2026-01-31.")
@common
def stats(call: Call, since: str | None) -> None:
    """Landed per day, time to land, failure rate, wasted checks."""
    from queueyard.jjq.records import to_raw  # noqa: PLC0415

    found = call.jjq.stats(since=since)
    if call.as_json:
        call.out.data(to_raw(found))
        return
    rate = "-" if found.failure_rate is None else f"{found.failure_rate:.0%}"
    rows: list[tuple[str, object]] = [
        ("landed", found.landed),
        ("failed", f"{found.failed} ({rate})"),
        ("time to land, half", _seconds(found.time_to_land_p50_s)),
        ("time to land, 95 %", _seconds(found.time_to_land_p95_s)),
        ("checks", found.checks),
        ("checks wasted", f"{found.wasted_checks} ({found.wasted_s:.1f} s)"),
        ("checks reused", found.reused_checks),
    ]
    rows += [(f"landed on {day}", count) for day, count in found.landed_per_day.items()]
    call.out.table(("FIGURE", "VALUE"), rows)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
