"""`panqueue enqueue`, `jobs`, `job`, `retry`, `remove`: jobs on the command line."""

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
    )
)
@click.argument("queue")
@click.argument("payload")
@click.option("--retries", type=int, help="Further attempts after the first failed.")
@click.option("--max-stalls", type=int, help="How often its worker may die before it counts as failed.")
@click.option("--timeout", metavar="TIME", help="A handler that runs longer fails: 30s, 5m.")
@click.option("--key", help="The concurrency key, in keyed mode.")
@click.option("--id", "job_id", metavar="ID", help="An id of your own; refused if it is taken.")
@common
def enqueue(call: Call, queue: str, payload: str, key: str | None, job_id: str | None, **options: Any) -> None:
    """Add a job to QUEUE. PAYLOAD is JSON; a single - reads one job per line from stdin."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.panqueue.sync import SyncQueueClient  # noqa: PLC0415

    timeout = options.pop("timeout")
    timeout_ms = None if timeout is None else int(parse_duration(timeout).total_seconds() * 1_000)
    texts = [line for line in sys.stdin.buffer.read().splitlines() if line.strip()] if payload == "-" else [payload]
    if payload == "-" and job_id is not None:
        raise click.UsageError("--id names one job, and stdin may hold many.")
    values = [_json(text, number) for number, text in enumerate(texts, 1)]
    with SyncQueueClient(call.url, name="command line") as client:
        adds = client.queue(queue, timeout_ms=timeout_ms, **options)
        if payload == "-":
            added = adds.add_many(values, key=None if key is None else lambda _: key)
        else:
            added = [adds.add(values[0], key=key, job_id=job_id)]
    if call.as_json:
        call.out.data([one.id for one in added])
    else:
        for one in added:
            call.out.text(one.id)


def _json(text: str | bytes, number: int) -> Any:
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
@click.option("-s", "--state", metavar="STATE", help="waiting, delayed, active, completed or failed; default: all.")
@click.option("-n", "--limit", default=20, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@click.option("--skip", default=0, type=click.IntRange(0), help="Leave out so many first.")
@common
def jobs(call: Call, queue: str, state: str | None, limit: int, skip: int) -> None:
    """List the jobs of QUEUE: those that run next, or ended last, come first."""
    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.records import JobState  # noqa: PLC0415
    from queueyard.panqueue.rules import state_named  # noqa: PLC0415

    order = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.FAILED, JobState.COMPLETED)
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
