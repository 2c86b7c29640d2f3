"""`panqueue status`, `pause`, `resume`, `drain`, `clean`, `obliterate`, `rate`, `key-limit`, `events`: queues."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.panqueue.calls import Call, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.pacing import Rate
    from queueyard.panqueue.records import Counts

_QUEUE_IDS = click.argument("queue_ids", metavar="[QUEUE]...", nargs=-1)
_COLUMNS = ("QUEUE", "WAITING", "ACTIVE", "DELAYED", "FAILED", "COMPLETED", "OLDEST", "MODE", "NOTES")


@click.command(epilog=examples("panqueue status", "panqueue status emails --watch", "panqueue status --json"))
@_QUEUE_IDS
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("-i", "--interval", default="2s", show_default=True, metavar="TIME", help="With --watch: so often.")
@common
def status(call: Call, queue_ids: tuple[str, ...], watch: bool, interval: str) -> None:
    """Show how many jobs are in which state, for all queues or for some."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    call.out.note(f"server: {call.where}")
    if watch:
        _watch(call, queue_ids, parse_duration(interval).total_seconds())
    else:
        counts = call.counts(queue_ids)
        call.show_many(counts, _COLUMNS, map(_row, counts), "No queues.")


def _watch(call: Call, queue_ids: Sequence[str], interval_s: float) -> None:
    from queueyard.kernel.clock import SYSTEM_CLOCK  # noqa: PLC0415

    in_place = sys.stdout.isatty() and not call.as_json
    try:
        while True:
            if in_place:
                sys.stdout.write("\x1b[H\x1b[2J")
            counts = call.counts(queue_ids)
            if call.as_json:
                import msgspec  # noqa: PLC0415

                sys.stdout.write(msgspec.json.encode(counts).decode() + "\n")
            else:
                call.out.table(_COLUMNS, map(_row, counts))
            sys.stdout.flush()
            SYSTEM_CLOCK.sleep(interval_s)
    except KeyboardInterrupt:
        return


def _row(one: Counts) -> Sequence[object]:
    from datetime import timedelta  # noqa: PLC0415

    from queueyard.kernel.clock import format_duration  # noqa: PLC0415

    notes = [
        "paused" if one.paused else "",
        f"limit {one.limit}" if one.limit is not None else "",
        f"{one.keys} keys" if one.keys else "",
        f"{one.held} held" if one.held else "",
        f"{one.overdue} overdue" if one.overdue else "",
        f"{one.events} events" if one.events_kept else "",
    ]
    oldest = "-" if one.oldest_ms is None else format_duration(timedelta(milliseconds=one.oldest_ms))
    states = (one.waiting, one.active, one.delayed, one.failed, one.completed)
    return (one.queue, *states, oldest, one.mode, ", ".join(filter(None, notes)))


@click.command()
@click.argument("queue")
@common
def pause(call: Call, queue: str) -> None:
    """Let nothing more be claimed from QUEUE. What runs goes on, and jobs may be added."""
    _set_paused(call, queue, paused=True)


@click.command()
@click.argument("queue")
@common
def resume(call: Call, queue: str) -> None:
    """Let a paused QUEUE go on."""
    _set_paused(call, queue, paused=False)


def _set_paused(call: Call, queue: str, *, paused: bool) -> None:
    from queueyard.panqueue import service  # noqa: PLC0415

    changed = call.hold(queue, service.pause, paused=paused, actor="command line")
    if call.as_json:
        call.out.data({"queue": queue, "paused": paused, "changed": changed})
    else:
        call.out.text(f"{queue} is {'paused' if paused else 'running'}" + ("" if changed else ", as it was"))


@click.command(epilog=examples("panqueue drain emails", "panqueue drain emails --delayed"))
@click.argument("queue")
@click.option("--delayed", is_flag=True, help="Those that wait for their next attempt, too.")
@common
def drain(call: Call, queue: str, delayed: bool) -> None:
    """Remove every waiting job of QUEUE. What runs goes on."""
    from queueyard.panqueue import service  # noqa: PLC0415

    call.show_count(call.hold(queue, service.drain, delayed=delayed, actor="command line"), "removed", queue)


@click.command(
    epilog=examples("panqueue clean emails --state completed", "panqueue clean emails --state failed --older-than 2d")
)
@click.argument("queue")
@click.option("-s", "--state", required=True, type=click.Choice(["completed", "failed"]), help="Which jobs.")
@click.option("--older-than", metavar="TIME", help="Only those that ended longer ago: 2d, 1h30m.")
@click.option("--keep", type=click.IntRange(0), help="Keep so many of the newest.")
@common
def clean(call: Call, queue: str, state: str, older_than: str | None, keep: int | None) -> None:
    """Remove completed or failed jobs of QUEUE; all of them unless --older-than or --keep says otherwise."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.records import JobState, Keep  # noqa: PLC0415

    age_s = None if older_than is None else parse_duration(older_than).total_seconds()
    bounds = Keep(count=0 if keep is None and age_s is None else keep, age_s=age_s)
    call.show_count(call.hold(queue, service.clean, JobState(state), bounds), "removed", queue)


@click.command(epilog=examples("panqueue obliterate emails --confirm emails"))
@click.argument("queue")
@click.option("--confirm", metavar="QUEUE", help="The id of the queue once more; asked for on a terminal.")
@click.option("--force", is_flag=True, help="Even if jobs are running.")
@common
def obliterate(call: Call, queue: str, confirm: str | None, force: bool) -> None:
    """Remove QUEUE with all its jobs, settings and events. There is no way back."""
    from queueyard.panqueue import service  # noqa: PLC0415

    if confirm is None and sys.stdin.isatty():
        confirm = click.prompt(f"This removes every job of {queue}. Type its id to confirm", err=True)
    service.check_confirmation(queue, confirm or "")
    call.show_count(call.hold(queue, service.obliterate, force=force), "removed", queue)


@click.command(
    "key-limit", epilog=examples("panqueue key-limit mails customer-7 5", "panqueue key-limit mails customer-7 none")
)
@click.argument("queue")
@click.argument("key")
@click.argument("limit")
@common
def key_limit(call: Call, queue: str, key: str, limit: str) -> None:
    """Let LIMIT jobs of KEY run at once; 0 stops the key, `none` gives it the limit of QUEUE again."""
    from queueyard.panqueue import service  # noqa: PLC0415

    if limit != "none" and not limit.isdecimal():
        raise click.UsageError(f"LIMIT is a number or none, not {limit!r}.")
    number = None if limit == "none" else int(limit)
    call.hold(queue, service.set_key_limit, key, number)
    if call.as_json:
        call.out.data({"queue": queue, "key": key, "limit": number})
    else:
        call.out.text(f"{key}: {'as the queue' if number is None else number}")


@click.command(
    epilog=examples(
        "panqueue rate emails 100/1s",
        "panqueue rate mails 5/1m --per-key --burst 2",
        "panqueue rate emails none",
        "panqueue rate emails",
    )
)
@click.argument("queue")
@click.argument("rate", required=False)
@click.option("--per-key", is_flag=True, help="For each key of a keyed queue, not for all together.")
@click.option("--burst", type=click.IntRange(1), help="How many may start at once after a rest.")
@common
def rate(call: Call, queue: str, rate: str | None, per_key: bool, burst: int | None) -> None:
    """Limit how many jobs of QUEUE may start in which time (RATE is COUNT/TIME or none); without RATE: show it.

    A limited job waits; it does not fail.
    """
    from queueyard.panqueue import service  # noqa: PLC0415

    if rate is not None:
        call.hold(queue, service.set_rate, _rate_of(rate, burst), per_key=per_key)
    rules = call.hold(queue, service.rules)
    if call.as_json:
        call.out.data({"queue": queue, "rate": rules.rate, "key_rate": rules.key_rate})
        return
    for name, one in (("all", rules.rate), ("each key", rules.key_rate)):
        if one is not None:
            call.out.text(f"{name}: {one.count} per {one.per_ms / 1_000:g} s, at most {one.burst} at once")
    if rules.rate is None and rules.key_rate is None:
        call.out.text(f"{queue} has no rate limit")


def _rate_of(text: str, burst: int | None) -> Rate | None:
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.panqueue.pacing import Rate  # noqa: PLC0415

    if text == "none":
        return None
    count, slash, time = text.partition("/")
    if not slash or not count.isdecimal():
        raise click.UsageError(f"RATE is COUNT/TIME, such as 100/1s, or none; not {text!r}.")
    return Rate(int(count), int(parse_duration(time).total_seconds() * 1_000), burst)


@click.command(epilog=examples("panqueue events emails --on", "panqueue events emails", "panqueue events emails --off"))
@click.argument("queue")
@click.option("--on", "switch", flag_value="on", help="Record every transition from now on.")
@click.option("--off", "switch", flag_value="off", help="Stop recording; what is recorded stays.")
@click.option("--kept", default=10_000, show_default=True, type=click.IntRange(1), help="With --on: about so many.")
@click.option("--after", default="-", metavar="ENTRY", help="Only entries behind this one.")
@common
def events(call: Call, queue: str, switch: str | None, kept: int, after: str) -> None:
    """Show the recorded transitions of QUEUE, oldest first; or switch recording on or off."""
    from queueyard.panqueue import service  # noqa: PLC0415

    if switch is not None:
        call.hold(queue, service.switch_events, kept if switch == "on" else None)
        if call.as_json:
            call.out.data({"queue": queue, "events": switch == "on"})
        else:
            call.out.text(f"events of {queue} are {switch}")
        return
    source = str(call.address)
    while page := call.hold(queue, service.read_events, source=source, after=after):
        for entry, event in page:
            after = entry
            if call.as_json:
                import msgspec  # noqa: PLC0415

                sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
            else:
                more = "  ".join(filter(None, (event.group, event.reason)))
                call.out.text(f"{event.at}  {event.kind:<10} {event.item}  attempt {event.attempt}  {more}".rstrip())
