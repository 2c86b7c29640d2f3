"""A worker: takes jobs of one queue, runs their handlers, and tells the server what came of them.

    worker = Worker(emails, send_email, url="redis://localhost", concurrency=50)
    await worker.run()                      # until somebody calls worker.stop()

    async with Worker(emails, send_email, url=...):      # or as long as a block runs
        ...

Promises: never more than `concurrency` handlers at once; a claimed job starts at once; a job whose worker dies is run
by another one; a finish counts only for the holder of the current token. A job may run more than once: handlers must
bear that. The way of one job: `turns.py` claims it, `running.py` runs it, `turns.py` tells its outcome; `renewal.py`
keeps its lease meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
import logging
import os
import random as chance
import socket
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from queueyard.panqueue.address import default_url, parse_address
from queueyard.panqueue.desk import Desk
from queueyard.panqueue.errors import BadQueue, Closed, PanqueueError, Unrecoverable
from queueyard.panqueue.jobs import Callbacks, Held, Job, JobLost, JobStarted, WorkerError
from queueyard.panqueue.media import Medium, Redis, Stoppable
from queueyard.panqueue.pacing import QueueRules
from queueyard.panqueue.queues import Queue
from queueyard.panqueue.records import Finish, Mode
from queueyard.panqueue.renewal import Renewal
from queueyard.panqueue.rules import reconnect_delay_s, retry_delay_ms, usable_delay_ms
from queueyard.panqueue.running import Runner
from queueyard.panqueue.settings import DEFAULT_BACKOFF, WorkerSettings
from queueyard.panqueue.store import MOST_JOBS_PER_CALL, Ask, QueueStore, TurnBuilder, read_options
from queueyard.panqueue.turns import Turns
from queueyard.panqueue.upkeep import Upkeep

if TYPE_CHECKING:
    from types import TracebackType

    from queueyard.panqueue.link import Asker

P = TypeVar("P")

#: is told the job and the error; gives milliseconds until the next attempt, or None for no further one
CustomBackoff = Callable[[Job[Any], BaseException], float | None]

_LANES = 2
_LOG = logging.getLogger("queueyard.panqueue.worker")


class Limit(msgspec.Struct, frozen=True):
    """How many jobs of a queue may be active at once, over all workers. The highest version wins."""

    count: int
    version: int = 1


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended."""

    #: jobs that were given back unfinished, without spending a retry
    handed_back: int
    #: jobs whose fate the server could not be told; their leases will run out
    unknown: int
    #: whether the time to drain was over before the last job was
    timed_out: bool


class Worker:
    """One worker of one queue. It is used once: started, stopped, and then thrown away."""

    def __init__(
        self,
        queue: Queue[P, Any] | str,
        handler: Callable[[Job[P]], Any],
        *,
        url: str | None = None,
        settings: WorkerSettings | None = None,
        concurrency: int | None = None,
        limit: Limit | None = None,
        backoff: CustomBackoff | None = None,
        callbacks: Callbacks | None = None,
        name: str | None = None,
        medium: Medium | None = None,
        random: Callable[[], float] = chance.random,
    ) -> None:
        """Without `url`: REDIS_URL, else this machine. `backoff`: a function of one's own, for jobs without a rule.

        BadAddress, BadSettings, BadQueue.
        """
        self.queue: Queue[Any, Any] = Queue(queue) if isinstance(queue, str) else queue
        settings = settings or WorkerSettings()
        self.settings = settings if concurrency is None else msgspec.structs.replace(settings, concurrency=concurrency)
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._handler = handler
        self._limit = limit
        if limit is not None and (limit.count < 1 or limit.version < 0):
            raise BadQueue(f"not a limit: {limit}", hint="At least 1 job; versions count from 0.")
        self._custom_backoff = backoff
        self._callbacks = _logging(callbacks or Callbacks())
        self._random = random
        self._store = QueueStore(self.queue.id)
        self._medium: Medium = medium or Redis(parse_address(url or default_url()), self._store.keys.tag)
        self._state = "idle"
        self._tasks: list[asyncio.Task[None]] = []
        self._askers: list[Asker] = []
        self._stopping: asyncio.Task[Stopped] | None = None
        self._has_stopped = asyncio.Event()
        self._hurry = asyncio.Event()
        self._rules = QueueRules()
        self._upkeep: Upkeep | None = None
        self._errand_asker: Asker | None = None
        self._renewal: Stoppable | None = None
        self._turns: Turns | None = None
        self._runner: Runner | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> str:
        """Where it is: idle, running, draining or stopped."""
        return self._state

    @property
    def active(self) -> int:
        """How many jobs it holds now."""
        return 0 if self._turns is None else len(self._turns.held)

    async def start(self) -> None:
        """Connect, check the queue's mode, declare the limit, and begin to claim.

        ServerUnreachable, AccessDenied, ModeMismatch, LimitConflict; nothing runs then.
        """
        if self._state != "idle":
            raise Closed(f"worker {self.name} is {self._state}; it is used once", hint="Make a new Worker.")
        asker = self._medium.asker()
        self._askers.append(asker)
        try:
            await self._check_in(asker)
            self._begin(asker)
        except BaseException:
            self._turns = None
            asker.close()
            raise

    async def run(self) -> Stopped:
        """Start, and return when it was stopped."""
        if self._state == "idle":
            await self.start()
        await self._has_stopped.wait()
        return await self.stop()

    async def stop(self, *, drain: bool = True, timeout_ms: int | None = None) -> Stopped:
        """Claim nothing more; wait for what runs; hand the rest back. A second call waits for the first.

        With `drain=False`, or after `timeout_ms` (default: the settings'), handlers are cancelled and what they leave
        undone goes back to the queue without spending a retry.
        """
        if self._stopping is None:
            allowed_ms = self.settings.drain_timeout_ms if timeout_ms is None else timeout_ms
            self._stopping = asyncio.get_running_loop().create_task(self._stop(allowed_ms if drain else 0, drain=drain))
        return await asyncio.shield(self._stopping)

    def hurry(self) -> None:
        """Let a stop that is waiting for running jobs wait no longer."""
        self._hurry.set()

    def pause(self) -> None:
        """Claim nothing until `resume`; what runs goes on. The queue itself is not paused."""
        self._running_turns().open(is_open=False)

    def resume(self) -> None:
        self._running_turns().open(is_open=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _check_in(self, asker: Asker) -> None:
        mode = self.queue.mode or Mode.GLOBAL
        await asker.ask(self._store.declare_mode(mode, self.queue.key_concurrency))
        if self._limit is not None:
            await asker.ask(self._store.declare_limit(self._limit.count, self._limit.version))
        if self.queue.rules:
            await asker.ask(self._store.write_rules(self.queue.rules))
        await self._learn_rules(asker)
        policy = await asker.ask(Ask(None, [], ["INFO", "memory"], _eviction_policy))
        if policy not in {None, "noeviction"}:
            _LOG.warning(
                "the server may evict jobs: its maxmemory-policy is %s; set it to noeviction", policy, stacklevel=2
            )

    def _builder(self) -> TurnBuilder:
        return self._store.turn_builder(
            lease_ms=self.settings.lease_ms,
            worker=self.name,
            keep=self.queue.keep_completed,
            keyed=self.queue.mode in {Mode.KEYED, Mode.DYNAMIC},
            ruled=bool(self._rules),
        )

    async def _learn_rules(self, asker: Asker) -> None:
        """Take turns as the queue's rules want it; they may have been changed by others."""
        rules = await asker.ask(self._store.rules())
        if rules != self._rules:
            self._rules = rules
            if self._turns is not None:
                self._turns.builder = self._builder()
                self._turns.notice()

    def _begin(self, first: Asker) -> None:
        loop = asyncio.get_running_loop()
        settings = self.settings
        lanes = min(_LANES, settings.concurrency)
        self._turns = turns = Turns(
            self._store,
            self._builder(),
            concurrency=settings.concurrency,
            lanes=lanes,
            lease_ms=settings.lease_ms,
            poll_ms=settings.poll_ms,
            name=self.name,
            token_seed=f"{chance.SystemRandom().getrandbits(64):016x}",
            callbacks=self._callbacks,
            keep_failed=self.queue.keep_failed,
            delay_of=self._delay_of,
            random=self._random,
            loop=loop,
        )
        on_started = self._callbacks.on_started
        self._runner = Runner(
            self.queue,
            self._handler,
            outcomes=turns,
            threads=settings.concurrency,
            on_started=None if on_started is None else lambda job: turns.tell(on_started, JobStarted(job)),
            loop=loop,
        )
        turns.runner = self._runner
        turns.desk = Desk(self._store, first, worker=self.name, loop=loop, report=turns.report)
        self._askers += [self._medium.asker() for _ in range(lanes - 1)]
        self._tasks = [loop.create_task(turns.lane(asker)) for asker in self._askers]
        self._tasks.append(loop.create_task(self._listen()))
        self._tasks += self._keep_up(first, turns)
        renewal = Renewal(
            self._store,
            lease_ms=settings.lease_ms,
            held=lambda: list(turns.held.values()),
            on_lost=lambda jobs: _from_thread(loop, self._lose, jobs),
            on_error=lambda fault: _from_thread(loop, turns.report, "renewal", fault),
            time=loop.time,
        )
        self._renewal = self._medium.start_renewal(renewal, every_s=settings.renew_s)
        self._enter("running")

    def _keep_up(self, first: Asker, turns: Turns) -> list[asyncio.Task[None]]:
        """Begin to look after the queue; the tasks that do it."""
        self._upkeep = upkeep = Upkeep(
            self.queue,
            self._store,
            turns,
            settings=self.settings,
            name=self.name,
            on_stalled=self._callbacks.on_stalled,
            learn_rules=self._learn_rules,
            random=self._random,
        )
        turns.care_for = lambda job, well: upkeep.care_for(first, job, well=well)
        turns.on_failed = upkeep.note_failure
        if not self.settings.sweep_ms:
            return []
        self._errand_asker = self._medium.asker()
        chores = (upkeep.sweep(first), upkeep.fire_schedules(first), upkeep.run_errands(self._errand_asker))
        return [asyncio.get_running_loop().create_task(chore) for chore in chores]

    # --- while it runs -----------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Wait for notifications; where they fail, polling goes on and we try again."""
        turns = self._running_turns()
        channel = self._store.keys["notify"]
        trouble = 0
        while True:
            try:
                subscription = await self._medium.subscribe([channel], self._hear)
            except PanqueueError as fault:
                trouble += 1
                if trouble == 1:
                    turns.report("notifications", fault)
            else:
                trouble = 0
                # What was added before we listened told nobody.
                turns.notice()
                try:
                    await subscription.ended()
                finally:
                    subscription.close()
            await asyncio.sleep(reconnect_delay_s(trouble or 1, self._random))

    def _hear(self, message: bytes) -> None:
        """A notification: usually that there is something to claim."""
        turns = self._running_turns()
        if not message.startswith(b"!"):
            turns.notice()
        elif message == b"!rules" and self._upkeep is not None:
            self._upkeep.errand_is_due.set()
        elif message == b"!schedules" and self._upkeep is not None:
            self._upkeep.schedules_changed.set()
        elif message.startswith(b"!cancel "):
            _, token, job_id = message.decode("utf-8", "surrogateescape").split(" ", 2)
            job = turns.held.get(job_id)
            if job is not None and job.token == token:
                self._lose([job], "canceled")

    def _lose(self, jobs: list[Held[Any]], phase: str = "renewal") -> None:
        """These are no longer ours, says the renewal or whoever canceled them."""
        turns = self._running_turns()
        for job in jobs:
            # One that has ended is on its way to the server, or already gone from there: the reply will tell.
            if turns.held.get(job.id) is job and not job.has_ended:
                turns.drop(job)
                turns.runner.stop(job, "lost")
                turns.tell(self._callbacks.on_lost, JobLost(job, phase, unsure=False))

    def _delay_of(self, job: Held[Any], error: BaseException) -> int:
        """Milliseconds until the next attempt, -1 for none."""
        if isinstance(error, Unrecoverable):
            return -1
        rule = read_options(job.opts).backoff or self.queue.options.backoff
        if rule is None and self._custom_backoff is not None:
            try:
                return usable_delay_ms(self._custom_backoff(job, error))
            except Exception as fault:  # noqa: BLE001  somebody's function must not lose a job
                self._running_turns().report("callback", fault)
        return retry_delay_ms(rule or DEFAULT_BACKOFF, job.failures + 1, self._random)

    # --- stopping ----------------------------------------------------------------------------------------------------

    async def _stop(self, allowed_ms: int, *, drain: bool) -> Stopped:
        if self._turns is None:
            self._enter("stopped")
            self._has_stopped.set()
            return Stopped(handed_back=0, unknown=0, timed_out=False)
        turns = self._turns
        self._enter("draining")
        turns.open(is_open=False)
        timed_out = not await self._drained(turns, allowed_ms)
        if timed_out:
            await self._cancel_what_runs(turns)
        turns.end()
        lanes = self._tasks[: len(self._askers)]
        for task in self._tasks[len(lanes) :]:
            task.cancel()
        # What ended is still told to the server, and claims that are under way still arrive.
        await asyncio.wait(lanes, timeout=self.settings.cancel_grace_ms / 1_000)
        handed_back = await self._hand_back(turns, "shutdown-timeout" if drain else "shutdown")
        unknown = len(turns.held)
        await self._close()
        self._enter("stopped")
        self._has_stopped.set()
        return Stopped(handed_back=handed_back, unknown=unknown, timed_out=timed_out and drain)

    async def _drained(self, turns: Turns, allowed_ms: int) -> bool:
        """Whether everything came to its end in time, and before somebody asked to hurry."""
        quiet = asyncio.ensure_future(turns.until_quiet())
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([quiet, hurry], timeout=allowed_ms / 1_000, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if quiet.done():
            return True
        quiet.cancel()
        return False

    async def _cancel_what_runs(self, turns: Turns) -> None:
        """Cancel every handler, and give them a little time to end."""
        running = [job for job in (*turns.held.values(), *turns.ghosts) if not job.has_ended]
        for job in running:
            turns.runner.stop(job, "lost" if job in turns.ghosts else "stop")
        tasks = [job.task for job in running if job.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=self.settings.cancel_grace_ms / 1_000)

    async def _hand_back(self, turns: Turns, why: str) -> int:
        """Give back what nobody finished; gives how many. What the server cannot be told stays in `held`."""
        # One that still runs ignores its cancellation: the job goes back all the same, and may run twice at a time.
        undone = [job for job in turns.held.values() if not job.has_ended or job in turns.abandoned]
        handed_back = 0
        for start in range(0, len(undone), MOST_JOBS_PER_CALL):
            batch = undone[start : start + MOST_JOBS_PER_CALL]
            ask = self._store.hand_back([(job.id, job.token) for job in batch], worker=self.name, why=why)
            try:
                codes = await self._askers[0].ask(ask)
            except PanqueueError as fault:
                turns.report("hand-back", fault)
                break
            for job in batch:
                turns.drop(job)
            handed_back += sum(code is Finish.DONE for code in codes)
        return handed_back

    async def _close(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
        if self._runner is not None:
            await self._runner.close()
        for task in self._tasks:
            task.cancel()
        for asker in self._askers:
            asker.close()
        if self._errand_asker is not None:
            self._errand_asker.close()

    def _enter(self, state: str) -> None:
        self._state = state
        if self._callbacks.on_state is not None:
            self._callbacks.on_state(state)

    def _running_turns(self) -> Turns:
        if self._turns is None:
            raise Closed(f"worker {self.name} has not been started", hint="await worker.start()")
        return self._turns


def _from_thread(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *arguments: Any) -> None:
    # The loop may be closed by now: a daemon thread outlives it for a moment.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _eviction_policy(reply: bytes) -> str | None:
    for line in reply.decode("utf-8", "replace").splitlines():
        if line.startswith("maxmemory_policy:"):
            return line.partition(":")[2].strip()
    return None


def _logging(callbacks: Callbacks) -> Callbacks:
    """Trouble that nobody listens to goes to the log."""
    return callbacks if callbacks.on_worker_error is not None else replace(callbacks, on_worker_error=_log)


def _log(trouble: WorkerError) -> None:
    _LOG.warning("%s: %s", trouble.kind, trouble.error)
