"""One exchange with the server over HTTP: no retries, no decisions, no state but the connection.

A reply is a reply, whatever its status; TransportFailed means that there was none, or only a part of one, so that
nobody knows whether the server did what it was asked. The token goes to this server only: over TLS or within this
machine, never to where a redirect points, and never into a message.

An exchange can be begun while another is under way: everything but its last byte is sent over a line of its own. A
server can do nothing with it until it is whole, so it counts as not sent.

The standard library's client is used because it posts three times as many batches a second as the others that were
measured, and needs no import of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec

from queueyard import __version__
from queueyard.kernel.errors import UsageFault
from queueyard.ops.errors import InsecureServer, TransportFailed
from queueyard.ops.records import CLIENT_HEADER, DEFAULT_SPACE, SPACE_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from http.client import HTTPConnection, HTTPResponse
    from pathlib import Path

#: no answer of ours is longer; a stream without end must not fill the memory
LONGEST_REPLY_BYTES = 256 << 20
_PROBLEM = msgspec.json.Decoder(dict[str, object])


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the server said."""

    status: int
    #: names in lower case
    headers: Mapping[str, str]
    body: bytes

    def problem(self) -> dict[str, object]:
        """The problem document of a refusal; empty where something else, a proxy perhaps, has answered."""
        try:
            return _PROBLEM.decode(self.body) if self.status >= 400 else {}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}

    @property
    def code(self) -> str | None:
        """Why, for programs."""
        code = self.problem().get("code")
        return code if isinstance(code, str) else None

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks us to wait; only the form in seconds is known."""
        try:
            return min(max(0.0, float(self.headers["retry-after"])), 86_400.0)
        except (KeyError, ValueError):
            return None


class Transport(Protocol):
    """What a client needs of the network; tests put a simulated one in its place."""

    def exchange(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Ask once. TransportFailed if there is no whole reply."""

    def begin(self, method: str, path: str, body: bytes) -> Begun | None:
        """Send all but the last byte of an exchange that is to come. None if that was not possible."""

    def close(self) -> None:
        """Let go of the connections, and of what was begun."""


class Begun(Protocol):
    """An exchange that lacks its last byte."""

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> Reply:
        """Ask, once, and do something else until there is a reply. TransportFailed if there is no whole one."""


class HttpTransport:
    """Connections to one server, kept open between exchanges: one, and a second if exchanges are begun ahead."""

    def __init__(
        self,
        server: str,
        *,
        space: str = DEFAULT_SPACE,
        token: str | None = None,
        client_id: str | None = None,
        timeout_s: float = 60.0,
        ca_file: Path | None = None,
        compress: str = "none",
        allow_clear_text: bool = False,
    ) -> None:
        """InsecureServer if the token would leave this machine in clear text, unless that is allowed."""
        self._address = urlsplit(origin_of(server))
        if token and self._address.scheme == "http" and not is_loopback(server) and not allow_clear_text:
            raise InsecureServer(
                f"the token would go to {server} in clear text",
                hint="Use https://, or set allow_clear_text if the network is your own.",
            )
        self._headers = {"User-Agent": f"jolli-ops/{__version__}", "Accept": "application/json", SPACE_HEADER: space}
        self._headers |= {CLIENT_HEADER: client_id} if client_id else {}
        self._headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._ca_file = ca_file
        self._compress = compress
        self._idle: list[HTTPConnection] = []
        self._begun: list[_HttpBegun] = []

    def exchange(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Ask once. After a failure the next exchange opens a new connection."""
        with self._explaining(self._line()) as connection:
            # A server that refuses a body may answer before it has read all of it, and hang up.
            with suppress(BrokenPipeError, ConnectionResetError):
                self._send(connection, method, path, body)
            return self._read(connection)

    def begin(self, method: str, path: str, body: bytes) -> Begun | None:
        """Send all but the last byte over a line that nobody else uses."""
        try:
            with self._explaining(self._line()) as connection:
                last = self._send(connection, method, path, body, withheld=1)
        except TransportFailed:
            return None
        begun = _HttpBegun(connection, last, finish=self._finish, anew=partial(self.exchange, method, path, body))
        self._begun.append(begun)
        return begun

    def close(self) -> None:
        self._give_up_begun()
        while self._idle:
            self._idle.pop().close()

    def _finish(self, begun: _HttpBegun, meanwhile: Callable[[], None]) -> Reply:
        if begun not in self._begun:
            return begun.anew()
        self._begun.remove(begun)
        with self._explaining(begun.connection) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.send(begun.last)
            meanwhile()
            return self._read(connection)

    def _give_up_begun(self) -> None:
        while self._begun:
            self._begun.pop().connection.close()

    def _line(self) -> HTTPConnection:
        """One that nobody uses."""
        return self._idle.pop() if self._idle else self._new_line()

    @contextmanager
    def _explaining(self, connection: HTTPConnection) -> Iterator[HTTPConnection]:
        from http.client import HTTPException  # noqa: PLC0415  only who talks to a server needs it

        try:
            if connection.sock is None:
                connection.connect()
                _without_delay(connection)
            yield connection
        except (HTTPException, OSError) as fault:
            connection.close()
            self.close()
            told = str(fault) or type(fault).__name__
            raise TransportFailed(
                f"no answer from {self._address.geturl()}: {told}", hint="Is it running? Try: jolli-ops status --remote"
            ) from fault

    def _send(
        self, connection: HTTPConnection, method: str, path: str, body: bytes | None, *, withheld: int = 0
    ) -> bytes:
        """Send an exchange but for so many bytes of its body; these."""
        headers = dict(self._headers)
        sent = b""
        if body is not None:
            sent, encoding = _compressed(body, self._compress)
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(sent))}
            headers |= {"Content-Encoding": encoding} if encoding else {}
        connection.putrequest(method, path)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        whole = len(sent) - withheld
        connection.send(memoryview(sent)[:whole])
        return sent[whole:]

    def _read(self, connection: HTTPConnection) -> Reply:
        from http.client import IncompleteRead  # noqa: PLC0415

        response = connection.getresponse()
        body = response.read(LONGEST_REPLY_BYTES)
        if not response.isclosed():
            raise IncompleteRead(body)
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        if response.status != 200:
            # It may be long until the next exchange; a server that wants to go down must not wait for its last byte.
            self._give_up_begun()
        return Reply(status=response.status, headers=_lowered(response), body=body)

    def _new_line(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415

        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout_s, blocksize=1 << 18)
        import ssl  # noqa: PLC0415

        context = ssl.create_default_context(cafile=str(self._ca_file) if self._ca_file else None)
        return HTTPSConnection(host, port, timeout=self._timeout_s, context=context, blocksize=1 << 18)


class _HttpBegun:
    """Its connection is closed when the transport gives it up; then it is asked anew, as a whole."""

    def __init__(
        self,
        connection: HTTPConnection,
        last: bytes,
        *,
        finish: Callable[[_HttpBegun, Callable[[], None]], Reply],
        anew: Callable[[], Reply],
    ) -> None:
        self.connection = connection
        self.last = last
        self.anew = anew
        self._finish = finish

    def finish(self, meanwhile: Callable[[], None] = lambda: None) -> Reply:
        return self._finish(self, meanwhile)


def origin_of(server: str) -> str:
    """Scheme, host and port of a server, as a scope names it. UsageFault if that is no address of one."""
    parts = urlsplit(server if "://" in server else f"http://{server}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == -1 or parts.path not in {"", "/"}:
        raise UsageFault(f"not the address of a server: {_without_login(server)!r}", hint="Write http://127.0.0.1:3001")
    if parts.username or parts.password:
        raise UsageFault("the address of a server holds no login", hint="Put the token into JOLLI_TOKEN.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def is_loopback(server: str) -> bool:
    """Whether the address cannot leave this machine."""
    import ipaddress  # noqa: PLC0415

    host = urlsplit(server if "://" in server else f"http://{server}").hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _without_login(server: str) -> str:
    return server.rpartition("@")[2]


def _lowered(response: HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}


def _without_delay(connection: HTTPConnection) -> None:
    import socket  # noqa: PLC0415

    # Headers and body are two writes; without this the second would wait for the first to be acknowledged.
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _compressed(body: bytes, encoding: str) -> tuple[bytes, str | None]:
    if encoding == "gzip":
        import gzip  # noqa: PLC0415

        return gzip.compress(body, compresslevel=1, mtime=0), "gzip"
    if encoding == "zstd":
        import zstandard  # noqa: PLC0415

        return zstandard.ZstdCompressor(level=1).compress(body), "zstd"
    return body, None
