"""The runs of the daemon: starting one, adopting one that an earlier daemon started, and what the end of one means."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError, StorageFailed, UnsafePath
from queueyard.runforge.errors import InvalidRequest, MissingFiles
from queueyard.runforge.execution import (
    Launch,
    LaunchFailed,
    Outcome,
    begin,
    conclude,
    environment_for_runs,
    outcome_told,
    prepare,
)
from queueyard.runforge.records import Ended, JobState, Returned, Started
from queueyard.runforge.recovery import end_leftovers, find_process, look_for
from queueyard.runforge.rules import after_failure, after_loss, ended, from_local_iso, handed_back, local_iso
from queueyard.runforge.run_files import is_log_held, reopen_log
from queueyard.runforge.slots import Running, Slots
from queueyard.runforge.tokens import job_done, job_started

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from queueyard.kernel import proc
    from queueyard.runforge.poller import Poller
    from queueyard.runforge.recorder import Recorder
    from queueyard.runforge.records import Job, Raw
    from queueyard.runforge.settings import RunforgeSettings
    from queueyard.runforge.store import Store

_HANDED_BACK = "handed back: the daemon was shut down while it ran"

#: a run that cannot be started fails; the next one is tried
_FAULTS_OF_ONE_RUN = (MissingFiles, InvalidRequest, UnsafePath, LaunchFailed)


class Crew:
    """What runs now, and which GPUs are free."""

    def __init__(
        self,
        store: Store,
        recorder: Recorder,
        settings: RunforgeSettings,
        poller: Poller,
        *,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        complain: Callable[[str], None],
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._settings = settings
        self._clock = store.clock
        self._workspace = store.workspace
        self._say = say
        self._complain = complain
        self.inherited = environment_for_runs(environment, keep=settings.pass_env)
        self._free_gpus = list(reversed(gpu_names(settings.gpu_slots, environment)))
        self._slots = Slots(poller, self._clock, kill_grace_s=settings.kill_grace_s, on_end=self._on_end)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def has_room(self) -> bool:
        return len(self._slots) < self._settings.max_parallel

    @property
    def has_gpu(self) -> bool:
        return bool(self._free_gpus)

    @property
    def gpu_jobs(self) -> int:
        return sum(running.gpu is not None for running in self._slots)

    # --- starting ----------------------------------------------------------------------------------------------------

    def start(self, job: Job) -> None:
        """Start a queued job; afterwards it runs, has failed, or is queued still because the disk refuses."""
        gpu = self._free_gpus[-1] if job.requires_gpu else None
        try:
            launch = prepare(
                self._workspace,
                job.run_id,
                inherited=self.inherited,
                job_id=job.job_id,
                group_id=job.group_id,
                attempt=job.attempt,
                gpu=gpu,
                executor=self._settings.executor,
            )
        except _FAULTS_OF_ONE_RUN as fault:
            self._finish(job, ended(job, JobState.FAILED, at=self._at(), error=str(fault)))
            return
        except StorageFailed as fault:
            self._recorder.refuse(fault)
            return
        is_written = self._recorder.write(Started(job_id=job.job_id, attempt=job.attempt, at=self._at()))
        # Somebody may have canceled it in the line before.
        if is_written and self._store.state.jobs[job.job_id].state is JobState.RUNNING:
            self._spawn(self._store.state.jobs[job.job_id], launch, gpu)

    def _spawn(self, job: Job, launch: Launch, gpu: str | None) -> None:
        try:
            child, log = begin(launch)
        except LaunchFailed as fault:
            self._finish(job, self._entry_for(job, Outcome(state=JobState.FAILED, error=str(fault))))
            return
        except StorageFailed as fault:
            self._recorder.add(handed_back(job, f"queued again: {fault}", at=self._at()))
            self._recorder.refuse(fault)
            return
        if gpu is not None:
            self._free_gpus.pop()
        limit_s = self._limit_s(job, launch)
        running = Running(
            job=job,
            launch=launch,
            child=child,
            identity=None,
            log=log,
            started=self._clock.now(),
            deadline_s=None if limit_s is None else self._clock.monotonic() + limit_s,
            limit_s=limit_s,
            gpu=gpu,
        )
        self._recorder.add_process(job, lambda: child.identity)
        self._slots.watch(running)
        self._say(job_started(job.job_id, job.run_id))

    def _limit_s(self, job: Job, launch: Launch) -> float | None:
        wished = self._store.state.extra_of(job.job_id).timeout_s
        return wished or launch.timeout_s or self._settings.job_timeout_s or None

    # --- after another daemon ----------------------------------------------------------------------------------------

    def pick_up(self, job: Job) -> None:
        """A job that is called running, and that no daemon looks after: adopt it, or settle it."""
        found = look_for(job, self._store.state.extra_of(job.job_id), self._workspace)
        if found.is_alive:
            self._adopt(job, found.identity)
        else:
            if found.identity is not None:
                end_leftovers(job, found.identity)
            self._finish(job, self._settled(job, was_named=found.identity is not None))

    def _adopt(self, job: Job, identity: proc.Identity | None) -> None:
        launch = self._launch_of_adopted(job)
        started = from_local_iso(job.started_at or "") or self._clock.now()
        limit_s = self._limit_s(job, launch)
        elapsed_s = (self._clock.now() - started).total_seconds()
        running = Running(
            job=job,
            launch=launch,
            child=None,
            identity=identity,
            log=reopen_log(launch.folder),
            started=started,
            deadline_s=None if limit_s is None else self._clock.monotonic() + limit_s - elapsed_s,
            limit_s=limit_s,
            gpu=self._free_gpus.pop() if job.requires_gpu and self._free_gpus else None,
        )
        self._complain(f"adopted {job.job_id} ({job.run_id}), which an earlier daemon started")
        if identity is not None:
            self._recorder.add_process(job, lambda: identity)
        self._slots.watch(running)

    def _launch_of_adopted(self, job: Job) -> Launch:
        try:
            return prepare(
                self._workspace, job.run_id, inherited={}, job_id=job.job_id, group_id=job.group_id, attempt=job.attempt
            )
        except QueueyardError:
            return Launch(
                folder=str(self._workspace.run_folder(job.run_id)),
                argv=[],
                cwd=self._workspace.root_text,
                env={},
                timeout_s=None,
                is_command=True,
                ticket=_ticket(job),
            )

    def look_for_unnamed(self) -> None:
        """Runs whose process nobody could name: maybe it can be named now, or is over."""
        for running in self._slots:
            if running.child is not None or running.identity is not None:
                continue
            if not is_log_held(running.launch.folder):
                self._on_end(running)
                continue
            identity = find_process(running.job)
            if identity is not None:
                self._recorder.add_process(running.job, lambda identity=identity: identity)  # type: ignore[misc]
                self._slots.name_process(running, identity)

    def _settled(self, job: Job, *, was_named: bool) -> Ended | Returned:
        """What becomes of a run that ended while no daemon looked."""
        try:
            folder = self._workspace.run_folder(job.run_id)
        except UnsafePath as fault:
            return ended(job, JobState.FAILED, at=self._at(), error=str(fault))
        outcome = outcome_told(folder, _ticket(job), unsigned_too=was_named)
        if outcome is None:
            return after_loss(job, self._store.state.extra_of(job.job_id), at=self._at())
        return self._entry_for(job, outcome)

    # --- ending ------------------------------------------------------------------------------------------------------

    def _on_end(self, running: Running) -> None:
        code = self._slots.release(running)
        self._recorder.drop_process(running.job.job_id)
        job = running.job
        if running.hand_back is not None:
            entry: Ended | Returned = handed_back(job, running.hand_back, at=self._at())
        elif code is None and running.stopped is None:
            entry = self._settled(job, was_named=running.identity is not None)
        else:
            outcome = conclude(
                running.launch,
                code=0 if code is None else code,
                stopped=running.stopped,
                started=running.started,
                finished=self._clock.now(),
                log=running.log,
            )
            entry = self._entry_for(job, outcome)
        if running.log is not None:
            os.close(running.log)
        if running.gpu is not None:
            self._free_gpus.append(running.gpu)
        self._finish(job, entry)

    def _entry_for(self, job: Job, outcome: Outcome) -> Ended | Returned:
        moment = self._clock.now()
        at = local_iso(moment)
        if outcome.state is not JobState.FAILED:
            return ended(job, outcome.state, at=at, error=outcome.error)
        return after_failure(
            job,
            self._store.state.extra_of(job.job_id),
            outcome.error or "failed",
            at=at,
            now_s=moment.timestamp(),
            random=random.random,
        )

    def _finish(self, job: Job, entry: Ended | Returned) -> None:
        if isinstance(entry, Ended) and entry.state is JobState.FAILED:
            # Others may end by it (fail_fast): that is known before the next start is written.
            self._recorder.write(entry)
        else:
            self._recorder.add(entry)
        if isinstance(entry, Returned):
            self._complain(f"{job.job_id} ({job.run_id}) is queued again: {entry.reason}")
        else:
            self._say(job_done(job.job_id, job.run_id, entry.state))

    # --- stopping ----------------------------------------------------------------------------------------------------

    def stop_what_is_wished(self) -> None:
        """End the runs that somebody wants to end."""
        for running in self._slots:
            why = self._store.state.extra_of(running.job.job_id).stop
            if why is not None:
                self._slots.stop(running, Outcome(state=JobState.CANCELED, error=why))

    def hand_back_all(self) -> None:
        """End everything; it is queued again."""
        for running in self._slots:
            self._slots.stop(running, None, hand_back=_HANDED_BACK)

    def enforce(self) -> None:
        self._slots.enforce()

    def next_due_s(self) -> float | None:
        return self._slots.next_due_s()

    def _at(self) -> str:
        return local_iso(self._clock.now())


def gpu_names(slots: int, environment: Mapping[str, str]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES is for each GPU slot: the devices that we see ourselves, in turn."""
    visible = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return [visible[slot % len(visible)] if visible else str(slot) for slot in range(slots)]


def _ticket(job: Job) -> Raw:
    return {"job_id": job.job_id, "attempt": job.attempt}
