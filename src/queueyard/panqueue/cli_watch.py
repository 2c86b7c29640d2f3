"""`panqueue top` and `metrics`: looking on while queues work."""

from __future__ import annotations

from shutil import get_terminal_size
import sys
from typing import TYPE_CHECKING

import click

from queueyard.console import examples
from queueyard.panqueue.calls import Call, common

if TYPE_CHECKING:
    from queueyard.panqueue.exporter import Exporter
    from queueyard.panqueue.top import Moment

_QUEUE_IDS = click.argument("queue_ids", metavar="[QUEUE]...", nargs=-1)
_MOST_ACTIVE = 50


@click.command(epilog=examples("panqueue top", "panqueue top emails reports -i 500ms", "panqueue top --once --json"))
@_QUEUE_IDS
@click.option("-i", "--interval", default="1s", show_default=True, metavar="TIME", help="Look so often.")
@click.option("--once", is_flag=True, help="Look once and end; so it is where the output is no terminal.")
@common
def top(call: Call, queue_ids: tuple[str, ...], interval: str, once: bool) -> None:
    """Watch queues and running jobs, live, until Ctrl-C."""
    from queueyard.kernel.clock import SYSTEM_CLOCK, parse_duration  # noqa: PLC0415
    from queueyard.panqueue.top import as_json, screen  # noqa: PLC0415

    pause_s = parse_duration(interval).total_seconds()
    is_live = sys.stdout.isatty() and not once and not call.as_json
    before: Moment | None = None
    try:
        if is_live:
            sys.stdout.write("\x1b[?1049h")
        while True:
            now = look(call, queue_ids)
            if call.as_json:
                call.out.data(as_json(now))
            else:
                width, height = get_terminal_size() if is_live else (200, 10_000)
                text = "\n".join(screen(before, now, width=width, height=height))
                sys.stdout.write(f"\x1b[H\x1b[2J{text}" if is_live else f"{text}\n")
            sys.stdout.flush()
            if not is_live:
                return
            before = now
            SYSTEM_CLOCK.sleep(pause_s)
    except KeyboardInterrupt:
        return
    finally:
        if is_live:
            sys.stdout.write("\x1b[?1049l")


def look(call: Call, queue_ids: tuple[str, ...]) -> Moment:
    """Everything that one screen shows."""
    from queueyard.kernel.clock import SYSTEM_CLOCK  # noqa: PLC0415
    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.records import JobState  # noqa: PLC0415
    from queueyard.panqueue.top import Moment  # noqa: PLC0415

    queues = call.counts(queue_ids)
    active = [
        job
        for one in queues
        if one.active
        for job in call.hold(one.queue, service.jobs, JobState.ACTIVE, most=_MOST_ACTIVE)
    ]
    seconds, micros = call.line().call("TIME")
    return Moment(SYSTEM_CLOCK.monotonic(), int(seconds) * 1_000 + int(micros) // 1_000, queues, active)


@click.command(
    epilog=examples(
        "panqueue metrics",
        "panqueue metrics emails > /var/lib/node_exporter/panqueue.prom",
        "panqueue metrics --serve 127.0.0.1:9464",
    )
)
@_QUEUE_IDS
@click.option("--serve", "address", metavar="HOST:PORT", help="Answer scrapes over HTTP until Ctrl-C.")
@common
def metrics(call: Call, queue_ids: tuple[str, ...], address: str | None) -> None:
    """Print the state of all queues, or of some, as Prometheus text (with --json: as JSON).

    Queues whose events are recorded also tell how long jobs wait and run: of the events that are kept, or with --serve
    of all from its start.
    """
    from queueyard.panqueue.exporter import Exporter  # noqa: PLC0415

    if call.as_json and address is None:
        call.out.data(call.counts(queue_ids))
        return
    exporter = Exporter(lambda: call.counts(queue_ids), call.line)
    if address is None:
        sys.stdout.write(exporter.text())
    else:
        _serve(call, exporter, address)


def _serve(call: Call, exporter: Exporter, address: str) -> None:
    from queueyard.kernel.errors import UsageFault  # noqa: PLC0415
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.panqueue.exporter import serve  # noqa: PLC0415

    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise UsageFault(f"not HOST:PORT: {address}", hint="For example: panqueue metrics --serve 127.0.0.1:9464")
    lifecycle = Lifecycle()
    with lifecycle.on_signals():
        try:
            server = serve(exporter, host, int(port))
        except OSError as fault:
            raise UsageFault(f"cannot listen on {address}: {fault}", hint="Choose another port.") from fault
        url = f"http://{host}:{server.server_port}/metrics"
        if call.as_json:
            call.out.data({"url": url})
        else:
            call.out.text(f"serving {url}")
        sys.stdout.flush()
        while lifecycle.running:
            lifecycle.wait()
        server.shutdown()
    lifecycle.close()
