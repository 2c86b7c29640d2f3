"""A connection for code that has no event loop: the command line, the sync client, the renewal thread.

One caller at a time; a lock sees to it. A call that broke off may have been executed or not, so it is never repeated
here, except where the connection turns out to be dead before anything was sent on it.
"""

from __future__ import annotations

from contextlib import suppress
import os
import select
import socket
import threading
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.panqueue.address import Address, Login, Node, Topology
from queueyard.panqueue.errors import PanqueueError, ServerUnreachable
from queueyard.panqueue.refusals import explained, moved_to, unreachable
from queueyard.panqueue.wire import INCOMPLETE, Refusal, Reply, Word, new_reader, packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.scripts import Script
    from queueyard.panqueue.store import Ask, Talk

_T = TypeVar("_T")

CONNECT_TIMEOUT_S = 2.0
CALL_TIMEOUT_S = 10.0
_CHUNK = 65_536


class Socket:
    """One connection to one node; broken for good after its first failure."""

    def __init__(self, node: Node, address: Address, login: Login, *, timeout_s: float) -> None:
        self.node = node
        self._reader = new_reader()
        try:
            self._socket = _connected(node, address, min(timeout_s, CONNECT_TIMEOUT_S))
        except OSError as fault:
            raise unreachable(node, fault) from fault
        #: what the server says about itself, from HELLO
        self.greeting: dict[bytes, Reply] = {}
        try:
            self._greet(login)
            self._socket.settimeout(timeout_s)
        except BaseException:
            self.close()
            raise

    def call(self, words: Sequence[Word]) -> Reply:
        """Send a command and wait for its reply, which may be a Refusal. ServerUnreachable."""
        try:
            self._socket.sendall(packed(words))
            return self.read()
        except OSError as fault:
            raise unreachable(self.node, fault) from fault

    def read(self) -> Reply:
        """The next reply, or OSError."""
        reply = self._parsed()
        while reply is INCOMPLETE:
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._reader.feed(data)
            reply = self._parsed()
        return reply

    def _parsed(self) -> Reply:
        try:
            return self._reader.gets()
        except Refusal as fault:
            raise ConnectionError("it does not speak as a Redis does") from fault

    def select(self, db: int) -> None:
        reply = self.call(["SELECT", db])
        if isinstance(reply, Refusal):
            raise explained(reply, self.node)

    def set_timeout(self, seconds: float | None) -> None:
        self._socket.settimeout(seconds)

    def is_dead(self) -> bool:
        """Whether the other end hung up; nothing must be outstanding."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _greet(self, login: Login) -> None:
        words = hello(login)
        reply = self.call(words)
        if isinstance(reply, Refusal):
            raise explained(reply, self.node)
        pairs = iter(reply)
        self.greeting = dict(zip(pairs, pairs, strict=False))


def hello(login: Login) -> list[Word]:
    """The first command on every connection."""
    words: list[Word] = ["HELLO", 2]
    if login.password is not None or login.username is not None:
        words += ["AUTH", login.username or "default", login.password or ""]
    return [*words, "SETNAME", "panqueue"]


def _connected(node: Node, address: Address, timeout_s: float) -> socket.socket:
    if node.path is not None:
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        raw.settimeout(timeout_s)
        try:
            raw.connect(node.path)
        except OSError:
            raw.close()
            raise
        return raw
    raw = socket.create_connection((node.host, node.port), timeout=timeout_s)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    context = address.tls_context()
    return raw if context is None else context.wrap_socket(raw, server_hostname=node.host)


def open_socket(address: Address, tag: str, *, timeout_s: float = CALL_TIMEOUT_S) -> Socket:
    """A connection to the node that holds the keys of `tag`, in its database. ServerUnreachable, AccessDenied."""
    connection = Socket(find_node(address, tag, timeout_s=timeout_s), address, address.login, timeout_s=timeout_s)
    try:
        if tag and address.topology is Topology.DIRECT and connection.greeting.get(b"mode") == b"cluster":
            node = _owner_of(connection, tag)
            if node != connection.node:
                connection.close()
                connection = Socket(node, address, address.login, timeout_s=timeout_s)
        if address.db:
            connection.select(address.db)
    except BaseException:
        connection.close()
        raise
    return connection


def find_node(address: Address, tag: str, *, timeout_s: float = CONNECT_TIMEOUT_S) -> Node:
    """Which node to connect to. ServerUnreachable if none of those that were given knows."""
    if address.topology is Topology.DIRECT:
        return address.nodes[0]
    told: list[str] = []
    for node in address.nodes:
        login = address.sentinel_login if address.topology is Topology.SENTINEL else address.login
        try:
            connection = Socket(node, address, login, timeout_s=timeout_s)
        except PanqueueError as fault:
            told.append(str(fault))
            continue
        try:
            if address.topology is Topology.CLUSTER:
                return _owner_of(connection, tag)
            master = connection.call(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service])
        except ServerUnreachable as fault:
            told.append(str(fault))
            continue
        finally:
            connection.close()
        if isinstance(master, list):
            return Node(host=master[0].decode(), port=int(master[1]))
        told.append(f"{node} knows no {address.service!r}")
    raise unreachable(address, "; ".join(told))


def lines_to_all(address: Address) -> list[Line]:
    """One line per server that may hold queues: one, or every master of a cluster. ServerUnreachable."""
    first = Line(address)
    greeting = first.greeting()
    if greeting.get(b"mode") != b"cluster":
        return [first]
    ranges = first.call("CLUSTER", "SLOTS")
    here = address.nodes[0].host
    masters = {Node(host=(master[0] or b"").decode() or here, port=int(master[1])) for _, _, master, *_ in ranges}
    first.close()
    return [Line(replace(address, topology=Topology.DIRECT, nodes=(node,))) for node in sorted(masters, key=str)]


def _owner_of(connection: Socket, tag: str) -> Node:
    slot = connection.call(["CLUSTER", "KEYSLOT", tag])
    ranges = connection.call(["CLUSTER", "SLOTS"])
    for reply in (slot, ranges):
        if isinstance(reply, Refusal):
            raise explained(reply, connection.node)
    for start, end, master, *_replicas in ranges:
        if start <= slot <= end:
            return Node(host=(master[0] or b"").decode() or connection.node.host, port=int(master[1]))
    raise unreachable(connection.node, f"nobody serves slot {slot}")


class Line:
    """A connection that is made when it is needed and made anew after it broke."""

    def __init__(self, address: Address, tag: str = "", *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        self.address = address
        self._tag = tag
        self._timeout_s = timeout_s
        self._guard = threading.Lock()
        self._socket: Socket | None = None
        self._pid = 0
        self._elsewhere: Node | None = None

    def call(self, *words: Word) -> Reply:
        """One command. ServerUnreachable if its fate is unknown; what the server refuses is raised."""
        reply = self._ask(words)
        if isinstance(reply, Refusal):
            raise explained(reply, self.address)
        return reply

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Word]) -> Reply:
        """Run a script: by its name, and with its text where the server does not know it."""
        reply = self._ask(["EVALSHA", script.sha, len(keys), *keys, *arguments])
        if isinstance(reply, Refusal) and reply.code == "NOSCRIPT":
            reply = self._ask(["EVAL", script.text, len(keys), *keys, *arguments])
        if isinstance(reply, Refusal):
            raise explained(reply, self.address)
        return reply

    def greeting(self) -> dict[bytes, Reply]:
        """What the server says about itself. ServerUnreachable, AccessDenied."""
        with self._guard:
            return self._open().greeting

    def ask(self, ask: Ask[_T]) -> _T:
        """One call of the store, and what its reply means."""
        return ask.parse(self.run(ask.script, ask.keys, ask.arguments) if ask.script else self.call(*ask.arguments))

    def hold(self, talk: Talk[_T]) -> _T:
        """Carry a whole conversation to its end."""
        go_on, answer = talk.send, None
        while True:
            try:
                ask = go_on(answer)
            except StopIteration as end:
                value: _T = end.value
                return value
            try:
                go_on, answer = talk.send, self.ask(ask)
            except PanqueueError as fault:
                go_on, answer = talk.throw, fault

    def close(self) -> None:
        with self._guard:
            self._drop()

    def _ask(self, words: Sequence[Word]) -> Reply:
        with self._guard:
            if self._socket is not None and (self._pid != os.getpid() or self._socket.is_dead()):
                # Gone, or our parent's: two processes on one connection would read each other's replies.
                self._drop()
            reply = self._exchange(words)
            node = moved_to(reply, self._open().node) if isinstance(reply, Refusal) else None
            if node is not None:
                # A refusal to look is no change of anything: asking the right node is the first real try.
                self._drop()
                self._elsewhere = node
                reply = self._exchange(words)
            return reply

    def _exchange(self, words: Sequence[Word]) -> Reply:
        connection = self._open()
        try:
            return connection.call(words)
        except BaseException:
            # A reply that comes late must never be taken for the answer to the next call.
            self._drop()
            raise

    def _open(self) -> Socket:
        if self._socket is None:
            if self._elsewhere is not None:
                self._socket = Socket(self._elsewhere, self.address, self.address.login, timeout_s=self._timeout_s)
            else:
                self._socket = open_socket(self.address, self._tag, timeout_s=self._timeout_s)
            self._pid = os.getpid()
        return self._socket

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        self._elsewhere = None
        if connection is not None:
            connection.close()


class Messages:
    """Messages on channels, for code without an event loop."""

    def __init__(self, address: Address, tag: str, channels: Sequence[str]) -> None:
        self._socket = open_socket(address, tag)
        self._socket.call(["SUBSCRIBE", *channels])

    def wait(self, seconds: float) -> bytes | None:
        """The next message; None if none came in time. ServerUnreachable."""
        deadline = SYSTEM_CLOCK.monotonic() + seconds
        while True:
            left = deadline - SYSTEM_CLOCK.monotonic()
            if left <= 0:
                return None
            self._socket.set_timeout(left)
            try:
                reply = self._socket.read()
            except TimeoutError:
                return None
            except OSError as fault:
                raise unreachable(self._socket.node, fault) from fault
            if isinstance(reply, list) and reply[0] == b"message":
                message: bytes = reply[2]
                return message

    def close(self) -> None:
        self._socket.close()
