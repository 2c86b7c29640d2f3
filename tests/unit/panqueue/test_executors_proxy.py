"""The proxy of a sandbox lets through what the rules name, and bears whatever is said to it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
import socket
from typing import TYPE_CHECKING

import pytest

from queueyard.panqueue.executors.policy import NetRule
from queueyard.panqueue.executors.proxy import Proxy
from servers import free_port, in_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def proxied(*hosts: str) -> AsyncIterator[tuple[int, int]]:
    """(port of the proxy, port of a server that repeats what it hears)."""

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while text := await reader.read(1_000):
            writer.write(text)
        writer.close()

    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with await asyncio.start_server(repeat, "127.0.0.1", 0) as server:
        there = server.sockets[0].getsockname()[1]
        proxy = await Proxy.serve(listener, [NetRule(host, there) for host in hosts])
        try:
            yield port, there
        finally:
            proxy.close()


async def said(port: int, text: str, *, more: str = "") -> str:
    """What the proxy answers to a request, until it or the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write((text + more).encode())
    writer.write_eof()
    answer = (await reader.read()).decode()
    writer.close()
    return answer


@in_loop
async def test_a_tunnel_to_a_named_host_carries_both_ways() -> None:
    async with proxied("127.0.0.1") as (port, there):
        answer = await said(port, f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\n", more="ping")

    assert answer == "HTTP/1.1 200 Connection established\r\n\r\nping"


@in_loop
async def test_a_plain_request_is_passed_on_as_the_server_expects_it() -> None:
    async with proxied("localhost") as (port, there):
        answer = await said(port, f"GET http://LOCALHOST:{there}/a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n")

    assert answer == "GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "localhost", "localhost.evil.example", "127.0.0.1.evil.example", "[::1]"]
)
@in_loop
async def test_another_host_is_refused_with_the_reason(host: str) -> None:
    async with proxied("127.0.0.1") as (port, there):
        answer = await said(port, f"CONNECT {host}:{there} HTTP/1.1\r\n\r\n")

    assert answer.startswith("HTTP/1.1 403 Forbidden")
    assert "the policy does not name" in answer


@in_loop
async def test_another_port_is_refused() -> None:
    async with proxied("127.0.0.1") as (port, there):
        assert (await said(port, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 403")
        assert (await said(port, f"GET http://127.0.0.1:{there + 1}/ HTTP/1.1\r\n\r\n")).startswith("HTTP/1.1 403")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\r\n\r\n",
        "CONNECT\r\n\r\n",
        "CONNECT a:b:c HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        "GET http://[bad HTTP/1.1\r\n\r\n",
        "GET http://ü/ HTTP/1.1\r\n\r\n",
        "X" * 100_000,
    ],
)
@in_loop
async def test_what_is_no_request_is_refused_and_the_next_one_served(text: str) -> None:
    async with proxied("127.0.0.1") as (port, there):
        answer = await said(port, text)
        again = await said(port, f"CONNECT 127.0.0.1:{there} HTTP/1.1\r\n\r\n")

    assert answer.startswith(("HTTP/1.1 400", "HTTP/1.1 403"))
    assert " 200 " in again


@in_loop
async def test_a_server_that_is_not_there_is_told() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    nobody = free_port()
    proxy = await Proxy.serve(listener, [NetRule("127.0.0.1", nobody)])

    answer = await said(listener.getsockname()[1], f"CONNECT 127.0.0.1:{nobody} HTTP/1.1\r\n\r\n")
    proxy.close()

    assert answer.startswith("HTTP/1.1 502")
