"""What a runforge daemon asks of panqueue workers. The daemon's side starts once per run, so it imports no worker."""

from __future__ import annotations

import msgspec

from queueyard.panqueue.queues import Queue

#: a file in the folder of a run: whoever finds the name of its order in it ends the run
STOP_NOTE = "queueyard-stop"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a worker needs to start the program of a run."""

    argv: list[str]
    cwd: str
    #: what the run gets beside the worker's own environment
    env: dict[str, str]
    #: the folder of the run
    folder: str
    #: whether argv starts with the daemon's Python, for which the worker's stands in
    is_python: bool = False


#: what a job returns is the exit code of the program, negative for a signal
RUNS: Queue[Order, int] = Queue("runforge-runs", Order, int)
