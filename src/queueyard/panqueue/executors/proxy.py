"""The only way out of a sandbox's network: a proxy in the parent that connects to the hosts of the policy alone.

It serves on a socket that the child made in its own network namespace and handed over. CONNECT is for everything, plain
http requests for those who do not know better. Names are looked up here, outside; a rule for a name trusts whoever
answers for that name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import socket

    from queueyard.panqueue.executors.policy import NetRule

_LONGEST_HEAD = 16_384
_HEAD_TIMEOUT_S = 10.0
_CONNECT_TIMEOUT_S = 30.0
_PIECE = 65_536
_MOST_CALLS = 64


class Proxy:
    """Serves one child until it is closed."""

    def __init__(self, rules: list[NetRule]) -> None:
        self._rules = rules
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()

    @classmethod
    async def serve(cls, listener: socket.socket, rules: list[NetRule]) -> Self:
        proxy = cls(rules)
        proxy._server = await asyncio.start_server(proxy._accept, sock=listener, limit=_LONGEST_HEAD)
        return proxy

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for call in self._calls:
            call.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        if call is not None:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        try:
            if len(self._calls) > _MOST_CALLS:
                _refuse(writer, "503 Service Unavailable", "too many connections at once")
            else:
                await self._answer(reader, writer)
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError, ValueError):
            _refuse(writer, "400 Bad Request")
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HEAD_TIMEOUT_S)
        line, _, rest = head.partition(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        is_tunnel = method == "CONNECT"
        address = urlsplit(f"//{target}" if is_tunnel else target)
        host, port = address.hostname or "", address.port or (0 if is_tunnel else 80)
        if not any(rule.allows(host, port) for rule in self._rules):
            _refuse(writer, "403 Forbidden", f"the policy does not name {host}:{port}")
            return
        try:
            far_reader, far = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_TIMEOUT_S)
        except (OSError, TimeoutError) as fault:
            _refuse(writer, "502 Bad Gateway", str(fault))
            return
        if is_tunnel:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            wanted = address._replace(scheme="", netloc="").geturl() or "/"
            far.write(f"{method} {wanted} {version}\r\n".encode("ascii") + rest)
        try:
            # From here on the two are one connection, whatever is said on it.
            await asyncio.gather(_carry(reader, far), _carry(far_reader, writer))
        finally:
            far.transport.abort()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


def _refuse(writer: asyncio.StreamWriter, status: str, why: str = "") -> None:
    said = why.encode("utf-8", "replace")
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(said)}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):
        writer.write(head.encode("ascii") + said)
