"""`panqueue enqueue`, `jobs`, `job`, `logs`, `retry`, `redrive`, `cancel`, `remove`: jobs on the command line."""

from __future__ import annotations

import sys
from typing import Any

import click

from queueyard.console import examples
from queueyard.panqueue.calls import Call, ago, common

_IDS = click.argument("job_ids", metavar="ID...", nargs=-1)


@click.command(
    epilog=examples(
        'panqueue enqueue emails \'{"to": "a@example.org"}\'',
        "panqueue enqueue reports '{\"month\": 7}' --retries 3 --key customer-7",
        "jq -c .[] orders.json | panqueue enqueue orders -",
        'panqueue enqueue reminders \'{"to": "Ada"}\' --delay 20m',
        'panqueue enqueue reminders \'{"to": "Ada"}\' --at 2030-01-31T14:00:00Z',
    )
)
@click.argument("queue")
@click.argument("payload")
@click.option("--retries", type=int, help="Further attempts after the first failed.")
@click.option("--max-stalls", type=int, help="How often its worker may die before it counts as failed.")
@click.option("--timeout", metavar="TIME", help="A handler that runs longer fails: 30s, 5m.")
@click.option("--delay", metavar="TIME", help="Not before so long from now: 30s, 5m, 2h.")
@click.option("--at", metavar="TIME", help="Not before this moment: 2030-01-31T14:00:00Z.")
@click.option("--priority", type=int, help="From -100 to 100, the higher the sooner; for queues with priorities.")
@click.option("--expires", metavar="TIME", help="A job that has not started after so long fails.")
@click.option("--once", metavar="KEY", help="Only if no unfinished job has this deduplication key.")
@click.option("--throttle", metavar="KEY=TIME", help="Only if none of this key was added for so long.")
@click.option("--debounce", metavar="KEY=TIME", help="Take the place of the one before, and wait so long.")
@click.option("--key", help="The concurrency key, in keyed mode.")
@click.option("--id", "job_id", metavar="ID", help="An id of your own; refused if it is taken.")
@common
def enqueue(call: Call, queue: str, payload: str, key: str | None, job_id: str | None, **options: Any) -> None:
    """Add a job to QUEUE. PAYLOAD is JSON; a single - reads one job per line from stdin."""
    from queueyard.panqueue.sync import SyncQueueClient  # noqa: PLC0415

    changes = _changes(**options)
    texts = [line for line in sys.stdin.buffer.read().splitlines() if line.strip()] if payload == "-" else [payload]
    if payload == "-" and job_id is not None:
        raise click.UsageError("--id names one job, and stdin may hold many.")
    values = [read_json(text, number) for number, text in enumerate(texts, 1)]
    with SyncQueueClient(call.url, name="command line") as client:
        adds = client.queue(queue, **changes)
        if payload == "-":
            added = adds.add_many(values, key=None if key is None else lambda _: key)
        else:
            added = [adds.add(values[0], key=key, job_id=job_id)]
    if call.as_json:
        call.out.data([one.id for one in added])
    else:
        for one in added:
            call.out.text(one.id)


def _changes(
    *,
    timeout: str | None,
    delay: str | None,
    at: str | None,
    expires: str | None,
    once: str | None,
    throttle: str | None,
    debounce: str | None,
    **numbers: int | None,
) -> Any:
    """The options of the command line as the client takes them."""
    from queueyard.kernel.clock import from_rfc3339  # noqa: PLC0415
    from queueyard.panqueue.placing import Dedup  # noqa: PLC0415

    if sum(one is not None for one in (once, throttle, debounce)) > 1:
        raise click.UsageError("Say one of --once, --throttle and --debounce.")
    dedup = None if once is None else Dedup(once)
    if throttle is not None:
        dedup = Dedup.throttle(*_key_and_ms(throttle, "--throttle"))
    if debounce is not None:
        dedup = Dedup.debounce(*_key_and_ms(debounce, "--debounce"))
    return {
        **numbers,
        "timeout_ms": _ms(timeout),
        "delay_ms": _ms(delay),
        "run_at": None if at is None else from_rfc3339(at),
        "expires_ms": _ms(expires),
        "dedup": dedup,
    }


def _ms(text: str | None) -> int | None:
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    return None if text is None else int(parse_duration(text).total_seconds() * 1_000)


def _key_and_ms(text: str, option: str) -> tuple[str, int]:
    key, equals, time = text.rpartition("=")
    if not equals:
        raise click.UsageError(f"{option} wants KEY=TIME, such as report-7=1m.")
    return key, _ms(time) or 0


def read_json(text: str | bytes, number: int) -> Any:
    import msgspec  # noqa: PLC0415

    from queueyard.panqueue.errors import BadPayload  # noqa: PLC0415

    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as fault:
        raise BadPayload(
            f"payload {number} is not JSON: {fault}", hint='Quote it for the shell: \'{"name": "value"}\''
        ) from fault


@click.command(epilog=examples("panqueue jobs emails", "panqueue jobs emails --state failed -n 100 --json"))
@click.argument("queue")
@click.option(
    "-s", "--state", metavar="STATE", help="waiting, delayed, held, active, completed or failed; default: all."
)
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--skip", default=0, type=click.IntRange(0), help="Leave out so many first.")
@common
def jobs(call: Call, queue: str, state: str | None, limit: int, skip: int) -> None:
    """List the jobs of QUEUE: those that run next, or ended last, come first."""
    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.records import JobState  # noqa: PLC0415
    from queueyard.panqueue.rules import state_named  # noqa: PLC0415

    order = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.HELD, JobState.FAILED, JobState.COMPLETED)
    found = []
    for one in (state_named(state),) if state else order:
        found += call.hold(queue, service.jobs, one, skip=skip, most=limit)
    call.show_jobs(found[:limit], f"No jobs in {queue}.")


@click.command(epilog=examples("panqueue job emails 3f2a", "panqueue job emails 3f2a --json"))
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@common
def job(call: Call, queue: str, job_id: str) -> None:
    """Show everything about one job. ID may be its beginning."""
    import msgspec  # noqa: PLC0415

    from queueyard.panqueue import service  # noqa: PLC0415

    found = call.hold(queue, service.job, call.hold(queue, service.job_like, job_id))
    if call.as_json:
        call.out.data(found)
        return
    for name, value in msgspec.to_builtins(found).items():
        if value is not None:
            shown = f"{value} ({ago(value)} ago)" if name.endswith("At") and isinstance(value, int) else value
            call.out.text(f"{call.out.style(name + ':', 'bold')} {shown}")


@click.command(epilog=examples("panqueue retry emails 3f2a", "panqueue retry emails --all"))
@click.argument("queue")
@_IDS
@click.option("--all", "everything", is_flag=True, help="Every failed job of the queue.")
@common
def retry(call: Call, queue: str, job_ids: tuple[str, ...], everything: bool) -> None:
    """Put failed jobs back in line, with their failures forgotten."""
    from queueyard.panqueue import service  # noqa: PLC0415

    if everything == bool(job_ids):
        raise click.UsageError("Name the jobs, or say --all.")
    if everything:
        count = call.hold(queue, service.retry_all, actor="command line")
    else:
        ids = [call.hold(queue, service.job_like, one) for one in job_ids]
        count = call.hold(queue, service.retry, ids, actor="command line")
    call.show_count(count, "retried", queue)


@click.command(epilog=examples("panqueue remove emails 3f2a"))
@click.argument("queue")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@common
def remove(call: Call, queue: str, job_ids: tuple[str, ...]) -> None:
    """Remove jobs that are not running."""
    from queueyard.panqueue import service  # noqa: PLC0415

    ids = [call.hold(queue, service.job_like, one) for one in job_ids]
    call.show_count(call.hold(queue, service.remove, ids, actor="command line"), "removed", queue)


@click.command(
    epilog=examples("panqueue cancel emails 3f2a", "panqueue cancel emails 3f2a --why 'order was withdrawn'")
)
@click.argument("queue")
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--why", default="canceled", show_default=True, help="Written down as the reason.")
@common
def cancel(call: Call, queue: str, job_ids: tuple[str, ...], why: str) -> None:
    """Cancel jobs, whatever they are doing. They count as failed; a running handler is cancelled."""
    from queueyard.panqueue import service  # noqa: PLC0415

    ids = [call.hold(queue, service.job_like, one) for one in job_ids]
    call.show_count(call.hold(queue, service.cancel, ids, why=why, actor="command line"), "canceled", queue)


@click.command(epilog=examples("panqueue logs emails 3f2a", "panqueue logs emails 3f2a --json"))
@click.argument("queue")
@click.argument("job_id", metavar="ID")
@common
def logs(call: Call, queue: str, job_id: str) -> None:
    """Show what the handlers of a job have logged, oldest first. ID may be its beginning while the job is there."""
    from contextlib import suppress  # noqa: PLC0415

    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.errors import UnknownJob  # noqa: PLC0415

    # A log outlives its job for a week.
    with suppress(UnknownJob):
        job_id = call.hold(queue, service.job_like, job_id)
    lines = call.hold(queue, service.logs, job_id)
    if call.as_json:
        call.out.data(lines)
        return
    for line in lines:
        call.out.text(f"{ago(line.at_ms)} ago  {line.text}")
    if not lines:
        call.out.note(f"Nothing was logged by {job_id}.")


@click.command(epilog=examples("panqueue redrive dead --all", "panqueue redrive dead emails:3f2a"))
@click.argument("queue")
@_IDS
@click.option("--all", "everything", is_flag=True, help="Every dead letter of the queue.")
@common
def redrive(call: Call, queue: str, job_ids: tuple[str, ...], everything: bool) -> None:
    """Send dead letters of QUEUE back to where they failed, with their failures forgotten."""
    from queueyard.panqueue import dead_letters, service  # noqa: PLC0415

    if everything == bool(job_ids):
        raise click.UsageError("Name the jobs, or say --all.")
    ids = [call.hold(queue, service.job_like, one) for one in job_ids]
    call.show_count(call.hold(queue, dead_letters.redrive, ids, actor="command line"), "redriven", queue)
