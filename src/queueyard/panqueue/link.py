"""A connection for an event loop: calls are written as they come, replies are handed out in order.

`Link` is one connection and ends with it. `Port` is what others use: it connects when needed, follows a cluster's
redirections, and knows what to do about a script that the server has forgotten. A call that broke off may have been
executed or not; nothing here repeats it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from queueyard.panqueue.address import Address, Node, Topology
from queueyard.panqueue.blocking import CALL_TIMEOUT_S, CONNECT_TIMEOUT_S, find_node, hello
from queueyard.panqueue.errors import Closed, PanqueueError
from queueyard.panqueue.refusals import TRANSIENT, explained, moved_to, unreachable
from queueyard.panqueue.wire import INCOMPLETE, Refusal, Reply, Word, new_reader, packed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.scripts import Script
    from queueyard.panqueue.store import Ask, Talk

_T = TypeVar("_T")


class Asker(Protocol):
    """What carries a call to the server."""

    async def ask(self, ask: Ask[_T]) -> _T: ...

    def close(self) -> None: ...


async def hold(asker: Asker, talk: Talk[_T]) -> _T:
    """Carry a whole conversation to its end; what is refused is told to it, and it may go on."""
    go_on: Callable[[Any], Ask[Any]] = talk.send
    answer: Any = None
    while True:
        try:
            ask = go_on(answer)
        except StopIteration as end:
            value: _T = end.value
            return value
        try:
            go_on, answer = talk.send, await asker.ask(ask)
        except PanqueueError as fault:
            go_on, answer = talk.throw, fault


class Link(asyncio.Protocol):
    """One connection. Every call gets a future; all of them fail when the connection ends."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self.node = node
        self._loop = loop
        self._reader = new_reader()
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._transport: asyncio.Transport | None = None
        #: gets what is not the answer to a call: messages of channels
        self.on_message: Callable[[Reply], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.ended = False
        self._why = "the server closed the connection"

    # --- called by the event loop ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            reply = reader.gets()
            while reply is not INCOMPLETE:
                self._hand_out(reply)
                reply = reader.gets()
        except Refusal:
            # Not the protocol that we speak: there is no telling where the next reply starts.
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        why = exc or self._why
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(unreachable(self.node, why))
        if self.on_end is not None:
            self.on_end()

    # --- called by us ------------------------------------------------------------------------------------------------

    def send(self, words: Sequence[Word]) -> asyncio.Future[Reply]:
        """The reply to come, which may be a Refusal. Fails with ServerUnreachable if the connection ends first."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        if self._transport is None or self.ended or self._transport.is_closing():
            future.set_exception(unreachable(self.node, "the connection is closed"))
        else:
            self._waiting.append(future)
            self._transport.write(packed(words))
        return future

    def close(self, why: str = "the connection was closed") -> None:
        self._why = why
        if self._transport is not None:
            self._transport.abort()

    def _hand_out(self, reply: Reply) -> None:
        if self.on_message is not None and isinstance(reply, list) and reply[0] in {b"message", b"unsubscribe"}:
            self.on_message(reply)
            return
        if not self._waiting:
            return
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(reply)


async def open_link(address: Address, node: Node) -> Link:
    """Connect to a node, introduce ourselves and choose the database. ServerUnreachable, AccessDenied."""
    loop = asyncio.get_running_loop()
    link = Link(node, loop)
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            if node.path is not None:
                await loop.create_unix_connection(lambda: link, node.path)
            else:
                context = address.tls_context()
                await loop.create_connection(lambda: link, node.host, node.port, ssl=context)
            replies = [await link.send(hello(address.login))]
            if address.db:
                replies.append(await link.send(["SELECT", address.db]))
    except TimeoutError as fault:
        link.close()
        raise unreachable(node, f"no connection within {CONNECT_TIMEOUT_S:g} s") from fault
    except OSError as fault:
        link.close()
        raise unreachable(node, fault) from fault
    except BaseException:
        link.close()
        raise
    for reply in replies:
        if isinstance(reply, Refusal):
            link.close()
            raise explained(reply, node)
    return link


class Port:
    """The way to the server that holds one queue, or all of them where there is one server only."""

    def __init__(self, address: Address, tag: str = "", *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.address = address
        self._tag = tag
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._opening: asyncio.Task[Link] | None = None
        self._elsewhere: Node | None = None
        self._closed = False

    async def connect(self) -> Link:
        """The connection, made now if there is none; several callers wait for the same one."""
        if self._closed:
            raise Closed("this connection was closed", hint="Open a new client or worker.")
        if self._link is not None and not self._link.ended:
            return self._link
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def call(self, *words: Word) -> Reply:
        """One command. ServerUnreachable if its fate is unknown; what the server refuses is raised."""
        reply = await self._ask(words)
        if isinstance(reply, Refusal):
            raise explained(reply, self.address)
        return reply

    async def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Word]) -> Reply:
        """Run a script: by its name, and with its text where the server does not know it."""
        reply = await self._ask(["EVALSHA", script.sha, len(keys), *keys, *arguments])
        if isinstance(reply, Refusal) and reply.code == "NOSCRIPT":
            reply = await self._ask(["EVAL", script.text, len(keys), *keys, *arguments])
        if isinstance(reply, Refusal):
            raise explained(reply, self.address)
        return reply

    async def ask(self, ask: Ask[_T]) -> _T:
        """One call of the store, and what its reply means."""
        if ask.script is None:
            return ask.parse(await self.call(*ask.arguments))
        return ask.parse(await self.run(ask.script, ask.keys, ask.arguments))

    async def hold(self, talk: Talk[_T]) -> _T:
        """Carry a whole conversation to its end."""
        return await hold(self, talk)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._link is not None:
            self._link.close()

    async def _ask(self, words: Sequence[Word]) -> Reply:
        link = self._link
        if link is None or link.ended:
            link = await self.connect()
        reply = await self._reply_of(link, words)
        if isinstance(reply, Refusal) and reply.code in TRANSIENT:
            # Whoever asks again shall ask the right node, or the new master.
            self._elsewhere = moved_to(reply, link.node)
            self._link = None
            link.close()
            if self._elsewhere is not None:
                return await self._reply_of(await self.connect(), words)
        return reply

    async def _reply_of(self, link: Link, words: Sequence[Word]) -> Reply:
        future = link.send(words)
        # Cheaper than asyncio.timeout, and the link must go in any case: a late reply would be taken for the next one.
        why = f"no reply within {self._timeout_s:g} s"
        timer = asyncio.get_running_loop().call_later(self._timeout_s, link.close, why)
        try:
            return await future
        finally:
            timer.cancel()

    async def _open(self) -> Link:
        if self._elsewhere is not None:
            node = self._elsewhere
        elif self.address.topology is Topology.DIRECT:
            node = self.address.nodes[0]
        else:
            # Rare, and shared with those who have no event loop: a thread may block.
            node = await asyncio.to_thread(find_node, self.address, self._tag)
        self._elsewhere = None
        return await open_link(self.address, node)

    def _opened(self, task: asyncio.Task[Link]) -> None:
        self._opening = None
        if task.cancelled():
            return
        if task.exception() is None:
            self._link = task.result()
            if self._closed:
                self._link.close()


class Channel:
    """Messages on channels. Connects once; whoever wants more connects again."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        link.on_end = self._ended

    @classmethod
    async def open(
        cls, address: Address, tag: str, channels: Sequence[str], on_message: Callable[[bytes], None]
    ) -> Channel:
        """Subscribe; `on_message` gets each message. ServerUnreachable, AccessDenied."""
        node = await _node_for(address, tag)
        link = await open_link(address, node)
        opened = cls(link)
        link.on_message = lambda reply: on_message(reply[2])
        try:
            await opened._subscribe(channels)
        except BaseException:
            # Also if nobody waits any longer: the connection has no other owner yet.
            link.close()
            raise
        return opened

    async def ended(self) -> None:
        """Returns when the connection is gone."""
        await asyncio.shield(self._end)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection is gone, at once if it is already."""
        self._end.add_done_callback(lambda _: callback())

    def close(self) -> None:
        self._link.close()

    async def _subscribe(self, channels: Sequence[str]) -> None:
        for channel in channels:
            reply = await self._link.send(["SUBSCRIBE", channel])
            if isinstance(reply, Refusal):
                raise explained(reply, self._link.node)

    def _ended(self) -> None:
        if not self._end.done():
            self._end.set_result(None)


async def _node_for(address: Address, tag: str) -> Node:
    if address.topology is Topology.DIRECT:
        return address.nodes[0]
    return await asyncio.to_thread(find_node, address, tag)
