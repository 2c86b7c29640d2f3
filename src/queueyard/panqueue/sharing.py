"""What all handles of one queue in one client share: the connection, the mode, the adds of this round, and who waits.

Adds that are made in the same round of the event loop become one call. Who waits for a result is told by a channel, and
looks now and then in case it was not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from queueyard.panqueue import service
from queueyard.panqueue.adding import NewJob, calls_for, ids_of
from queueyard.panqueue.errors import Closed, Duplicate, ModeMismatch, PanqueueError, ServerUnreachable
from queueyard.panqueue.link import Channel, Port
from queueyard.panqueue.records import Mode
from queueyard.panqueue.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.address import Address
    from queueyard.panqueue.queues import Queue
    from queueyard.panqueue.store import Ask

_LOOK_AGAIN_S = 1.0
#: waiting for a result goes on over so many failed looks in a row: a server may be restarted meanwhile
PATIENCE = 40


#: makes of an id, and of whether the job is new, what whoever awaits the add is given
Accept = Callable[..., Any]


class SharedQueue:
    """What all handles of one queue share: the connection, the mode, the adds of this round, and who waits."""

    def __init__(self, address: Address, queue: Queue[Any, Any], timeout_s: float, *, actor: str) -> None:
        """`actor` stands in events as who added a job."""
        self.store = QueueStore(queue.id)
        self.port = Port(address, self.store.keys.tag, timeout_s=timeout_s)
        self._declared = queue
        #: None: not known yet. The script checks it again with every add.
        self.mode: Mode | None = Mode.GLOBAL if queue.mode is Mode.GLOBAL else None
        self._learning: asyncio.Task[Mode] | None = None
        self._address = address
        self._actor = actor
        self._loop: asyncio.AbstractEventLoop | None = None
        self._new: list[NewJob] = []
        self._futures: list[tuple[asyncio.Future[Any], Accept]] = []
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

    def enqueue(self, new: NewJob, accept: Accept) -> asyncio.Future[Any]:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if not self._new:
            loop.call_soon(self._send)
        self._new.append(new)
        self._futures.append((future, accept))
        return future

    def _send(self) -> None:
        new, self._new = self._new, []
        futures, self._futures = self._futures, []
        keyed = self.mode is not Mode.GLOBAL
        start = 0
        for part, ask in calls_for(self.store, new, keyed=keyed, actor=self._actor):
            task = asyncio.get_running_loop().create_task(self._deliver(part, ask, futures[start : start + len(part)]))
            # The loop keeps weak references only.
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
            start += len(part)

    async def _deliver(
        self, part: Sequence[NewJob], ask: Ask[int], futures: list[tuple[asyncio.Future[Any], Accept]]
    ) -> None:
        try:
            first = await self.port.ask(ask)
        except Duplicate as fault:
            for future, accept in futures:
                if not future.done():
                    future.set_result(accept(fault.job_id, is_new=False))
            return
        except PanqueueError as fault:
            if len(part) > 1 and part[0].ids_from.value:
                # A taken id refuses the whole call: each job gets its own answer.
                await self._deliver_one_by_one(part, futures)
                return
            for future, _ in futures:
                if not future.done():
                    future.set_exception(fault)
            return
        for job_id, (future, accept) in zip(ids_of(part, first), futures, strict=True):
            if not future.done():
                future.set_result(accept(job_id))

    async def _deliver_one_by_one(
        self, part: Sequence[NewJob], futures: list[tuple[asyncio.Future[Any], Accept]]
    ) -> None:
        keyed = self.mode is not Mode.GLOBAL
        for (single, ask), future in zip(
            (call for new in part for call in calls_for(self.store, [new], keyed=keyed, actor=self._actor)),
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
        channel = await Channel.open(self._address, keys.tag, [keys["finished"]], self._on_finished)
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
