"""What may be wrong with the files of a queue, and the repair of each.

Looking changes nothing. A repair keeps what it takes away: a file that nobody can read is kept beside the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import read_document, replace_file
from queueyard.kernel.errors import CorruptFile, QueueyardError, UnsafePath, explaining
from queueyard.kernel.findings import Finding
from queueyard.runforge.enqueue import save_group
from queueyard.runforge.errors import DaemonRunning
from queueyard.runforge.records import Added, DaemonState, JobState, decode_checkpoint, decode_daemon, decode_queue
from queueyard.runforge.recovery import look_for
from queueyard.runforge.rules import after_loss, ended, latest_by_run, local_iso
from queueyard.runforge.state import QueueState
from queueyard.runforge.status import daemon_status
from queueyard.runforge.store import WAKE

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.runforge.service import RunForge


_Look = Iterator[tuple[Finding, Callable[[], object] | None]]


def examine(forge: RunForge, *, fix: bool = False) -> list[Finding]:
    """Everything that is wrong; with `fix`, what can be mended is mended. DaemonRunning: not under its hands."""
    found: list[Finding] = []
    # Files that cannot be read come first: the others are not looked at before those are mended.
    for looks in ((_sidecar, _queue_file), (_daemon_file, _lines, _lost_jobs, _groups, _runs)):
        for look in looks:
            for finding, mend in look(forge):
                if fix and mend is not None:
                    _refuse_beside_a_daemon(forge)
                    mend()
                    found.append(msgspec.structs.replace(finding, fixed=True))
                else:
                    found.append(finding)
        if any(not one.fixed for one in found):
            return found
    return found


def _refuse_beside_a_daemon(forge: RunForge) -> None:
    if forge.store.wake(WAKE):
        pid = daemon_status(forge.store).pid
        raise DaemonRunning(
            "a daemon is at work on these files; it must not be mended under its hands",
            hint=f"Stop it first: kill {pid}    then: runforge-cli doctor --fix",
        )


# --- files that cannot be read ---------------------------------------------------------------------------------------


def _sidecar(forge: RunForge) -> _Look:
    path = forge.workspace.sidecar
    try:
        read_document(path, decode_checkpoint, repair="")
    except CorruptFile as fault:
        finding = Finding(
            check="sidecar",
            problem=str(fault),
            advice="--fix rebuilds it from queue.json and the journal",
            fixable=True,
        )
        yield finding, lambda: _rebuild_sidecar(forge, path)


def _rebuild_sidecar(forge: RunForge, path: Path) -> None:
    """The last queue.json tells all jobs as they were then; the journal tells what happened since."""
    state = QueueState()
    with suppress(CorruptFile):
        queue = read_document(forge.workspace.queue_file, decode_queue, repair="")
        if queue is not None:
            state.apply(Added(jobs=queue.jobs), 0)
            state.max_parallel, state.gpu_slots = queue.max_parallel, queue.gpu_slots
            state.last_served_group = queue.last_served_group
    state.unsaved = dict.fromkeys(state.group_jobs, 0)
    with forge.store.repairing():
        _set_aside(path)
        forge.store.start_over_from(state)
        forge.store.rebuild()


def _queue_file(forge: RunForge) -> _Look:
    path = forge.workspace.queue_file
    try:
        read_document(path, decode_queue, repair="")
    except CorruptFile as fault:
        finding = Finding(
            check="queue.json", problem=str(fault), advice="--fix writes it anew from the journal", fixable=True
        )
        yield finding, lambda: _rebuild_queue(forge, path)


def _rebuild_queue(forge: RunForge, path: Path) -> None:
    with forge.store.repairing():
        _set_aside(path)
        forge.store.refresh()
        forge.store.rebuild()


def _daemon_file(forge: RunForge) -> _Look:
    path = forge.workspace.daemon_file
    try:
        known = read_document(path, decode_daemon, repair="")
    except CorruptFile as fault:
        finding = Finding(check="daemon.json", problem=str(fault), advice="--fix removes it", fixable=True)
        yield finding, lambda: _take_away(path)
        return
    if known is not None and daemon_status(forge.store).state == "dead":
        finding = Finding(
            check="daemon.json",
            problem=f"the daemon (pid {known.pid}) died: daemon.json still says {known.state}",
            advice="--fix says that it stopped; a new daemon does so as well",
            fixable=True,
        )
        stopped = msgspec.structs.replace(known, state=DaemonState.STOPPED, active_jobs=0, active_gpu_jobs=0)
        yield finding, lambda: forge.store.write_daemon(stopped)


def _lines(forge: RunForge) -> _Look:
    forge.store.refresh()
    bad = [one for one in forge.store.bad if one.reason != "torn last line"]
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        finding = Finding(
            check="journal",
            problem=f"{bad[0]}{more}",
            advice="--fix starts a new journal behind what can be read",
            fixable=True,
        )
        yield finding, lambda: _start_new_journal(forge)


def _start_new_journal(forge: RunForge) -> None:
    with forge.store.locked():
        forge.store.publish()
        forge.store.compact()


# --- things that do not fit together ---------------------------------------------------------------------------------


def _lost_jobs(forge: RunForge) -> _Look:
    """Jobs that are called running where nothing runs, and no daemon is there to see it."""
    if daemon_status(forge.store).state in {"running", "stopping"}:
        return
    state = forge.store.look()
    for job in list(state.in_state(JobState.RUNNING)):
        if not look_for(job, state.extra_of(job.job_id), forge.workspace).is_alive:
            finding = Finding(
                check="running jobs",
                problem=f"{job.job_id} ({job.run_id}) is called running, but nothing of it is left",
                advice="--fix queues it again; so does the next daemon",
                fixable=True,
            )
            yield finding, lambda name=job.job_id: _queue_again(forge, name)  # type: ignore[misc]


def _queue_again(forge: RunForge, job_id: str) -> None:
    with forge.store.writing():
        job = forge.store.state.jobs[job_id]
        extra = forge.store.state.extra_of(job_id)
        forge.store.commit(after_loss(job, extra, at=local_iso(forge.clock.now())))


def _groups(forge: RunForge) -> _Look:
    """group.json says of each run what the queue says of its last job."""
    state = forge.store.look()
    for group_id in list(state.group_jobs):
        problem, unreadable = _group_problem(forge, state, group_id)
        if problem is None:
            continue
        finding = Finding(check="groups", problem=problem, advice="--fix brings it up to date", fixable=True)
        yield finding, lambda one=group_id, bad=unreadable: _mend_group(forge, one, unreadable=bad)  # type: ignore[misc]


def _group_problem(forge: RunForge, state: QueueState, group_id: str) -> tuple[str | None, bool]:
    try:
        raw = forge.groups.read(group_id)
    except CorruptFile as fault:
        return str(fault), True
    except UnsafePath:
        return None, False
    if raw is None:
        return f"{group_id} has jobs, but no group.json", False
    told = {run["run_id"]: run.get("status") for run in raw["runs"]}
    wrong = [
        f"{run_id} is {job.state}, not {told.get(run_id)}"
        for run_id, job in latest_by_run(state.of_group(group_id)).items()
        if told.get(run_id) != job.state
    ]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return (f"{group_id}: {wrong[0]}{more}", False) if wrong else (None, False)


def _mend_group(forge: RunForge, group_id: str, *, unreadable: bool) -> None:
    path = forge.workspace.group_file(group_id)
    with forge.store.writing():
        if unreadable:
            _take_away(path)
        save_group(forge.store, forge.groups, group_id)


def _runs(forge: RunForge) -> _Look:
    """Queued runs without a folder will fail; better to know before."""
    for job in forge.store.look().in_state(JobState.QUEUED):
        try:
            folder = forge.workspace.run_folder(job.run_id)
            problem = None if (folder / "request.json").is_file() else f"{folder} has no request.json"
        except UnsafePath as fault:
            problem = str(fault)
        if problem:
            finding = Finding(
                check="runs",
                problem=f"{job.job_id} cannot be started: {problem}",
                advice="Write its request, or let --fix end it as failed",
                fixable=True,
            )
            yield finding, lambda name=job.job_id, why=problem: _fail(forge, name, why)  # type: ignore[misc]


def _fail(forge: RunForge, job_id: str, why: str) -> None:
    with forge.store.writing():
        job = forge.store.state.jobs[job_id]
        forge.store.commit(ended(job, JobState.FAILED, at=local_iso(forge.clock.now()), error=why))
        if job.group_id is not None:
            with suppress(QueueyardError):
                save_group(forge.store, forge.groups, job.group_id)


def _set_aside(path: Path) -> None:
    with explaining("read", path):
        if path.exists():
            replace_file(path.with_name(f"{path.name}.damaged"), path.read_bytes())


def _take_away(path: Path) -> None:
    _set_aside(path)
    path.unlink(missing_ok=True)
