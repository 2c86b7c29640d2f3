"""What every worker does for its queue beside running jobs: it takes back the jobs of the dead, fires schedules, runs
errands, and writes down what handlers leave behind before their jobs end.

Any number of workers may do all of this at once: each step is one script that changes nothing the second time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from queueyard.panqueue.errands import run_errands
from queueyard.panqueue.errors import BadSchedule, PanqueueError, ServerUnreachable
from queueyard.panqueue.family import child_ended
from queueyard.panqueue.jobs import JobStalled
from queueyard.panqueue.link import Asker, hold
from queueyard.panqueue.records import Finish, JobState
from queueyard.panqueue.rules import reconnect_delay_s
from queueyard.panqueue.scheduling import fire_due
from queueyard.panqueue.store import read_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from queueyard.panqueue.jobs import Held
    from queueyard.panqueue.queues import Queue
    from queueyard.panqueue.settings import WorkerSettings
    from queueyard.panqueue.store import QueueStore
    from queueyard.panqueue.turns import Turns

_ENOUGH_TRIMMED = 1_000


class Upkeep:
    """The chores of one worker."""

    def __init__(
        self,
        queue: Queue[Any, Any],
        store: QueueStore,
        turns: Turns,
        *,
        settings: WorkerSettings,
        name: str,
        on_stalled: Callable[[JobStalled], object] | None,
        learn_rules: Callable[[Asker], Awaitable[None]],
        random: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._store = store
        self._turns = turns
        self._settings = settings
        self._name = name
        self._on_stalled = on_stalled
        self._learn_rules = learn_rules
        self._random = random
        #: set when somebody says that schedules have changed
        self.schedules_changed = asyncio.Event()
        #: set when an errand should not wait for the next sweep
        self.errand_is_due = asyncio.Event()

    def _interval_s(self) -> float:
        # Not all workers at the same moment.
        return self._settings.sweep_ms / 1_000 * (0.75 + 0.5 * self._random())

    # --- for ever ----------------------------------------------------------------------------------------------------

    async def sweep(self, asker: Asker) -> None:
        """Take back what dead workers held, and let go of finished jobs that are too old."""
        while True:
            try:
                await self._sweep_once(asker)
            except PanqueueError as fault:
                self._turns.report("sweep", fault)
            await asyncio.sleep(self._interval_s())

    async def fire_schedules(self, asker: Asker) -> None:
        """Add the jobs of due slots; every worker of the queue tries, and one of them comes first."""
        told: list[str] = []
        while True:
            pause_s = self._settings.sweep_ms / 1_000
            self.schedules_changed.clear()
            try:
                fired = await hold(asker, fire_due(self._store))
            except PanqueueError as fault:
                self._turns.report("schedules", fault)
            else:
                if fired.faults != told:
                    told = fired.faults
                    for one in told:
                        self._turns.report("schedules", BadSchedule(one))
                if fired.next_in_ms is not None:
                    pause_s = min(pause_s, fired.next_in_ms / 1_000)
            await _set_or_after(self.schedules_changed, pause_s)

    async def run_errands(self, asker: Asker) -> None:
        """Rules, expiry, dead letters and flows: now and then, and at once when a job has made it necessary.

        The connection is its own: errands speak to other queues, too, which in a cluster live on other nodes.
        """
        while True:
            self.errand_is_due.clear()
            try:
                await self._learn_rules(asker)
                await hold(asker, run_errands(self._store, self._queue, actor=self._name))
            except PanqueueError as fault:
                self._turns.report("errands", fault)
            await _set_or_after(self.errand_is_due, self._interval_s())

    async def _sweep_once(self, asker: Asker) -> None:
        queue, most = self._queue, self._settings.sweep_batch
        full = True
        while full:
            found = await asker.ask(self._store.recover(actor=self._name, most=most, keep=queue.keep_failed))
            full = len(found) == most
            for one in found:
                if one.outcome is Finish.CORRUPT:
                    self._report_corrupt(one.job.id)
                else:
                    self._turns.tell(self._on_stalled, JobStalled(one.job, one.outcome is Finish.FAILED))
        for state, keep in ((JobState.COMPLETED, queue.keep_completed), (JobState.FAILED, queue.keep_failed)):
            evicted = _ENOUGH_TRIMMED if keep is not None else 0
            while keep is not None and evicted >= _ENOUGH_TRIMMED:
                evicted = await asker.ask(self._store.trim(state, keep, most=_ENOUGH_TRIMMED))

    def _report_corrupt(self, job_id: str) -> None:
        self._turns.report(
            "corrupt", PanqueueError(f"job {job_id} of queue {self._queue.id} was active but has no content")
        )

    # --- before a job ends -------------------------------------------------------------------------------------------

    def care_for(self, asker: Asker, job: Held[Any], *, well: bool) -> Coroutine[Any, Any, None] | None:
        """What must be written down before the job's end is: what it said, and what it returned to its flow."""
        desk = self._turns.desk
        owes = desk is not None and desk.is_busy and desk.owes(job)
        is_child = well and job.opts is not None and read_options(job.opts).child
        return self._write_down(asker, job, is_child=is_child) if owes or is_child else None

    async def _write_down(self, asker: Asker, job: Held[Any], *, is_child: bool) -> None:
        if self._turns.desk is not None:
            await self._turns.desk.flush()
        trouble = 0
        while is_child and not job.lost:
            try:
                await asker.ask(child_ended(self._store, job.id, job.token, job.value))
                break
            except ServerUnreachable as fault:
                # Without this its parent would never know what it returned: its end has to wait.
                trouble += 1
                self._turns.report("finish", fault)
                await asyncio.sleep(reconnect_delay_s(trouble, self._random))
        if is_child:
            self.errand_is_due.set()

    def note_failure(self, job: Held[Any]) -> None:
        """A job has failed for good: somebody may want to know."""
        if self._queue.dead_letters is not None or (job.opts is not None and read_options(job.opts).child):
            self.errand_is_due.set()


async def _set_or_after(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
