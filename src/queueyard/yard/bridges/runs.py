"""Runs of a runforge daemon, executed by panqueue workers: the worker's side.

    panqueue worker queueyard.yard.bridges.runs:worker --url redis://host

A worker sees the workspace under the same path as the daemon: the program writes to the run's own logs.txt, and whoever
wants it to end leaves a note in the run's folder. A worker that is asked to stop hands its runs back to the queue.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
import os
from pathlib import Path
import signal
import sys

from queueyard.kernel import proc
from queueyard.panqueue import Job, Worker
from queueyard.yard.bridges.orders import RUNS, STOP_NOTE, Order

_LOOK_FOR_NOTE_S = 0.5
#: within the time that a worker leaves a handler which it cancels
_STOP_GRACE_S = 1.5


def worker() -> Worker:
    """As many runs at once as QUEUEYARD_RUNS_AT_ONCE says, else as this machine has processors."""
    at_once = int(os.environ.get("QUEUEYARD_RUNS_AT_ONCE", "0")) or os.cpu_count() or 1
    return Worker(RUNS, execute, concurrency=at_once)


async def execute(job: Job[Order]) -> int:
    """The exit code of the program; it has none left running when this returns, however it returns."""
    order = job.payload
    argv = [sys.executable, *order.argv[1:]] if order.is_python else order.argv
    note = Path(order.folder) / STOP_NOTE
    try:
        with (Path(order.folder) / "logs.txt").open("ab", buffering=0) as log:
            env = proc.without_secrets(os.environ) | order.env
            child = proc.start(argv, cwd=Path(order.cwd), env=env, stdout=log, stderr=log)
    except OSError as fault:
        return _not_started(order, argv[0], fault)
    try:
        while child.returncode is None and not _asks_to_stop(note, job.id):
            await _ended(child, _LOOK_FOR_NOTE_S)
    finally:
        # Also if the worker stops, or its lease is gone: then somebody else runs it anew.
        if child.returncode is None:
            proc.signal_group(child.pid, signal.SIGTERM)
            await _ended(child, _STOP_GRACE_S)
        code = child.stop(grace_s=0.0)
    return code


def _asks_to_stop(note: Path, job_id: str) -> bool:
    try:
        return note.read_text(encoding="utf-8") == job_id
    except OSError:
        return False


def _not_started(order: Order, program: str, fault: OSError) -> int:
    """As a shell says it; the last words of the log are the reason that the queue shows."""
    with suppress(OSError), (Path(order.folder) / "logs.txt").open("a", encoding="utf-8") as log:
        log.write(f"ERROR: cannot start {program}: {fault.strerror}\n")
    return 127


async def _ended(child: proc.Child, timeout_s: float) -> None:
    """Return when the child is gone, or after a while."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(child.pid)
    loop.add_reader(descriptor, ended.set)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), timeout_s)
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
