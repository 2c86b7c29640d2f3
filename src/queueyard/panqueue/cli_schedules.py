"""`panqueue schedule` and `panqueue schedules`: repeated jobs on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from queueyard.console import examples
from queueyard.panqueue.calls import Call, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.schedules import Standing

_COLUMNS = ("NAME", "WHEN", "ZONE", "NEXT", "CATCH-UP", "FIRED")


@click.command(
    epilog=examples(
        "panqueue schedule reports nightly '{\"all\": true}' --cron '0 3 * * *' --tz Europe/Berlin",
        "panqueue schedule reports pulse null --every 10s --catch-up skip",
    )
)
@click.argument("queue")
@click.argument("name")
@click.argument("payload")
@click.option("--cron", metavar="LINE", help="Minute, hour, day, month, weekday: '0 3 * * 1-5'.")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Whose clock the cron line follows.")
@click.option("--every", metavar="TIME", help="A fixed interval instead: 30s, 10m.")
@click.option(
    "--catch-up",
    type=click.Choice(["skip", "once", "all"]),
    default="once",
    show_default=True,
    help="What becomes of slots that passed while no worker ran.",
)
@click.option("--retries", type=int, help="Further attempts after the first failed.")
@click.option("--priority", type=int, help="From -100 to 100, for queues with priorities.")
@click.option("--key", help="The concurrency key, in keyed mode.")
@common
def schedule(call: Call, queue: str, name: str, payload: str, every: str | None, **options: Any) -> None:
    """Repeat the job PAYLOAD in QUEUE. A schedule of that NAME is changed; the workers of the queue add its jobs."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.panqueue.cli_jobs import read_json  # noqa: PLC0415
    from queueyard.panqueue.sync import SyncQueueClient  # noqa: PLC0415

    every_ms = None if every is None else int(parse_duration(every).total_seconds() * 1_000)
    with SyncQueueClient(call.url, name="command line") as client:
        handle = client.queue(queue)
        changed = handle.schedule(name, read_json(payload, 1), every_ms=every_ms, **options)
        [standing] = [one for one in handle.schedules() if one.schedule.name == name]
    if call.as_json:
        call.out.data({"queue": queue, "name": name, "changed": changed, "next_ms": standing.next_ms})
    else:
        call.out.text(f"{name}: {'next' if changed else 'as it was, next'} {_moment(standing)}")


@click.group(epilog=examples("panqueue schedules list reports", "panqueue schedules pause reports nightly"))
def schedules() -> None:
    """See, pause, resume and remove repeated jobs."""


@schedules.command("list")
@click.argument("queue")
@common
def list_(call: Call, queue: str) -> None:
    """List the schedules of QUEUE by the time of their next slot."""
    from queueyard.panqueue.scheduling import list_schedules  # noqa: PLC0415

    found = call.hold(queue, list_schedules)
    call.show_many(found, _COLUMNS, map(_row, found), f"No schedules in {queue}.")


@schedules.command()
@click.argument("queue")
@click.argument("name")
@common
def pause(call: Call, queue: str, name: str) -> None:
    """Let a schedule rest."""
    _set_paused(call, queue, name, paused=True)


@schedules.command()
@click.argument("queue")
@click.argument("name")
@common
def resume(call: Call, queue: str, name: str) -> None:
    """Let a schedule go on with its first slot from now."""
    _set_paused(call, queue, name, paused=False)


@schedules.command()
@click.argument("queue")
@click.argument("name")
@common
def remove(call: Call, queue: str, name: str) -> None:
    """Take a schedule away. Jobs that it has added stay."""
    from queueyard.panqueue.scheduling import remove_schedule  # noqa: PLC0415

    call.hold(queue, remove_schedule, name)
    if call.as_json:
        call.out.data({"queue": queue, "name": name, "removed": True})
    else:
        call.out.text(f"{name} is removed")


def _set_paused(call: Call, queue: str, name: str, *, paused: bool) -> None:
    from queueyard.panqueue.scheduling import pause_schedule  # noqa: PLC0415

    changed = call.hold(queue, pause_schedule, name, paused=paused)
    if call.as_json:
        call.out.data({"queue": queue, "name": name, "paused": paused, "changed": changed})
    else:
        call.out.text(f"{name} is {'paused' if paused else 'running'}" + ("" if changed else ", as it was"))


def _row(one: Standing) -> Sequence[object]:
    from datetime import timedelta  # noqa: PLC0415

    from queueyard.kernel.clock import format_duration  # noqa: PLC0415

    made = one.schedule
    every = "" if made.every_ms is None else f"every {format_duration(timedelta(milliseconds=made.every_ms))}"
    return (made.name, made.cron or every, made.tz, _moment(one), made.catch_up, one.fired)


def _moment(standing: Standing) -> str:
    from queueyard.panqueue.schedules import slot_text  # noqa: PLC0415

    if standing.paused:
        return "paused"
    return "never" if standing.next_ms is None else slot_text(standing.next_ms)
