"""`sweep` without the queue: this process runs the plan itself, as many at once as the plan says.

The group is kept up to date while it runs. The first signal, or the first failure of a plan that fails fast, ends it:
what has not begun is canceled, and what runs is stopped (unless the plan says stop_on_cancel: false).
"""

from __future__ import annotations

from collections import deque
from contextlib import closing
import os
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.lifecycle import Lifecycle, Phase
from queueyard.runforge import tokens
from queueyard.runforge.errors import InvalidRequest, MissingFiles
from queueyard.runforge.execution import LaunchFailed, Outcome, begin, conclude, environment_for_runs, prepare
from queueyard.runforge.groups import new_group
from queueyard.runforge.pace import Pace
from queueyard.runforge.poller import Poller
from queueyard.runforge.records import Job, JobState
from queueyard.runforge.rules import local_iso
from queueyard.runforge.slots import Running, Slots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from queueyard.kernel.clock import Clock
    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.records import Raw
    from queueyard.runforge.settings import RunforgeSettings
    from queueyard.runforge.sweeps import Sweep

_SAVE_EVERY_S = 0.2
_SAVE_SHARE = 0.1


class DirectSweep:
    """One sweep that runs by itself. `run` returns its group when all is over."""

    def __init__(
        self,
        sweep: Sweep,
        groups: GroupFiles,
        settings: RunforgeSettings,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        say: Callable[[str], None],
        lifecycle: Lifecycle,
    ) -> None:
        self._sweep = sweep
        self._groups = groups
        self._settings = settings
        self._clock = clock
        self._say = say
        self._lifecycle = lifecycle
        self._inherited = environment_for_runs(environment, keep=settings.pass_env)
        self._poller = Poller()
        self._slots = Slots(self._poller, clock, kill_grace_s=settings.kill_grace_s, on_end=self._on_end)
        # A job without a queue: what group.json is told from.
        self._pending = deque(
            Job(job_id=run_id, run_id=run_id, group_id=sweep.group_id, created_at=local_iso(clock.now()))
            for run_id in sweep.run_ids
        )
        self._begun = 0
        self._changed: dict[str, Job] = {}
        self._saves = Pace(clock, every_s=_SAVE_EVERY_S, share=_SAVE_SHARE)
        self._is_canceled = False

    def run(self) -> Raw:
        """Run everything; the group as it was saved last."""
        group_id = self._sweep.group_id
        at = local_iso(self._clock.now())
        self._groups.write_new(
            group_id, new_group(group_id, self._sweep.run_ids, at=at, plan=self._sweep.plan, status="pending")
        )
        self._say(tokens.group_start(group_id, len(self._sweep.run_ids)))
        self._poller.register(self._lifecycle.fileno(), self._on_signal)
        with closing(self._poller):
            while self._pending or len(self._slots):
                while self._pending and len(self._slots) < self._sweep.plan.max_parallel:
                    self._start(self._pending.popleft())
                self._save_if_due()
                self._poller.wait(self._idle_s())
                self._slots.enforce()
        return self._told_end(self._save())

    def _start(self, job: Job) -> None:
        self._begun += 1
        self._say(tokens.group_run(job.run_id, self._begun, len(self._sweep.run_ids)))
        try:
            launch = prepare(
                self._sweep.workspace, job.run_id, inherited=self._inherited, group_id=self._sweep.group_id
            )
            child, log = begin(launch)
        except (MissingFiles, InvalidRequest, LaunchFailed) as fault:
            self._ended(job, Outcome(state=JobState.FAILED, error=str(fault)))
            return
        now = self._clock.now()
        job = msgspec.structs.replace(job, state=JobState.RUNNING, started_at=local_iso(now))
        limit_s = launch.timeout_s or self._settings.job_timeout_s or None
        running = Running(
            job=job,
            launch=launch,
            child=child,
            identity=None,
            log=log,
            started=now,
            deadline_s=None if limit_s is None else self._clock.monotonic() + limit_s,
            limit_s=limit_s,
        )
        self._changed[job.run_id] = job
        self._slots.watch(running)

    def _on_end(self, running: Running) -> None:
        code = self._slots.release(running)
        outcome = conclude(
            running.launch,
            code=code or 0,
            stopped=running.stopped,
            started=running.started,
            finished=self._clock.now(),
            log=running.log,
        )
        if running.log is not None:
            os.close(running.log)
        self._ended(running.job, outcome)

    def _ended(self, job: Job, outcome: Outcome) -> None:
        at = local_iso(self._clock.now())
        job = msgspec.structs.replace(job, state=outcome.state, finished_at=at, error=outcome.error)
        self._changed[job.run_id] = job
        self._say(tokens.group_run_done(job.run_id, job.state))
        if job.state is JobState.FAILED and self._sweep.plan.fail_fast:
            self._cancel(f"fail_fast: {job.run_id} failed", stop_running=True)

    def _cancel(self, why: str, *, stop_running: bool) -> None:
        at = local_iso(self._clock.now())
        for job in self._pending:
            self._changed[job.run_id] = msgspec.structs.replace(job, state=JobState.CANCELED, finished_at=at, error=why)
        self._pending.clear()
        if stop_running:
            for running in self._slots:
                self._slots.stop(running, Outcome(state=JobState.CANCELED, error=why))

    def _on_signal(self) -> None:
        phase = self._lifecycle.acknowledge()
        self._is_canceled = True
        self._cancel("canceled by user", stop_running=self._sweep.plan.stop_on_cancel or phase is Phase.STOPPING)

    def _idle_s(self) -> float | None:
        due = [
            one for one in (self._slots.next_due_s(), self._saves.due_s if self._changed else None) if one is not None
        ]
        return max(0.0, min(due) - self._clock.monotonic()) if due else None

    def _save_if_due(self) -> None:
        if self._changed and self._clock.monotonic() >= self._saves.due_s:
            self._save()

    def _save(self) -> Raw:
        with self._saves.doing():
            jobs, self._changed = list(self._changed.values()), {}
            return self._groups.save_jobs(
                self._sweep.group_id, lambda: jobs, cancelled=True if self._is_canceled else None
            ).raw

    def _told_end(self, group: Raw) -> Raw:
        summary = group["summary"]
        if self._is_canceled:
            self._say(tokens.group_canceled(self._sweep.group_id))
        else:
            self._say(
                tokens.group_complete(
                    self._sweep.group_id,
                    succeeded=summary["succeeded"],
                    failed=summary["failed"],
                    canceled=summary["canceled"],
                )
            )
        return group
