"""`RunForge`: every verb of the command line as a method, for programs.

    from queueyard.runforge import RunForge

    forge = RunForge.open(Path("workspace"))
    forge.enqueue_run("20260201-150000-mine-a1b2", retries=2)
    with forge.daemon(max_parallel=4):
        forge.wait("20260201-150000-mine-a1b2")

All methods are synchronous. They return records and raise the errors of `queueyard.runforge.errors`. One object may be
used for long: it notices what other processes write. It is not meant to be shared between threads.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any, Self

from queueyard.kernel import proc
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock
from queueyard.kernel.errors import QueueyardError, explaining
from queueyard.runforge import controls, enqueue, status
from queueyard.runforge.errors import DaemonRunning, UnknownRun
from queueyard.runforge.group_files import GroupFiles
from queueyard.runforge.plans import read_plan
from queueyard.runforge.records import ENDED, DaemonState, JobState, encode_pretty
from queueyard.runforge.rules import check_id, latest_by_run
from queueyard.runforge.settings import RunforgeSettings, load
from queueyard.runforge.store import Store
from queueyard.runforge.sweeps import load_plan, make_sweep, workspace_of
from queueyard.runforge.workspace import Workspace, find_workspace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from queueyard.kernel.atomic import BadLine
    from queueyard.kernel.settings import Settled
    from queueyard.runforge.records import Job, Raw
    from queueyard.runforge.status import Status
    from queueyard.runforge.sweeps import Sweep

_LOOK_EVERY_S = 0.1
_LOOK_FOR_DAEMON_EVERY_S = 0.01
#: beyond its own times of grace, for its last files
_LAST_WORDS_S = 10.0
_CHUNK = 65_536


class RunForge:
    """One workspace."""

    def __init__(
        self,
        workspace: Workspace,
        settled: Settled[RunforgeSettings],
        *,
        environment: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
        actor: str = "client",
    ) -> None:
        self.workspace = workspace
        self.settings = settled.values
        self.origin = settled.origin
        self.environment = environment
        self.clock = clock
        self.store = Store(workspace, clock=clock, lock_timeout_s=settled.values.lock_timeout_s, actor=actor)
        self.groups = GroupFiles(workspace, clock=clock)

    @classmethod
    def open(
        cls,
        workspace: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        actor: str = "client",
        **flags: Any,
    ) -> Self:
        """The workspace that is named, or the one around the current folder. NoWorkspace if there is none."""
        variables = os.environ if environment is None else environment
        found = find_workspace(workspace, variables, Path.cwd())
        settled = load(found.settings_file, variables, **flags)
        return cls(found, settled, environment=variables, clock=clock, actor=actor)

    # --- coming in ---------------------------------------------------------------------------------------------------

    def enqueue_run(
        self,
        run_id: str,
        *,
        group_id: str | None = None,
        priority: int = 0,
        after: Sequence[str] = (),
        retries: int = 0,
        backoff_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> Job:
        """Queue a run that has a folder; it survives everything from the moment this returns."""
        return enqueue.enqueue_run(
            self.store,
            self.groups,
            run_id=run_id,
            group_id=group_id,
            priority=priority,
            after=after,
            retries=retries,
            backoff_s=backoff_s,
            timeout_s=timeout_s,
        )

    def enqueue_sweep(self, sweep: Sweep | Raw, *, priority: int = 0) -> list[Job]:
        """Queue every run of a sweep, or none.

        It is one whose folders are there (`open_sweep`), or a plan, which runs in this workspace and may leave out
        version, kind and workspace. InvalidPlan.
        """
        if isinstance(sweep, dict):
            plan: Raw = {"version": 1, "kind": "sweep_plan", "workspace": self.workspace.root_text} | sweep
            sweep = make_sweep(self.workspace, read_plan(plan), encode_pretty(plan), at=self.clock.now())
        return enqueue.enqueue_sweep(self.store, self.groups, sweep, priority=priority)

    # --- running -----------------------------------------------------------------------------------------------------

    @contextmanager
    def daemon(self, *, max_parallel: int | None = None) -> Iterator[int]:
        """A daemon as a child of this process while the block runs; its pid. What it says is in queueyard-daemon.log.

        At the end it is asked to stop and waited for: what runs may finish within its time of grace, and is handed back
        to the queue after that. DaemonRunning if another one serves, QueueyardError if it ends at once.
        """
        words = [sys.executable, "-m", "runforge_cli", "daemon", "--workspace", self.workspace.root_text]
        if max_parallel is not None:
            words += ["--max-parallel", str(max_parallel)]
        self.workspace.make_queue_folder()
        with explaining("write to", self.workspace.daemon_log), self.workspace.daemon_log.open("ab") as log:
            child = proc.start(words, env=self.environment, stdout=log, stderr=log)
        try:
            self._wait_until_it_serves(child)
            yield child.pid
        finally:
            child.stop(grace_s=self.settings.shutdown_grace_s + self.settings.kill_grace_s + _LAST_WORDS_S)

    def _wait_until_it_serves(self, child: proc.Child) -> None:
        while True:
            has_ended = child.returncode is not None
            # daemon.json says running before the queue is read, which may still fail; this line comes behind that.
            if f"[RF:DAEMON=STARTED pid={child.pid} ".encode() in self.workspace.daemon_log.read_bytes():
                return
            known = status.daemon_status(self.store) if has_ended else None
            if known is not None and known.state == DaemonState.RUNNING:
                raise DaemonRunning(f"a daemon with pid {known.pid} serves {self.workspace.root} already")
            if has_ended:
                raise QueueyardError(
                    f"the daemon ended at once, with exit code {child.returncode}",
                    hint=f"See: {self.workspace.daemon_log}",
                )
            self.clock.sleep(_LOOK_FOR_DAEMON_EVERY_S)

    # --- groups ------------------------------------------------------------------------------------------------------

    def pause_group(self, group_id: str) -> bool:
        return controls.pause_group(self.store, self.groups, group_id)

    def resume_group(self, group_id: str) -> bool:
        return controls.resume_group(self.store, self.groups, group_id)

    def retry_failed(self, group_id: str) -> list[Job]:
        return controls.retry_failed(self.store, self.groups, group_id)

    def cancel_group(self, group_id: str, *, running: bool = False) -> list[Job]:
        return controls.cancel_group(
            self.store, self.groups, group_id, running=running, kill_grace_s=self.settings.kill_grace_s
        )

    # --- looking -----------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        return status.status(self.store, self.groups)

    def wait(self, target: str, *, timeout_s: float | None = None) -> dict[str, int]:
        """How the runs of a group, a run or a job ended, once they have."""
        return status.wait(self.store, target, timeout_s=timeout_s)

    def jobs(self) -> list[Job]:
        return list(self.store.look().jobs.values())

    def log_path(self, run: str) -> Path:
        """The log of a run, or of the run of a job. UnknownRun if there is no such folder."""
        job = self.store.look().jobs.get(run)
        folder = self.workspace.run_folder_followed(check_id(job.run_id if job else run, "run"))
        if not folder.is_dir():
            raise UnknownRun(f"Run directory not found: {folder}", hint="See: runforge-cli queue-status --jobs")
        return folder / "logs.txt"

    def follow_log(self, run: str) -> Iterator[bytes]:
        """What is in the log, then what comes, until the run is over; a new attempt is followed from its start."""
        path = self.log_path(run)
        seen, offset = -1, 0
        while True:
            is_over = self._is_over(path.parent.name)
            try:
                with path.open("rb") as stream:
                    inode = os.fstat(stream.fileno()).st_ino
                    offset = offset if inode == seen else 0
                    seen = inode
                    stream.seek(offset)
                    while data := stream.read(_CHUNK):
                        offset += len(data)
                        yield data
            except FileNotFoundError:
                pass
            if is_over:
                return
            self.clock.sleep(_LOOK_EVERY_S)

    def _is_over(self, run_id: str) -> bool:
        job = latest_by_run(self.store.look().jobs_of_run(run_id)).get(run_id)
        return job is None or job.state in ENDED

    # --- keeping house -----------------------------------------------------------------------------------------------

    def prune(self, *, older_than_s: float, states: Collection[JobState] = ENDED, dry_run: bool = False) -> list[Job]:
        return controls.prune(self.store, older_than_s=older_than_s, states=states, dry_run=dry_run)

    def bad_lines(self) -> list[BadLine]:
        """Lines of the journal that nobody can read, as far as they were looked at."""
        return self.store.bad


def open_sweep(
    plan: Path,
    workspace: Path | None,
    *,
    environment: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM_CLOCK,
    **flags: Any,
) -> tuple[RunForge, Sweep]:
    """Check a plan and make its folders, ready to be queued or run. InvalidPlan, MissingFiles, StorageFailed."""
    checked, data = load_plan(plan)
    where = workspace_of(checked, workspace)
    forge = RunForge.open(where.root, environment=environment, clock=clock, **flags)
    return forge, make_sweep(forge.workspace, checked, data, at=clock.now())
