"""`panqueue worker`, `serve`, `doctor`: what runs, and whether all is well."""

from __future__ import annotations

import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import examples, tell_findings
from queueyard.panqueue.calls import Call, common

if TYPE_CHECKING:
    from queueyard.panqueue.embedded import Running
    from queueyard.panqueue.pool import WorkerPool


@click.command(
    epilog=examples("panqueue worker my_app:tasks", "panqueue worker my_app.workers:pool --url redis://localhost")
)
@click.argument("target", metavar="MODULE:OBJECT")
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Jobs at once per queue, for Tasks.")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@common
def worker(call: Call, target: str, concurrency: int | None, verbose: bool) -> None:
    """Run jobs until TERM or Ctrl-C: the first drains, the second hands back what runs and stops.

    OBJECT is a Worker, a list of them, a WorkerPool, Tasks or a task; or a function that makes one. Those without a URL
    of their own use the server of this command.
    """
    import asyncio  # noqa: PLC0415

    from queueyard.kernel.log import start_logging  # noqa: PLC0415

    start_logging(verbose=verbose)
    call.out.note(f"server: {call.where}")
    os.environ["REDIS_URL"] = call.url

    async def run() -> Any:
        pool = _pool_of(load_target(target), target, concurrency)
        names = ", ".join(one.queue.id for one in pool.workers)
        call.out.note(f"working on {names}; end with Ctrl-C")
        return await pool.run()

    stopped = asyncio.run(run())
    told = {
        "handed_back": sum(one.handed_back for one in stopped),
        "unknown": sum(one.unknown for one in stopped),
    }
    if call.as_json:
        call.out.data(told)
    else:
        call.out.note(f"stopped; {told['handed_back']} jobs were handed back")


def load_target(target: str) -> Any:
    """What MODULE:OBJECT names, with this folder on the path. UsageFault if there is no such thing."""
    from importlib import import_module  # noqa: PLC0415

    from queueyard.kernel.errors import UsageFault  # noqa: PLC0415

    module_name, colon, path = target.partition(":")
    if not colon or not path:
        raise UsageFault(f"not MODULE:OBJECT: {target}", hint="For example: panqueue worker my_app:tasks")
    # The folder that the command is called in, as for `python -m`.
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as fault:
        if fault.name is None or not (module_name == fault.name or module_name.startswith(f"{fault.name}.")):
            raise
        raise UsageFault(f"no module {module_name} here", hint=f"Is {Path.cwd()} the right folder?") from fault
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError as fault:
            raise UsageFault(f"{module_name} has no {name}", hint="Check the spelling behind the colon.") from fault
    return found


def _pool_of(target: Any, name: str, concurrency: int | None) -> WorkerPool:
    from queueyard.kernel.errors import UsageFault  # noqa: PLC0415
    from queueyard.panqueue.pool import WorkerPool  # noqa: PLC0415
    from queueyard.panqueue.tasks import Task, Tasks  # noqa: PLC0415
    from queueyard.panqueue.worker import Worker  # noqa: PLC0415

    if callable(target) and not isinstance(target, Task):
        target = target()
    if isinstance(target, Tasks):
        return target.pool(concurrency=concurrency)
    if isinstance(target, Task):
        return WorkerPool([target.worker(concurrency=concurrency)])
    if isinstance(target, Worker):
        return WorkerPool([target])
    if isinstance(target, list | tuple) and all(isinstance(one, Worker) for one in target):
        return WorkerPool(list(target))
    if isinstance(target, WorkerPool):
        return target
    raise UsageFault(
        f"{name} is a {type(target).__name__}, not a Worker, a WorkerPool, Tasks or a task",
        hint="Name what holds your handlers.",
    )


@click.command(epilog=examples("panqueue serve", "panqueue serve --dir ./data --port 6379", "panqueue serve --stop"))
@click.option("--port", type=click.IntRange(1, 65535), help="Listen on this port of 127.0.0.1, too.")
@click.option("--fsync", type=click.Choice(["everysec", "always"]), default="everysec", show_default=True,
              help="When the append-only file is forced to disk.")  # fmt: skip
@click.option("--background", is_flag=True, help="Return as soon as it answers; it runs on.")
@click.option("--stop", "wants_stop", is_flag=True, help="Stop the one that runs in this folder.")
@common
def serve(call: Call, port: int | None, fsync: str, background: bool, wants_stop: bool) -> None:
    """Run a real Valkey in a folder, with its data on disk; until Ctrl-C, or in the background."""
    from queueyard.kernel.lifecycle import Lifecycle  # noqa: PLC0415
    from queueyard.panqueue import embedded  # noqa: PLC0415

    if wants_stop:
        stopped = embedded.stop(call.folder)
        if call.as_json:
            call.out.data({"stopped": stopped is not None, "folder": str(call.folder)})
        else:
            call.out.text(f"stopped the server in {call.folder}" if stopped else f"no server runs in {call.folder}")
        return
    if background:
        _announce(call, embedded.find_running(call.folder), port=port, fsync=fsync)
        return
    lifecycle = Lifecycle()
    # Before the first line: whoever reads it may ask us to stop at once.
    with lifecycle.on_signals():
        already = embedded.find_running(call.folder)
        _announce(call, already, port=port, fsync=fsync)
        sys.stdout.flush()
        while lifecycle.running and already is None:
            lifecycle.wait()
    lifecycle.close()
    if already is None:
        embedded.stop(call.folder)
        call.out.note("stopped")


def _announce(call: Call, already: Running | None, *, port: int | None, fsync: str) -> None:
    """Start the server unless it runs already, and say where it is."""
    from queueyard.panqueue import embedded  # noqa: PLC0415

    running = already or embedded.start(call.folder, port=port, fsync=fsync)
    if call.as_json:
        call.out.data({"url": running.url, "pid": running.pid, "folder": str(call.folder), "new": already is None})
        return
    call.out.text(f"{'already running' if already else 'serving'} at {running.url} (pid {running.pid})")
    if running.port:
        call.out.text(f"and at redis://127.0.0.1:{running.port}")


@click.command(epilog=examples("panqueue doctor", "panqueue doctor emails --fix", "panqueue doctor --json"))
@click.argument("queue_ids", metavar="[QUEUE]...", nargs=-1)
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@common
def doctor(call: Call, queue_ids: tuple[str, ...], fix: bool) -> None:
    """Look for everything that may be wrong. Exit code 1 if something is and was not mended."""
    from queueyard.panqueue.doctor import examine_queue, examine_server  # noqa: PLC0415

    call.out.note(f"server: {call.where}")
    found = list(examine_server(call.line()))
    for queue_id in queue_ids or call.queues():
        line = call.line(call.store(queue_id).keys.tag)
        found += examine_queue(line, queue_id, fix=fix)
    tell_findings(call.out, found)
