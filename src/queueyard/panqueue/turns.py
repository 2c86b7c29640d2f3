"""The claim loop: one coordinator that decides, and a few lanes that carry its calls to the server.

Promises:
- never more jobs held than `concurrency`, and a job is claimed only if it can start at once (spec: no prefetching);
- every outcome is told to the server, again and again until it answers or the lease is lost;
- a notification that arrives while a call is under way is remembered, so that no wake-up is lost.

A turn finishes and claims in one script. While one lane waits for its reply, the other one works.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from queueyard.panqueue.errors import BadPayload, PanqueueError, TryAgain, Unrecoverable
from queueyard.panqueue.jobs import Held, JobCompleted, JobErrored, JobLost, WorkerError
from queueyard.panqueue.records import Finish
from queueyard.panqueue.rules import Slots, claim_count, reconnect_delay_s, told_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from queueyard.panqueue.desk import Desk
    from queueyard.panqueue.jobs import Callbacks
    from queueyard.panqueue.link import Asker
    from queueyard.panqueue.records import Keep
    from queueyard.panqueue.store import Claimed, QueueStore, Turn, TurnBuilder

_MOST_FINISHED = 500
_MOST_FAILED = 100


class Starter(Protocol):
    """What lets jobs run."""

    def start(self, job: Held[Any]) -> None: ...

    def stop(self, job: Held[Any], why: str) -> None: ...


class Failure:
    """One failed attempt on its way to the server."""

    __slots__ = ("delay_ms", "error", "job")

    def __init__(self, job: Held[Any], error: BaseException, delay_ms: int) -> None:
        self.job = job
        self.error = error
        self.delay_ms = delay_ms


class Turns:
    """What one worker holds, what it has to tell, and what it may ask for."""

    def __init__(
        self,
        store: QueueStore,
        builder: TurnBuilder,
        *,
        concurrency: int,
        lanes: int,
        lease_ms: int,
        poll_ms: int,
        name: str,
        token_seed: str,
        callbacks: Callbacks,
        keep_failed: Keep | None,
        delay_of: Callable[[Held[Any], BaseException], int],
        random: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        #: changed by the worker when the queue gets other rules
        self.builder = builder
        self._concurrency = concurrency
        self._lane_count = lanes
        self._lease_s = lease_ms / 1_000
        self._poll_s = poll_ms / 1_000
        self._name = name
        self._token_seed = token_seed
        self._calls = 0
        self._callbacks = callbacks
        self._keep_failed = keep_failed
        self._delay_of = delay_of
        self._random = random
        self._loop = loop
        #: given by the worker before the first lane begins
        self.runner: Starter = _Nobody()
        self.desk: Desk | None = None
        #: what has to be done for a job before its end is recorded; None for nearly all
        self.care_for: Callable[[Held[Any], bool], Coroutine[Any, Any, None] | None] = lambda _job, _well: None
        #: is told about jobs that failed for good
        self.on_failed: Callable[[Held[Any]], None] = lambda _job: None
        self._caring: set[asyncio.Task[None]] = set()
        #: id -> job, claimed and not acknowledged
        self.held: dict[str, Held[Any]] = {}
        #: jobs that are no longer ours but whose handlers still run; they fill slots
        self.ghosts: set[Held[Any]] = set()
        #: jobs that were cancelled, or never begun, because the worker stops
        self.abandoned: list[Held[Any]] = []
        self._done: list[Held[Any]] = []
        self._failures: list[Failure] = []
        self._postponed: list[tuple[Held[Any], TryAgain]] = []
        self._asked = 0
        self._in_flight = 0
        self._notices = 1
        self._looked_at = 0
        self._open = True
        self._ending = False
        self._parked: list[asyncio.Future[None]] = []
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._quiet: asyncio.Future[None] | None = None

    # --- what others say ---------------------------------------------------------------------------------------------

    def notice(self) -> None:
        """There may be something to claim."""
        self._notices += 1
        self._wake()

    def open(self, *, is_open: bool) -> None:
        """Whether new jobs may be claimed."""
        self._open = is_open
        self.notice()

    def end(self) -> None:
        """Let the lanes go home once nothing is left to tell."""
        self._ending = True
        self._cancel_timer()
        self._wake()

    async def until_quiet(self) -> None:
        """Returns when no job is held, no handler runs and no call is under way."""
        while self.held or self.ghosts or self._in_flight:
            self._quiet = self._loop.create_future()
            await self._quiet

    def drop(self, job: Held[Any]) -> None:
        """The job is no longer ours; its slot stays taken until its handler has ended."""
        if self.held.get(job.id) is job:
            del self.held[job.id]
        if not job.has_ended:
            self.ghosts.add(job)
        self._settle_down()

    # --- outcomes of jobs (running.Outcomes) -------------------------------------------------------------------------

    def succeeded(self, job: Held[Any]) -> None:
        if job.lost:
            self._gone(job)
            return
        desk = self.desk
        if job.opts is None and (desk is None or not desk.is_busy):
            # Nearly always: it said nothing, and nobody waits for what it returned.
            self._done.append(job)
            self._flush_soon()
        else:
            self._after(self.care_for(job, True), job)

    def failed(self, job: Held[Any], error: BaseException) -> None:
        if job.lost:
            self._gone(job)
            return
        if isinstance(error, TryAgain):
            self._postponed.append((job, error))
            self._flush_soon()
            return
        final = isinstance(error, BadPayload | Unrecoverable)
        failure = Failure(job, error, -1 if final else self._delay_of(job, error))
        self._after(self.care_for(job, False), failure)

    def _after(self, care: Coroutine[Any, Any, None] | None, ended: Held[Any] | Failure) -> None:
        """Let something be written down first, if there is anything; the lease goes on meanwhile."""
        if care is None:
            self._note_end(ended)
            return

        async def both() -> None:
            try:
                await care
            except PanqueueError as fault:
                self.report("report", fault)
            self._note_end(ended)

        task = self._loop.create_task(both())
        self._caring.add(task)
        task.add_done_callback(self._caring.discard)

    def _note_end(self, ended: Held[Any] | Failure) -> None:
        if isinstance(ended, Failure):
            self._failures.append(ended)
        else:
            self._done.append(ended)
        self._flush_soon()

    def given_up(self, job: Held[Any]) -> None:
        self.abandoned.append(job)
        self._settle_down()

    def lost(self, job: Held[Any]) -> None:
        self._gone(job)

    def _gone(self, job: Held[Any]) -> None:
        self.ghosts.discard(job)
        if self.held.get(job.id) is job:
            del self.held[job.id]
        self._settle_down()
        self._flush_soon()

    # --- lanes -------------------------------------------------------------------------------------------------------

    async def lane(self, asker: Asker) -> None:
        """Carry one call after the other until the end."""
        trouble = 0
        while True:
            call = self._next_call()
            if call is None:
                if self._ending and not self._in_flight:
                    return
                await self._park()
                continue
            self._in_flight += 1
            try:
                await call(asker)
                trouble = 0
            except PanqueueError as fault:
                trouble += 1
                self.report("claim", fault)
            finally:
                self._in_flight -= 1
                self._settle_down()
            if trouble:
                await asyncio.sleep(reconnect_delay_s(trouble, self._random))

    def _next_call(self) -> Callable[[Asker], Any] | None:
        if self._failures:
            batch, self._failures = self._failures[:_MOST_FAILED], self._failures[_MOST_FAILED:]
            return lambda asker: self._tell_failures(asker, batch)
        if self._postponed:
            put_off, self._postponed = self._postponed, []
            return lambda asker: self._postpone(asker, put_off)
        finishing = self._done
        if len(finishing) > _MOST_FINISHED:
            finishing, self._done = finishing[:_MOST_FINISHED], finishing[_MOST_FINISHED:]
        else:
            self._done = []
        slots = Slots(
            concurrency=self._concurrency,
            held=len(self.held) + len(self.ghosts),
            asked=self._asked,
            lanes=self._lane_count,
        )
        claim = claim_count(slots, finishing=len(finishing), open_for_work=self._open and not self._ending)
        if not finishing and (claim == 0 or self._looked_at == self._notices):
            return None
        return lambda asker: self._take_turn(asker, finishing, claim)

    async def _take_turn(self, asker: Asker, finishing: list[Held[Any]], claim: int) -> None:
        self._calls += 1
        token = f"{self._token_seed}-{self._calls:x}"
        notices, asked = self._notices, max(0, claim - len(finishing))
        self._asked += asked
        sent_at = self._loop.time()
        told = [(job.id, job.token, job.key, job.value) for job in finishing]
        try:
            turn = await asker.ask(self.builder.build(told, claim=claim, token=token))
        except BaseException:
            for job in finishing:
                job.is_unsure = True
            self._done += finishing
            raise
        finally:
            self._asked -= asked
        if claim and len(turn.claimed) + len(turn.corrupt) < claim:
            # The queue has no more for us, as of when we asked.
            self._looked_at = max(self._looked_at, notices)
            self._look_again_in(self._poll_s if turn.due_ms is None else min(self._poll_s, turn.due_ms / 1_000))
        self._acknowledge(finishing, turn)
        for claimed in turn.claimed:
            self._begin(claimed, token, sent_at)
        for job_id in turn.corrupt:
            self.report("corrupt", PanqueueError(f"job {job_id} of queue {self._store.queue_id} has no content"))

    def _acknowledge(self, finishing: list[Held[Any]], turn: Turn) -> None:
        held = self.held
        on_completed = self._callbacks.on_completed
        refused = {place for place, _ in turn.refused} if turn.refused else None
        for place, job in enumerate(finishing):
            if held.get(job.id) is job:
                del held[job.id]
            if refused is not None and place in refused:
                self._tell_lost(job, "finish")
            elif on_completed is not None:
                took_ms = (self._loop.time() - job.started_at) * 1_000
                self.tell(on_completed, JobCompleted(job, job.value, took_ms))

    def _begin(self, claimed: Claimed, token: str, sent_at: float) -> None:
        job: Held[Any] = Held(
            claimed.id,
            self._store.queue_id,
            claimed.runs + 1,
            claimed.failures,
            claimed.key,
            token,
            None,
            False,
            claimed.payload,
            claimed.opts,
            sent_at + self._lease_s,
            self._loop.time(),
            self.desk,
        )
        before = self.held.get(job.id)
        if before is not None:
            # Ours until its lease ran out, and now ours again: the first handler must not finish it.
            self.drop(before)
            self.runner.stop(before, "lost")
        self.held[job.id] = job
        if self._ending:
            # The claim was under way when the worker was told to go: nobody will wait for this one.
            job.has_ended = True
            self.abandoned.append(job)
        else:
            self.runner.start(job)

    async def _tell_failures(self, asker: Asker, batch: list[Failure]) -> None:
        told = [(one.job.id, one.job.token, told_reason(one.error), one.delay_ms) for one in batch]
        try:
            codes = await asker.ask(self._store.fail(told, worker=self._name, keep=self._keep_failed))
        except BaseException:
            for one in batch:
                one.job.is_unsure = True
            self._failures = batch + self._failures
            raise
        for one, code in zip(batch, codes, strict=True):
            if self.held.get(one.job.id) is one.job:
                del self.held[one.job.id]
            self._tell_failure(one, code)
        self.notice()

    async def _postpone(self, asker: Asker, batch: list[tuple[Held[Any], TryAgain]]) -> None:
        told = [(job.id, job.token, told_reason(why), why.in_ms, int(why.everybody)) for job, why in batch]
        try:
            codes = await asker.ask(self._store.postpone(told, worker=self._name))
        except BaseException:
            self._postponed = batch + self._postponed
            raise
        for (job, _), code in zip(batch, codes, strict=True):
            if self.held.get(job.id) is job:
                del self.held[job.id]
            if code in {Finish.MISSING, Finish.STALE}:
                self._tell_lost(job, "finish")
        self.notice()

    def _tell_failure(self, one: Failure, code: Finish) -> None:
        if code in {Finish.MISSING, Finish.STALE}:
            self._tell_lost(one.job, "finish")
            return
        took_ms = (self._loop.time() - one.job.started_at) * 1_000
        retry_in_ms = None if code is Finish.FAILED else max(0, one.delay_ms)
        told = JobErrored(one.job, one.error, retry_in_ms, took_ms)
        self.tell(self._callbacks.on_error, told)
        if code is Finish.FAILED:
            self.on_failed(one.job)
            self.tell(self._callbacks.on_failed, told)

    # --- waiting and waking ------------------------------------------------------------------------------------------

    async def _park(self) -> None:
        parked: asyncio.Future[None] = self._loop.create_future()
        self._parked.append(parked)
        await parked

    def _wake(self) -> None:
        parked, self._parked = self._parked, []
        for one in parked:
            if not one.done():
                one.set_result(None)

    def _flush_soon(self) -> None:
        # Not at once: what else ends in this round of the event loop goes into the same call.
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_is_due = False
        self._wake()

    def _look_again_in(self, seconds: float) -> None:
        self._cancel_timer()
        if not self._ending:
            self._timer = self._loop.call_later(seconds, self.notice)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle_down(self) -> None:
        if self._quiet is not None and not self._quiet.done() and not (self.held or self.ghosts or self._in_flight):
            self._quiet.set_result(None)
        if self._ending and not self._in_flight:
            self._wake()

    # --- telling -----------------------------------------------------------------------------------------------------

    def _tell_lost(self, job: Held[Any], phase: str) -> None:
        self.tell(self._callbacks.on_lost, JobLost(job, phase, job.is_unsure))

    def report(self, kind: str, error: BaseException) -> None:
        """Something went wrong that is no job's fault."""
        self.tell(self._callbacks.on_worker_error, WorkerError(kind, error))

    def tell(self, callback: Callable[[Any], object] | None, told: Any) -> None:
        if callback is None:
            return
        try:
            callback(told)
        except Exception as fault:  # noqa: BLE001  somebody's listener must not stop the worker
            other = self._callbacks.on_worker_error
            if other is not None and other is not callback:
                self.tell(other, WorkerError("callback", fault))


class _Nobody:
    """Stands where a runner will be."""

    def start(self, job: Held[Any]) -> None:
        raise RuntimeError(f"no runner for {job}")

    def stop(self, job: Held[Any], why: str) -> None:
        raise RuntimeError(f"no runner for {job}: {why}")
