"""How a daemon becomes the only one; what it does then is shown by the real thing in contract and promises."""

from __future__ import annotations

from contextlib import ExitStack
import fcntl
import os
import subprocess
from typing import IO, TYPE_CHECKING

import pytest

from queueyard.kernel.lifecycle import Lifecycle
from queueyard.kernel.testing import FakeClock
from queueyard.runforge.errors import DaemonRunning
from queueyard.runforge.group_files import GroupFiles
from queueyard.runforge.settings import RunforgeSettings
from queueyard.runforge.store import Store
from queueyard.runforge.worker import Daemon

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.runforge.workspace import Workspace


class _Meanwhile(FakeClock):
    """A clock on which something happens while somebody sleeps."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self._act = act

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._act()


def daemon(workspace: Workspace, clock: FakeClock) -> Daemon:
    return Daemon(
        Store(workspace, clock=clock),
        GroupFiles(workspace, clock=clock),
        RunforgeSettings(),
        environment={},
        say=print,
        complain=print,
        lifecycle=Lifecycle(),
    )


def lock_of(workspace: Workspace, pid: int) -> IO[str]:
    """The lock of a daemon, held by us and signed by `pid`."""
    workspace.make_queue_folder()
    lock = workspace.daemon_lock.open("w", encoding="ascii")
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(str(pid))
    lock.flush()
    return lock


def pid_of_the_dead() -> int:
    return int(subprocess.run(["sh", "-c", "echo $$"], capture_output=True, check=True).stdout)


def test_a_lock_that_a_killed_daemon_left_to_a_program_that_is_being_loaded_is_waited_for(workspace: Workspace) -> None:
    lock = lock_of(workspace, pid_of_the_dead())
    starting = daemon(workspace, _Meanwhile(lock.close))

    with ExitStack() as stack:
        starting._be_the_only_one(stack)

        assert workspace.daemon_lock.read_text() == str(os.getpid())


def test_the_lock_of_a_living_daemon_is_not_waited_for(workspace: Workspace) -> None:
    with lock_of(workspace, os.getpid()) as lock, ExitStack() as stack:
        with pytest.raises(DaemonRunning, match=f"pid {os.getpid()} serves"):
            daemon(workspace, _Meanwhile(lock.close))._be_the_only_one(stack)

        assert not lock.closed


def test_a_lock_that_stays_with_somebody_unknown_is_refused_in_the_end(workspace: Workspace) -> None:
    with lock_of(workspace, pid_of_the_dead()), ExitStack() as stack, pytest.raises(DaemonRunning):
        daemon(workspace, FakeClock())._be_the_only_one(stack)
