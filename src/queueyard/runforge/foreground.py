"""`run --run-dir`: one run in this process, as the queue and RunForge Desktop start it.

Tokens and talk go to stdout and to logs.txt; where stdout is logs.txt already, because the daemon put it there, once.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path
import signal
import sys
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.kernel.errors import QueueyardError
from queueyard.runforge.errors import Canceled, InvalidRequest, MissingFiles, RunFailed
from queueyard.runforge.execution import Outcome, conclude, environment_for_runs, prepare
from queueyard.runforge.groups import primary_metric
from queueyard.runforge.records import JobState
from queueyard.runforge.run_files import LOG, forget_result, open_log, read_request, write_result
from queueyard.runforge.tokens import Stage, stage
from queueyard.runforge.training import Trained, dataset_path, effective_config, read_table, train
from queueyard.runforge.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from queueyard.runforge.records import Raw

_CHUNK = 65_536


class _Stopped(BaseException):
    """Somebody asked us to end; nothing on the way may take it for a failure."""


@dataclass(frozen=True, slots=True)
class Log:
    """stdout and logs.txt; `file` is None where they are one."""

    file: int | None

    def say(self, line: str) -> None:
        """Talk, with the time; tokens stand alone on their line."""
        if not line.startswith("[RF:"):
            line = f"[{SYSTEM_CLOCK.now():%Y-%m-%d %H:%M:%S}] {line}"
        self.raw(f"{line}\n".encode("utf-8", "replace"))

    def raw(self, data: bytes) -> None:
        sys.stdout.flush()
        for descriptor in (sys.stdout.fileno(), self.file):
            if descriptor is not None:
                os.write(descriptor, data)


def run_here(
    folder: Path,
    workspace: Path | None,
    *,
    dry_run: bool = False,
    max_rows: int | None = None,
    environment: Mapping[str, str],
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Execute the run; result.json, logs.txt and artefacts are in its folder afterwards.

    MissingFiles, InvalidRequest (no result.json then), RunFailed, or Canceled after TERM or INT.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100  links stay as they are written
    if not folder.is_dir():
        raise MissingFiles(f"Run directory not found: {folder}", hint="Name it: --run-dir PATH")
    root = Path(os.path.abspath(workspace)) if workspace else folder.parent.parent.parent  # noqa: PTH100
    if not (folder / "request.json").is_file():
        raise MissingFiles(f"request.json not found in {folder}", hint=f"Write one: $EDITOR {folder / 'request.json'}")
    log = Log(_own_log(folder))
    log.say(stage(Stage.STARTING))
    try:
        request = read_request(folder)
    except InvalidRequest as fault:
        log.say(f"ERROR: {fault}")
        log.say(stage(Stage.FAILED))
        raise
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    one = _Run(folder=folder, workspace=Workspace(root), request=request, log=log, clock=clock, environment=environment)
    if "command" in request:
        one.command(dry_run=dry_run)
    else:
        one.training(dry_run=dry_run, max_rows=max_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    folder: Path
    workspace: Workspace
    request: Raw
    log: Log
    clock: Clock
    environment: Mapping[str, str]

    def training(self, *, dry_run: bool, max_rows: int | None) -> None:
        started = self.clock.now()
        trained = Trained()
        outcome = Outcome(state=JobState.SUCCEEDED)
        kind = ""
        try:
            if dry_run:
                self._check(trained, max_rows)
            else:
                train(
                    self.request,
                    workspace=self.workspace.root,
                    folder=self.folder,
                    trained=trained,
                    say=self.log.say,
                    max_rows=max_rows,
                )
        except _Stopped:
            outcome = Outcome(state=JobState.CANCELED, error="canceled")
        except Exception as fault:  # noqa: BLE001  whatever a model makes of its parameters is a failure of the run
            outcome, kind = Outcome(state=JobState.FAILED, error=str(fault)), type(fault).__name__
            self.log.say(f"ERROR: {fault}")
        finished = self.clock.now()
        result: Raw = {
            "version": 1,
            "status": "cancelled" if outcome.state is JobState.CANCELED else str(outcome.state),
            "started_at": to_rfc3339(started),
            "finished_at": to_rfc3339(finished),
            "duration_ms": max(0, round((finished - started).total_seconds() * 1000)),
            "summary": {"metrics": trained.metrics},
            "effective_config": trained.effective_config,
            "artifacts": trained.artifacts,
            "error": {"message": outcome.error, "type": kind or "Canceled"} if outcome.error else None,
        }
        metric = primary_metric(result)
        if metric:
            result["summary"] = {"primary_metric": metric, "metrics": trained.metrics}
        ticket = self._ticket()
        if ticket:
            result["queueyard"] = ticket
        write_result(self.folder, result)
        self._tell(outcome)

    def _check(self, trained: Trained, max_rows: int | None) -> None:
        """A dry run: everything that can be wrong before the training."""
        trained.effective_config = effective_config(self.request)
        path = dataset_path(self.workspace.root, self.request)
        table = read_table(path, self.request["dataset"]["label_column"], max_rows=max_rows)
        self.log.say(f"Dry run: {len(table.rows)} rows and {len(table.columns)} features can be read")

    def command(self, *, dry_run: bool) -> None:
        launch = prepare(
            self.workspace,
            self.folder.name,
            inherited=environment_for_runs(self.environment),
            folder=str(self.folder),
        )
        if dry_run:
            self.log.say(f"Dry run: would start {launch.argv[0]} in {launch.cwd}")
            return
        forget_result(self.folder)
        started = self.clock.now()
        code, stopped = self._executed(launch.argv, Path(launch.cwd), launch.env, launch.timeout_s)
        outcome = conclude(launch, code=code, stopped=stopped, started=started, finished=self.clock.now(), log=None)
        self._tell(outcome)

    def _executed(
        self, argv: list[str], cwd: Path, env: dict[str, str], timeout_s: float | None
    ) -> tuple[int, Outcome | None]:
        """Exit code, and the outcome if it did not end by itself; its output goes on to us as it comes."""
        import subprocess  # noqa: PLC0415  only for a command

        try:
            child = proc.start(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as fault:
            self.log.say(f"ERROR: cannot start {argv[0]}: {fault.strerror}")
            return 127, None
        deadline = None if timeout_s is None else self.clock.monotonic() + timeout_s
        try:
            if self._copied(child, deadline):
                return child.wait() or 0, None
        except _Stopped:
            code = child.stop(grace_s=5.0)
            return code, Outcome(state=JobState.CANCELED, error="canceled")
        code = child.stop(grace_s=5.0)
        return code, Outcome(state=JobState.FAILED, error=f"timed out after {timeout_s:g} s")

    def _copied(self, child: proc.Child, deadline: float | None) -> bool:
        """Copy what the child says until it has said all; False if time ran out first."""
        import select  # noqa: PLC0415

        source = child.stdout
        if source is None:
            raise AssertionError("started with a pipe")
        poller = select.poll()
        poller.register(source, select.POLLIN | select.POLLHUP)
        while True:
            left_ms = None if deadline is None else max(0.0, deadline - self.clock.monotonic()) * 1000
            if not poller.poll(left_ms):
                return False
            data = os.read(source.fileno(), _CHUNK)
            if not data:
                return True
            self.log.raw(data)

    def _ticket(self) -> Raw:
        """Which attempt of which job this is, where the daemon started us: it knows the result by it."""
        job_id, attempt = self.environment.get("RUNFORGE_JOB_ID"), self.environment.get("RUNFORGE_ATTEMPT", "")
        return {"job_id": job_id, "attempt": int(attempt)} if job_id and attempt.isdecimal() else {}

    def _tell(self, outcome: Outcome) -> None:
        """The last token, and the exit code that goes with it."""
        self.log.say(stage(Stage.COMPLETED if outcome.state is JobState.SUCCEEDED else Stage.FAILED))
        hint = f"See: {self.folder / LOG}"
        if outcome.state is JobState.CANCELED:
            raise Canceled(f"{self.folder.name} was canceled", hint=hint)
        if outcome.state is JobState.FAILED:
            raise RunFailed(f"{self.folder.name} failed: {outcome.error}", hint=hint)


def _own_log(folder: Path) -> int | None:
    """A new logs.txt, unless stdout is the one that is there."""
    try:
        there = os.stat(folder / LOG)  # noqa: PTH116
        if os.path.samestat(there, os.fstat(sys.stdout.fileno())):
            return None
    except (OSError, ValueError):
        pass
    try:
        return open_log(folder)
    except OSError as fault:
        raise QueueyardError(f"cannot write {folder / LOG}: {fault.strerror}", hint=f"ls -ld {folder}") from fault


def _stop(_number: int, _frame: FrameType | None) -> None:
    raise _Stopped
