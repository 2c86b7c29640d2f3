"""How one run is executed: what is started, in which environment, and what is made of its end.

A `command` request is started as it is, without a process in between; its result.json is written afterwards by whoever
waited for it. A training request is started as `python -m runforge_cli run`, which writes its own. Both write to
logs.txt by its file descriptor: nothing is held in memory, and nothing breaks when the daemon goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import errno
import os
import sys
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import QueueyardError, StorageFailed, explaining
from queueyard.runforge.groups import primary_metric
from queueyard.runforge.records import JobState
from queueyard.runforge.run_files import (
    Folder,
    forget_result,
    last_words,
    open_log,
    read_metrics,
    read_request,
    read_result,
    write_log,
    write_result,
)
from queueyard.runforge.settings import LOCAL
from queueyard.runforge.spawn import Process, spawn
from queueyard.runforge.tokens import Stage, stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from queueyard.runforge.records import Raw
    from queueyard.runforge.workspace import Workspace

#: exit codes of `run`, as the public tool has them
SUCCESS, FAILED, INVALID_REQUEST, MISSING_FILES, INTERNAL_ERROR, CANCELED = range(6)

#: the disk refuses everybody, so that failing one run after the other would only empty the queue
_DISK_REFUSES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}

_RESULT_STATUS = {
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    # The result contract spells it with two l.
    JobState.CANCELED: "cancelled",
}
STATE_OF_RESULT = {status: state for state, status in _RESULT_STATUS.items()}


class LaunchFailed(QueueyardError):
    """The program of a run could not be started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """Everything that starting a run needs, read and checked."""

    folder: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    #: from the request; None where it sets no limit
    timeout_s: float | None
    is_command: bool
    #: words before argv of what carries the run elsewhere and ends as it does; empty where it is started here
    carrier: list[str] = field(default_factory=list)
    #: which attempt of which job writes the result; empty outside the queue
    ticket: Raw = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How an attempt ended."""

    state: JobState
    error: str | None = None


def environment_for_runs(environment: Mapping[str, str], *, keep: tuple[str, ...] = ()) -> dict[str, str]:
    """What every run inherits: ours less the secrets, and Python that does not hold its output back."""
    return {"PYTHONUNBUFFERED": "1"} | proc.without_secrets(environment, keep=keep)


def prepare(
    workspace: Workspace,
    run_id: str,
    *,
    inherited: Mapping[str, str],
    job_id: str | None = None,
    group_id: str | None = None,
    attempt: int = 1,
    gpu: str | None = None,
    folder: str | None = None,
    executor: str = LOCAL,
) -> Launch:
    """Read the request of a run. MissingFiles, InvalidRequest and UnsafePath concern this run alone."""
    folder = folder or str(workspace.run_folder(run_id))
    request = read_request(folder)
    env = {
        **inherited,
        **_words(request.get("env")),
        "RUNFORGE_RUN_ID": run_id,
        "RUNFORGE_GROUP_ID": group_id or "",
        "RUNFORGE_ATTEMPT": str(attempt),
        "RUNFORGE_RUN_DIR": folder,
        "RUNFORGE_WORKSPACE": workspace.root_text,
    }
    if job_id is not None:
        env["RUNFORGE_JOB_ID"] = job_id
    if gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = gpu
    is_command = "command" in request
    return Launch(
        folder=folder,
        argv=[str(word) for word in request["command"]] if is_command else training_argv(workspace, folder),
        cwd=str(workspace.root / request["cwd"]) if request.get("cwd") else workspace.root_text,
        env=env,
        timeout_s=request.get("timeout_s"),
        is_command=is_command,
        carrier=carrier_words(executor),
        ticket={} if job_id is None else {"job_id": job_id, "attempt": attempt},
    )


def carrier_words(executor: str) -> list[str]:
    """What is put before the program of a run; its environment says which run it is."""
    if executor == LOCAL:
        return []
    beside = os.path.join(os.path.dirname(sys.executable), "queueyard")  # noqa: PTH118, PTH120  on the way of every start
    return [beside if os.access(beside, os.X_OK) else "queueyard", "bridge", "executor", executor, "--"]


def training_argv(workspace: Workspace, folder: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "runforge_cli",
        "run",
        "--run-dir",
        folder,
        "--workspace",
        workspace.root_text,
    ]


def begin(launch: Launch) -> tuple[Process, int]:
    """Start the run; its process and its log.

    LaunchFailed if this run cannot be started, StorageFailed if none can.
    """
    try:
        forget_result(launch.folder)
        log = open_log(launch.folder)
    except OSError as fault:
        if fault.errno in _DISK_REFUSES:
            with explaining("write to", launch.folder):
                raise fault from None
        raise LaunchFailed(f"cannot write to {launch.folder}: {os.strerror(fault.errno or 0)}") from fault
    try:
        if launch.is_command:
            write_log(log, stage(Stage.STARTING))
        return spawn([*launch.carrier, *launch.argv], cwd=launch.cwd, env=launch.env, output=log), log
    except (OSError, ValueError) as fault:
        failure = _start_failure(launch, fault)
        write_log(log, f"ERROR: {failure}")
        write_log(log, stage(Stage.FAILED))
        os.close(log)
        raise failure from fault


def _start_failure(launch: Launch, fault: OSError | ValueError) -> QueueyardError:
    if isinstance(fault, OSError) and fault.errno in _DISK_REFUSES:
        return StorageFailed(f"cannot start a process: {os.strerror(fault.errno or 0)}")
    if not os.path.isdir(launch.cwd):  # noqa: PTH112  text, as everything here
        return LaunchFailed(f"no such folder to run in: {launch.cwd}")
    why = os.strerror(fault.errno) if isinstance(fault, OSError) and fault.errno else str(fault)
    return LaunchFailed(f"cannot start {(launch.carrier or launch.argv)[0]}: {why}")


def conclude(
    launch: Launch,
    *,
    code: int,
    stopped: Outcome | None,
    started: datetime,
    finished: datetime,
    log: int | None,
) -> Outcome:
    """What the end of a process means: the outcome, with result.json and the last token written.

    `stopped` is the outcome that whoever ended the process had in mind. A result that cannot be written is no reason
    to call the run failed; the queue has its outcome.
    """
    outcome = _outcome(launch, code, stopped)
    result = read_result(launch.folder)
    if launch.is_command:
        if log is not None:
            write_log(log, stage(Stage.COMPLETED if outcome.state is JobState.SUCCEEDED else Stage.FAILED))
        _write_result(launch, outcome, code, result or {}, started=started, finished=finished)
    elif result is None and code != INVALID_REQUEST:
        # A training that was killed had no chance to write one.
        _write_result(launch, outcome, code, {}, started=started, finished=finished)
    return outcome


def _outcome(launch: Launch, code: int, stopped: Outcome | None) -> Outcome:
    if stopped is not None:
        return stopped
    if code == SUCCESS:
        return Outcome(state=JobState.SUCCEEDED)
    if code == CANCELED and not launch.is_command:
        return Outcome(state=JobState.CANCELED, error="canceled")
    told = f"Exit code: {code}" if code > 0 else f"ended by signal {-code}"
    return Outcome(state=JobState.FAILED, error=last_words(launch.folder) or told)


def _write_result(
    launch: Launch, outcome: Outcome, code: int, own: Raw, *, started: datetime, finished: datetime
) -> None:
    """result.json of a run that did not write it; what a command wrote itself stays, apart from how it ended."""
    metrics = read_metrics(launch.folder)
    summary: Raw | None = {"metrics": metrics} if metrics else None
    result: Raw = {
        "version": 1,
        "status": _RESULT_STATUS[outcome.state],
        "started_at": to_rfc3339(started),
        "finished_at": to_rfc3339(finished),
        "duration_ms": max(0, round((finished - started).total_seconds() * 1000)),
        "summary": summary,
        "artifacts": [],
        "error": None,
    }
    if summary is not None:
        summary["primary_metric"] = primary_metric(result)
    if launch.is_command:
        result["effective_config"] = {"command": launch.argv, "cwd": launch.cwd}
    result |= {key: value for key, value in own.items() if key not in {"version", "status"}}
    if outcome.error:
        result["error"] = {"message": outcome.error, "type": "RunFailed" if code >= 0 else "Killed"}
    if launch.ticket:
        result["queueyard"] = launch.ticket | {"exit_code": code}
    try:
        write_result(launch.folder, result)
    except StorageFailed:
        return


def outcome_told(folder: Folder, ticket: Raw, *, unsigned_too: bool) -> Outcome | None:
    """The outcome that result.json tells of this very attempt; None if it tells of none.

    A result without our signature counts where the attempt is known to have begun: beginning removes older ones.
    """
    result = read_result(folder)
    if result is None or result.get("status") not in STATE_OF_RESULT:
        return None
    signed = result.get("queueyard")
    if (signed.items() >= ticket.items()) if isinstance(signed, dict) else unsigned_too:
        error = result.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        return Outcome(state=STATE_OF_RESULT[result["status"]], error=message if isinstance(message, str) else None)
    return None


def _words(env: object) -> dict[str, str]:
    return {name: str(value) for name, value in env.items()} if isinstance(env, dict) else {}
