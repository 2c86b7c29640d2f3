"""What a new daemon finds running: which process is behind it, if any.

A job is marked running before its process exists, and the process is written down right after it was started. A daemon
that died in between leaves a running job without a process that anybody could name. Whether there is one tells the
lock of its log (`run_files`); which one, the environment of the processes of this user.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import os
from pathlib import Path
import signal
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.kernel.errors import UnsafePath
from queueyard.runforge.run_files import is_log_held

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.runforge.records import Extra, Job
    from queueyard.runforge.workspace import Workspace


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What is left of a running job."""

    #: whether somebody of it is still there
    is_alive: bool
    #: the process, where it is known
    identity: proc.Identity | None = None


def look_for(job: Job, extra: Extra, workspace: Workspace) -> Found:
    """Whether the attempt that the queue calls running still is, and which process it is."""
    if extra.pid is not None and extra.pid_started is not None:
        identity = proc.Identity(extra.pid, extra.pid_started)
        return Found(is_alive=proc.is_alive(identity), identity=identity)
    try:
        folder = workspace.run_folder(job.run_id)
    except UnsafePath:
        return Found(is_alive=False)
    if not is_log_held(folder):
        return Found(is_alive=False)
    return Found(is_alive=True, identity=find_process(job))


def find_process(job: Job) -> proc.Identity | None:
    """The first process of an attempt, told by its environment; None if nobody may look, or it is gone."""
    for pid, group in _processes_of(job):
        if pid == group:
            return proc.identity_of(pid)
    return None


def end_leftovers(job: Job, first: proc.Identity) -> None:
    """End what the first process of an attempt left behind in its group: a run is over when that process is.

    Each is told by its environment. The number of the group alone may be somebody else's by now.
    """
    for pid, group in _processes_of(job):
        if group == first.pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _processes_of(job: Job) -> Iterator[tuple[int, int]]:
    """Processes of an attempt, each with its group."""
    wanted = {f"RUNFORGE_JOB_ID={job.job_id}".encode(), f"RUNFORGE_ATTEMPT={job.attempt}".encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                yield int(folder.name), os.getpgid(int(folder.name))
