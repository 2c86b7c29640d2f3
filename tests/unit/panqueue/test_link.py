"""A connection that was begun and is no longer wanted is closed, whoever gave up and when."""

from __future__ import annotations

import asyncio

from queueyard.panqueue.address import parse_address
from queueyard.panqueue.link import Channel, Port
from servers import in_loop


class SlowServer:
    """Greets, and then answers nothing; knows what was asked and whether the other side is still there."""

    def __init__(self, *, greets: bool) -> None:
        self._greets = greets
        self.asked = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)
        if self._greets:
            writer.write(b"+OK\r\n")
            await reader.read(65_536)
        self.asked.set()
        await reader.read()
        self.left.set()
        writer.close()


async def _listening(server: SlowServer) -> tuple[asyncio.Server, str]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    return listener, f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}"


@in_loop
async def test_giving_up_while_subscribing_closes_the_connection() -> None:
    server = SlowServer(greets=True)
    listener, url = await _listening(server)
    async with listener:
        opening = asyncio.ensure_future(Channel.open(parse_address(url), "", ["news"], lambda _: None))
        await server.asked.wait()

        opening.cancel()

        await asyncio.wait_for(server.left.wait(), 30)


@in_loop
async def test_closing_a_port_that_is_still_connecting_closes_the_connection() -> None:
    server = SlowServer(greets=False)
    listener, url = await _listening(server)
    async with listener:
        port = Port(parse_address(url))
        calling = asyncio.ensure_future(port.call("PING"))
        await server.asked.wait()

        port.close()

        await asyncio.wait_for(server.left.wait(), 30)
        assert isinstance((await asyncio.gather(calling, return_exceptions=True))[0], BaseException)
