"""The daemon's side of runs on other machines: a process that stands for the run, and ends as it does.

`runforge-cli daemon --executor panqueue` starts this instead of a run's program. To the daemon it is the run: it lives
as long, can be adopted by the next daemon, is ended by TERM, and has the run's exit code. An order is named after the
attempt, so that a second process for the same attempt finds the run that is on its way and waits for that one.
"""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import System
from queueyard.panqueue.errors import JobActive, JobExists, ServerUnreachable, UnknownJob
from queueyard.panqueue.sync import SyncQueueClient
from queueyard.runforge.execution import conclude, prepare
from queueyard.runforge.workspace import Workspace
from queueyard.yard.bridges.orders import RUNS, STOP_NOTE, Order
from queueyard.yard.places import open_yard

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from queueyard.panqueue.sync import SyncQueueHandle


_LOOK_AGAIN_S = 1.0


class NotARun(QueueyardError):
    """Nobody said which run it is: this is started by a daemon only."""


class _Stop(BaseException):
    """TERM came; nothing on the way may take it for a failure."""


def carry(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Have the program of a run executed by a worker, and give its exit code.

    NotARun outside a daemon, QueueyardError if the yard has no server for it, JobFailed if workers died under it too
    often.
    """
    try:
        folder, workspace = Path(environment["RUNFORGE_RUN_DIR"]), Path(environment["RUNFORGE_WORKSPACE"])
        ticket = f"{environment['RUNFORGE_JOB_ID']}-{environment['RUNFORGE_ATTEMPT']}"
    except KeyError as missing:
        raise NotARun(
            f"this is started by a daemon, which sets {missing}", hint="Type: runforge-cli daemon --executor panqueue"
        ) from missing
    order = Order(
        argv=list(argv),
        cwd=str(Path.cwd()),
        env=_own_variables(environment, folder),
        folder=str(folder),
        is_python=argv[0] == sys.executable,
    )
    signal.signal(signal.SIGTERM, _on_term)
    note, started = folder / STOP_NOTE, SYSTEM_CLOCK.now()
    with SyncQueueClient(server_of(workspace), name="runforge") as client:
        runs = client.queue(RUNS)
        with suppress(FileNotFoundError):
            note.unlink()
        try:
            _order(runs, order, ticket)
            code = _code(runs, ticket)
        except _Stop:
            note.write_text(ticket, encoding="utf-8")
            return _code_of_stopped(runs, ticket)
    _write_result(Workspace(workspace), folder.name, environment, code, started)
    return code


def server_of(workspace: Path) -> str:
    """The first panqueue place of the yard around a workspace. QueueyardError if there is none."""
    yard = open_yard(workspace)
    for place in yard.places:
        if place.system is System.PANQUEUE:
            return place.at
    raise QueueyardError(
        f"the yard {yard.root} has no panqueue that could carry runs",
        hint="Add its server: queueyard add panqueue redis://127.0.0.1:6379/0",
    )


def _order(runs: SyncQueueHandle[Order, int], order: Order, ticket: str) -> None:
    """Queue the run, unless it is on its way already; what ended before was another start of the same attempt."""
    try:
        runs.add(order, job_id=ticket)
    except JobExists:
        if runs.job(ticket).status in {"completed", "failed"}:
            runs.remove(ticket)
            runs.add(order, job_id=ticket)


def _code(runs: SyncQueueHandle[Order, int], ticket: str) -> int:
    """Wait as long as it takes, also for a server that is away: the run goes on, and limits are the daemon's."""
    while True:
        try:
            code = runs.result(ticket)
        except ServerUnreachable:
            SYSTEM_CLOCK.sleep(_LOOK_AGAIN_S)
        else:
            return 1 if code is None else code


def _code_of_stopped(runs: SyncQueueHandle[Order, int], ticket: str) -> int:
    """Take it back if nobody has it yet, else wait for whoever has; the daemon kills us if that takes too long."""
    try:
        runs.remove(ticket)
    except JobActive:
        return _code(runs, ticket)
    except UnknownJob:
        pass
    return -signal.SIGTERM


def _write_result(
    workspace: Workspace, run_id: str, environment: Mapping[str, str], code: int, started: datetime
) -> None:
    """How a command ended, in result.json: a daemon that did not start us cannot learn it from us otherwise."""
    launch = prepare(
        workspace,
        run_id,
        inherited={},
        job_id=environment["RUNFORGE_JOB_ID"],
        attempt=int(environment["RUNFORGE_ATTEMPT"]),
    )
    if launch.is_command:
        conclude(launch, code=code, stopped=None, started=started, finished=SYSTEM_CLOCK.now(), log=None)


def _own_variables(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What belongs to the run, and not to the machine of the daemon."""
    request: dict[str, Any] = msgspec.json.decode((folder / "request.json").read_bytes())
    names = {*(request.get("env") or {}), "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED"}
    return {name: value for name, value in environment.items() if name in names or name.startswith("RUNFORGE_")}


def leave_with(code: int) -> NoReturn:
    """End as the run did: with its exit code, or by the same signal."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code if code >= 0 else 128 - code)


def _on_term(_number: int, _frame: object) -> None:
    raise _Stop
