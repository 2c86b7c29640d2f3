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

from queueyard.panqueue import service
from queueyard.panqueue.adding import Intake, NewJob, calls_for, ids_of
from queueyard.panqueue.address import default_url, parse_address
from queueyard.panqueue.errors import Closed, ModeMismatch, PanqueueError, ServerUnreachable, TimedOut
from queueyard.panqueue.link import Channel, Port
from queueyard.panqueue.queues import JobChanges, Queue, with_options
from queueyard.panqueue.records import Counts, JobRecord, JobState, Keep, Mode
from queueyard.panqueue.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
    from types import TracebackType

    from queueyard.kernel.events import Event
    from queueyard.panqueue.address import Address
    from queueyard.panqueue.records import BackoffRule
    from queueyard.panqueue.store import Ask, Talk

P = TypeVar("P")
R = TypeVar("R")
_T = TypeVar("_T")

_LOOK_AGAIN_S = 1.0
#: waiting for a result goes on over so many failed looks in a row: a server may be restarted meanwhile
PATIENCE = 40


class AddedJob(Generic[R]):
    """A job that the server has accepted."""

    __slots__ = ("_handle", "id")

    def __init__(self, job_id: str, handle: QueueHandle[Any, R]) -> None:
        self.id = job_id
        self._handle = handle

    @property
    def queue_id(self) -> str:
        return self._handle.queue.id

    async def result(self, *, timeout_s: float | None = None) -> R | None:
        """What its handler returned, as soon as it is over. JobFailed, ResultGone, TimedOut."""
        return await self._handle.result(self.id, timeout_s=timeout_s)

    async def record(self) -> JobRecord:
        """Everything that is known about it now. UnknownJob."""
        return await self._handle.job(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self.queue_id}>"


class QueueHandle(Generic[P, R]):
    """One queue, with defaults for what is added through it. Made by `QueueClient.queue`."""

    def __init__(self, client: QueueClient, queue: Queue[P, R], intake: Intake[P], shared: _Shared) -> None:
        self.queue = queue
        self._client = client
        self._intake = intake
        self._shared = shared

    # --- adding ------------------------------------------------------------------------------------------------------

    def add(
        self,
        payload: P,
        *,
        key: str | None = None,
        job_id: str | None = None,
        retries: int | None = None,
        max_stalls: int | None = None,
        backoff: BackoffRule | None = None,
        timeout_ms: int | None = None,
    ) -> Awaitable[AddedJob[R]]:
        """Add one job; awaiting it gives the accepted job.

        Raises at once: NotSerializable, PayloadTooLarge, KeyRequired. When awaited: ModeMismatch, JobExists,
        ServerFull, ServerUnreachable.
        """
        shared = self._shared
        options: JobChanges = {}
        if retries is not None or max_stalls is not None or backoff is not None or timeout_ms is not None:
            options = {"retries": retries, "max_stalls": max_stalls, "backoff": backoff, "timeout_ms": timeout_ms}
        if shared.mode is None:
            self.queue.payloads.encode(payload)
            return asyncio.ensure_future(self._add_when_known(payload, key, job_id, **options))
        keyed = shared.mode is not Mode.GLOBAL
        return shared.enqueue(self._intake.prepare(payload, keyed=keyed, key=key, job_id=job_id, **options), self)

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

    async def _accepted(self, part: Sequence[NewJob], task: asyncio.Task[int]) -> list[AddedJob[R]]:
        return [AddedJob(job_id, self) for job_id in ids_of(part, await task)]

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

    async def _hold(self, talk: Talk[_T]) -> _T:
        return await self._shared.port.hold(talk)


def _noticed(call: asyncio.Task[int]) -> None:
    if not call.cancelled():
        call.exception()


class QueueClient:
    """A way to one server, sentinels or cluster. Connects when first used; one event loop only."""

    def __init__(self, url: str | None = None, *, name: str = "client", timeout_s: float = 10.0) -> None:
        """Without `url`: REDIS_URL, else this machine. `name` stands in events as who added a job. BadAddress."""
        self.address: Address = parse_address(url or default_url())
        self.name = name
        self._timeout_s = timeout_s
        self._shared: dict[str, _Shared] = {}
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
            shared = self._shared[declared.id] = _Shared(self, declared, self._timeout_s)
        shared.agree_with(declared)
        return QueueHandle(self, declared, Intake(declared, with_options(declared.options, **defaults)), shared)

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


class _Shared:
    """What all handles of one queue share: the connection, the mode, the adds of this round, and who waits."""

    def __init__(self, client: QueueClient, queue: Queue[Any, Any], timeout_s: float) -> None:
        self.store = QueueStore(queue.id)
        self.port = Port(client.address, self.store.keys.tag, timeout_s=timeout_s)
        self._declared = queue
        #: None: not known yet. The script checks it again with every add.
        self.mode: Mode | None = Mode.GLOBAL if queue.mode is Mode.GLOBAL else None
        self._learning: asyncio.Task[Mode] | None = None
        self._client = client
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: list[NewJob] = []
        self._futures: list[tuple[asyncio.Future[Any], QueueHandle[Any, Any]]] = []
        self._sending: set[asyncio.Task[None]] = set()
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._channel: asyncio.Task[Channel] | None = None

    def agree_with(self, queue: Queue[Any, Any]) -> None:
        """Take the mode of another declaration of the same queue. ModeMismatch if it was declared differently."""
        if queue.mode is None or queue.mode is self._declared.mode:
            return
        if self._declared.mode is not None:
            raise ModeMismatch(
                f"queue {queue.id} was declared in {self._declared.mode} mode before, and now in {queue.mode} mode",
                hint="Declare it once, and use that object everywhere.",
            )
        self._declared = queue
        self.mode = Mode.GLOBAL if queue.mode is Mode.GLOBAL else None

    async def learn_mode(self) -> Mode:
        """The queue's mode: as configured, else as stored, else global. Asked once per client."""
        if self.mode is None:
            if self._learning is None:
                self._learning = asyncio.get_running_loop().create_task(self._ask_for_mode())
            try:
                self.mode = await asyncio.shield(self._learning)
            finally:
                self._learning = None
        return self.mode

    async def _ask_for_mode(self) -> Mode:
        configured = self._declared.mode
        if configured is not None:
            await self.port.ask(self.store.declare_mode(configured, self._declared.key_concurrency))
            return configured
        return await self.port.hold(service.stored_mode(self.store))

    def enqueue(self, new: NewJob, handle: QueueHandle[Any, R]) -> asyncio.Future[AddedJob[R]]:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[AddedJob[R]] = loop.create_future()
        if not self._new:
            loop.call_soon(self._send)
        self._new.append(new)
        self._futures.append((future, handle))
        return future

    def _send(self) -> None:
        new, self._new = self._new, []
        futures, self._futures = self._futures, []
        keyed = self.mode is not Mode.GLOBAL
        start = 0
        for part, ask in calls_for(self.store, new, keyed=keyed, actor=self._client.name):
            task = asyncio.get_running_loop().create_task(self._deliver(part, ask, futures[start : start + len(part)]))
            # The loop keeps weak references only.
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            start += len(part)

    async def _deliver(
        self, part: Sequence[NewJob], ask: Ask[int], futures: list[tuple[asyncio.Future[Any], QueueHandle[Any, Any]]]
    ) -> None:
        try:
            first = await self.port.ask(ask)
        except PanqueueError as fault:
            if len(part) > 1 and part[0].ids_from.value:
                # A taken id refuses the whole call: each job gets its own answer.
                await self._deliver_one_by_one(part, futures)
                return
            for future, _ in futures:
                if not future.done():
                    future.set_exception(fault)
            return
        for job_id, (future, handle) in zip(ids_of(part, first), futures, strict=True):
            if not future.done():
                future.set_result(AddedJob(job_id, handle))

    async def _deliver_one_by_one(
        self, part: Sequence[NewJob], futures: list[tuple[asyncio.Future[Any], QueueHandle[Any, Any]]]
    ) -> None:
        keyed = self.mode is not Mode.GLOBAL
        for (single, ask), future in zip(
            (call for new in part for call in calls_for(self.store, [new], keyed=keyed, actor=self._client.name)),
            futures,
            strict=True,
        ):
            await self._deliver(single, ask, [future])

    # --- who waits ---------------------------------------------------------------------------------------------------

    async def until_ended(self, job_id: str) -> service.Ended:
        failures = 0
        while True:
            told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.setdefault(job_id, []).append(told)
            try:
                await self._listen()
                end = await self.port.hold(service.ended(self.store, job_id))
                if end is not None:
                    return end
                failures = 0
                # Not every end is told (a worker of another make, a queue that keeps nothing): look now and then.
                await asyncio.wait([told], timeout=_LOOK_AGAIN_S)
            except ServerUnreachable:
                failures += 1
                if failures > PATIENCE:
                    raise
                await asyncio.sleep(_LOOK_AGAIN_S / 4)
            finally:
                self._forget(job_id, told)

    async def _listen(self) -> None:
        if self._channel is None or (self._channel.done() and self._channel.exception() is not None):
            self._channel = asyncio.get_running_loop().create_task(self._open_channel())
        try:
            await asyncio.shield(self._channel)
        except PanqueueError:
            # Looking now and then is enough to go on.
            self._channel = None

    async def _open_channel(self) -> Channel:
        keys = self.store.keys
        channel = await Channel.open(self._client.address, keys.tag, [keys["finished"]], self._on_finished)
        channel.on_end(self._channel_ended)
        return channel

    def _channel_ended(self) -> None:
        self._channel = None

    def _on_finished(self, message: bytes) -> None:
        for raw in message.split(b"\n"):
            for future in self._waiters.pop(raw.decode("utf-8", "surrogateescape"), ()):
                if not future.done():
                    future.set_result(None)

    def _forget(self, job_id: str, told: asyncio.Future[None]) -> None:
        left = [one for one in self._waiters.get(job_id, ()) if one is not told]
        if left:
            self._waiters[job_id] = left
        else:
            self._waiters.pop(job_id, None)

    def close(self) -> None:
        self.port.close()
        if self._channel is not None:
            if self._channel.done() and not self._channel.cancelled() and self._channel.exception() is None:
                self._channel.result().close()
            self._channel.cancel()
        for future, _ in self._futures:
            if not future.done():
                future.set_exception(Closed("the client was closed before the job was sent"))
