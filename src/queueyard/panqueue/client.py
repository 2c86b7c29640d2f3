"""The async client: adds jobs, waits for their results, looks after queues.

    async with QueueClient("redis://localhost") as client:
        queue = client.queue(emails, retries=5)
        job = await queue.add(Email(to="a@example.org"))
        receipt = await job.result(timeout_s=10)

Adds that are made in the same round of the event loop become one call; their order is kept. A call whose reply is lost
raises ServerUnreachable, and its jobs may be there or not: add with ids of your own if that must be told apart.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from queueyard.panqueue import dead_letters, family, scheduling, service
from queueyard.panqueue.adding import Intake, NewJob, calls_for, ids_of
from queueyard.panqueue.address import default_url, parse_address
from queueyard.panqueue.errors import Closed, Duplicate, TimedOut
from queueyard.panqueue.flows import FlowJob, planned
from queueyard.panqueue.link import Port
from queueyard.panqueue.queues import JobChanges, Queue, with_options
from queueyard.panqueue.records import Counts, JobRecord, JobState, Keep, Mode
from queueyard.panqueue.schedules import CatchUp
from queueyard.panqueue.sharing import SharedQueue
from queueyard.panqueue.store import QueueStore
from queueyard.panqueue.tracing import trace_of_add

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from queueyard.kernel.events import Event
    from queueyard.panqueue.address import Address
    from queueyard.panqueue.pacing import QueueRules, Rate
    from queueyard.panqueue.schedules import Standing
    from queueyard.panqueue.store import Talk

P = TypeVar("P")
R = TypeVar("R")
_T = TypeVar("_T")


class AddedJob(Generic[R]):
    """A job that the server has accepted."""

    __slots__ = ("_handle", "id", "is_new")

    def __init__(self, job_id: str, handle: QueueHandle[Any, R], is_new: bool = True) -> None:
        self.id = job_id
        #: False: nothing was added, because this job holds the deduplication key
        self.is_new = is_new
        self._handle = handle

    @property
    def queue_id(self) -> str:
        return self._handle.queue.id

    async def result(self, *, timeout_s: float | None = None) -> R | None:
        """What its handler returned, as soon as it is over. JobFailed, ResultGone, TimedOut."""
        return await self._handle.result(self.id, timeout_s=timeout_s)

    async def cancel(self, *, why: str = "canceled") -> None:
        """Cancel it, whatever it is doing. UnknownJob, JobOver."""
        await self._handle.cancel(self.id, why=why)

    async def record(self) -> JobRecord:
        """Everything that is known about it now. UnknownJob."""
        return await self._handle.job(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.queue_id}>"


class QueueHandle(Generic[P, R]):
    """One queue, with defaults for what is added through it. Made by `QueueClient.queue`."""

    def __init__(self, client: QueueClient, queue: Queue[P, R], intake: Intake[P], shared: SharedQueue) -> None:
        self.queue = queue
        self._client = client
        self._intake = intake
        self._shared = shared
        self._traces = client.trace

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(
        self,
        payload: P,
        *,
        key: str | None = None,
        job_id: str | None = None,
        **options: Unpack[JobChanges],
    ) -> Awaitable[AddedJob[R]]:
        """Add one job; awaiting it gives the accepted job. What can be said about it is in `JobChanges`.

        Raises at once: NotSerializable, PayloadTooLarge, KeyRequired. When awaited: ModeMismatch, JobExists,
        ServerFull, ServerUnreachable.
        """
        shared = self._shared
        if self._traces and "trace" not in options:
            options["trace"] = trace_of_add(self.queue.id)
        if shared.mode is None:
            self.queue.payloads.encode(payload)
            return asyncio.ensure_future(self._add_when_known(payload, key, job_id, **options))
        keyed = shared.mode is not Mode.GLOBAL
        return shared.enqueue(
            self._intake.prepare(payload, keyed=keyed, key=key, job_id=job_id, **options), self._added
        )

    async def _add_when_known(
        self, payload: P, key: str | None, job_id: str | None, **options: Unpack[JobChanges]
    ) -> AddedJob[R]:
        await self._shared.learn_mode()
        return await self.add(payload, key=key, job_id=job_id, **options)

    async def add_many(
        self, payloads: Iterable[P], *, key: Callable[[P], str] | None = None, **options: Unpack[JobChanges]
    ) -> list[AddedJob[R]]:
        """Add jobs in their order, a thousand per call; `key` gives the key of each in keyed mode.

        The same errors as `add`. Nothing is added if a payload is refused; if the server goes away half-way, the
        calls before that have been added.
        """
        shared = self._shared
        keyed = await shared.learn_mode() is not Mode.GLOBAL
        prepare = self._intake.prepare
        new = [
            prepare(payload, keyed=keyed, key=None if key is None else key(payload), job_id=None, **options)
            for payload in payloads
        ]
        added: list[AddedJob[R]] = []
        calls = calls_for(shared.store, new, keyed=keyed, actor=self._client.name)
        # Two under way: one is executed while the next one is put together.
        waiting: list[tuple[Sequence[NewJob], asyncio.Task[int]]] = []
        for part, ask in calls:
            call = asyncio.ensure_future(shared.port.ask(ask))
            # If the one before it fails, nobody asks for the outcome of this one.
            call.add_done_callback(_noticed)
            waiting.append((part, call))
            # Let it be sent.
            await asyncio.sleep(0)
            if len(waiting) == 2:
                added += await self._accepted(*waiting.pop(0))
        for part, task in waiting:
            added += await self._accepted(part, task)
        return added

    def _added(self, job_id: str, is_new: bool = True) -> AddedJob[R]:
        return AddedJob(job_id, self, is_new)

    async def _accepted(self, part: Sequence[NewJob], task: asyncio.Task[int]) -> list[AddedJob[R]]:
        try:
            return [self._added(job_id) for job_id in ids_of(part, await task)]
        except Duplicate as fault:
            return [self._added(fault.job_id, is_new=False) for _ in part]

    # --- results -----------------------------------------------------------------------------------------------------

    async def result(self, job_id: str, *, timeout_s: float | None = None) -> R | None:
        """What the handler of a job returned, as soon as it is over. JobFailed, ResultGone, TimedOut."""
        try:
            async with asyncio.timeout(timeout_s):
                end = await self._shared.until_ended(job_id)
        except TimeoutError as fault:
            raise TimedOut(f"job {job_id} was not over within {timeout_s:g} s", hint="Wait longer.") from fault
        return service.value_of(end, self.queue.results, job_id)

    # --- looking after it --------------------------------------------------------------------------------------------

    async def counts(self) -> Counts:
        """How many jobs are in each state, and how the queue is set."""
        return await self._hold(service.counts(self._shared.store))

    async def job(self, job_id: str) -> JobRecord:
        """Everything that is known about one job. UnknownJob."""
        return await self._hold(service.job(self._shared.store, job_id))

    async def jobs(self, state: JobState | str, *, skip: int = 0, most: int = 20) -> list[JobRecord]:
        """Jobs in one state: those that run next, or ended last, come first."""
        return await self._hold(service.jobs(self._shared.store, JobState(state), skip=skip, most=most))

    async def retry(self, *job_ids: str) -> int:
        """Put failed jobs back in line. UnknownJob."""
        return await self._hold(service.retry(self._shared.store, job_ids, actor=self._client.name))

    async def retry_all(self) -> int:
        """Put every failed job back in line; gives how many."""
        return await self._hold(service.retry_all(self._shared.store, actor=self._client.name))

    async def remove(self, *job_ids: str) -> int:
        """Remove jobs that are not running. UnknownJob, JobActive."""
        return await self._hold(service.remove(self._shared.store, job_ids, actor=self._client.name))

    async def drain(self, *, delayed: bool = False) -> int:
        """Remove every waiting job; gives how many."""
        return await self._hold(service.drain(self._shared.store, delayed=delayed, actor=self._client.name))

    async def clean(self, state: JobState | str, keep: Keep) -> int:
        """Remove completed or failed jobs beyond a number or age; gives how many."""
        return await self._hold(service.clean(self._shared.store, JobState(state), keep))

    async def pause(self) -> bool:
        """Let no worker claim from this queue; what runs goes on. Whether that changed anything."""
        return await self._hold(service.pause(self._shared.store, paused=True, actor=self._client.name))

    async def resume(self) -> bool:
        return await self._hold(service.pause(self._shared.store, paused=False, actor=self._client.name))

    async def obliterate(self, *, confirm: str, force: bool = False) -> int:
        """Remove the queue with everything in it; `confirm` must be its id. JobActive unless `force`."""
        service.check_confirmation(self.queue.id, confirm)
        return await self._hold(service.obliterate(self._shared.store, force=force))

    async def set_key_limit(self, key: str, limit: int | None) -> None:
        """Give one key of a dynamic queue its own limit; 0 stops it, None gives it the queue's. ModeMismatch."""
        await self._hold(service.set_key_limit(self._shared.store, key, limit))

    async def switch_events(self, kept: int | None = service.DEFAULT_EVENTS_KEPT) -> bool:
        """Record every transition in a stream of about `kept` entries, or stop that with None."""
        return await self._hold(service.switch_events(self._shared.store, kept))

    async def events(self, *, after: str = "-") -> AsyncIterator[tuple[str, Event]]:
        """(entry id, event) of everything that the stream holds behind `after`, oldest first."""
        source = str(self._client.address)
        while True:
            page = await self._hold(service.read_events(self._shared.store, source=source, after=after))
            for entry_id, event in page:
                after = entry_id
                yield entry_id, event
            if not page:
                return

    async def cancel(self, *job_ids: str, why: str = "canceled") -> int:
        """Cancel jobs, whatever they are doing; a running handler is cancelled. UnknownJob, JobOver."""
        talk = service.cancel(
            self._shared.store, job_ids, why=why, keep=self.queue.keep_failed, actor=self._client.name
        )
        return await self._hold(talk)

    async def logs(self, job_id: str) -> list[service.LogLine]:
        """What the handlers of a job have logged, oldest first."""
        return await self._hold(service.logs(self._shared.store, job_id))

    async def redrive(self, *job_ids: str) -> int:
        """Send dead letters of this queue back to where they failed: those named, or all. UnknownJob."""
        return await self._hold(dead_letters.redrive(self._shared.store, job_ids, actor=self._client.name))

    async def rules(self) -> QueueRules:
        """The priorities and rate limits of this queue."""
        return await self._hold(service.rules(self._shared.store))

    async def set_rate(self, rate: Rate | None, *, per_key: bool = False) -> None:
        """Limit how many jobs may start in which time, of the queue or of each key; None lifts the limit."""
        await self._hold(service.set_rate(self._shared.store, rate, per_key=per_key))

    # --- schedules ---------------------------------------------------------------------------------------------------

    async def schedule(
        self,
        name: str,
        payload: P,
        *,
        cron: str | None = None,
        tz: str = "UTC",
        every_ms: int | None = None,
        catch_up: CatchUp | str = CatchUp.ONCE,
        key: str | None = None,
        **options: Unpack[JobChanges],
    ) -> bool:
        """Repeat a job by a cron line or an interval; a schedule of that name is changed. Whether anything changed.

        BadSchedule; NotSerializable, PayloadTooLarge, KeyRequired.
        """
        made = self._intake.schedule(
            name, payload, cron=cron, tz=tz, every_ms=every_ms, catch_up=catch_up, key=key, **options
        )
        return await self._hold(scheduling.put_schedule(self._shared.store, made))

    async def schedules(self) -> list[Standing]:
        """All schedules of this queue, by the time of their next slot."""
        return await self._hold(scheduling.list_schedules(self._shared.store))

    async def pause_schedule(self, name: str) -> bool:
        """Let a schedule rest; whether that changed anything. UnknownSchedule."""
        return await self._hold(scheduling.pause_schedule(self._shared.store, name, paused=True))

    async def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on with its first slot from now. UnknownSchedule."""
        return await self._hold(scheduling.pause_schedule(self._shared.store, name, paused=False))

    async def remove_schedule(self, name: str) -> None:
        """Take a schedule away; jobs that it has added stay. UnknownSchedule."""
        await self._hold(scheduling.remove_schedule(self._shared.store, name))

    async def _hold(self, talk: Talk[_T]) -> _T:
        return await self._shared.port.hold(talk)


def _noticed(call: asyncio.Task[int]) -> None:
    if not call.cancelled():
        call.exception()


class QueueClient:
    """A way to one server, sentinels or cluster. Connects when first used; one event loop only."""

    def __init__(
        self, url: str | None = None, *, name: str = "client", timeout_s: float = 10.0, trace: bool = False
    ) -> None:
        """Without `url`: REDIS_URL, else this machine. `name` stands in events as who added a job. BadAddress.

        With `trace` every `add` is an OpenTelemetry span, and the job carries it to its worker.
        """
        self.trace = trace
        self.address: Address = parse_address(url or default_url())
        self.name = name
        self._timeout_s = timeout_s
        self._shared: dict[str, SharedQueue] = {}
        self._closed = False

    @overload
    def queue(self, queue: str, **defaults: Unpack[JobChanges]) -> QueueHandle[Any, Any]: ...
    @overload
    def queue(self, queue: Queue[P, R], **defaults: Unpack[JobChanges]) -> QueueHandle[P, R]: ...

    def queue(self, queue: Any, **defaults: Unpack[JobChanges]) -> QueueHandle[Any, Any]:
        """A queue with defaults for its jobs: retries, max_stalls, backoff, timeout_ms. BadQueue."""
        if self._closed:
            raise Closed("this client was closed", hint="Open a new one: QueueClient(url)")
        declared: Queue[Any, Any] = Queue(queue) if isinstance(queue, str) else queue
        shared = self._shared.get(declared.id)
        if shared is None:
            shared = self._shared[declared.id] = SharedQueue(self.address, declared, self._timeout_s, actor=self.name)
        shared.agree_with(declared)
        return QueueHandle(self, declared, Intake(declared, with_options(declared.options, **defaults)), shared)

    async def add_flow(self, flow: FlowJob) -> AddedJob[Any]:
        """Add jobs that wait for each other; gives the one that runs last. BadFlow; else as `QueueHandle.add`."""
        handle = self.queue(flow.queue)
        # A connection of its own: in a cluster it goes from node to node.
        port = Port(self.address, QueueStore(flow.queue.id).keys.tag, timeout_s=self._timeout_s)
        try:
            root = await port.hold(family.add_flow(planned(flow), actor=self.name))
        finally:
            port.close()
        return AddedJob(root, handle)

    async def connect(self) -> None:
        """See whether the server answers. ServerUnreachable within a few seconds, AccessDenied."""
        port = Port(self.address, timeout_s=self._timeout_s)
        try:
            await port.call("PING")
        finally:
            port.close()

    async def close(self) -> None:
        """Let go of all connections. Adds that nobody has waited for fail."""
        self._closed = True
        for shared in self._shared.values():
            shared.close()
        # Transports that were told to close do so in the next round.
        await asyncio.sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
