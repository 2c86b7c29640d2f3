"""What a child prints: its lines go to the log, and the last ones into the reason if it dies. Bounded."""

from __future__ import annotations

import asyncio
import logging
import os

_LOG = logging.getLogger("queueyard.panqueue.child")
_MOST_KEPT = 400
_MOST_LOGGED = 100_000
_LONGEST_LINE = 500


class Words(asyncio.Protocol):
    """A pipe from a child's standard output and error."""

    def __init__(self) -> None:
        self._ours, self.end = os.pipe()
        self._transport: asyncio.BaseTransport | None = None
        self._kept = b""
        self._rest = b""
        self._logged = 0

    async def listen(self) -> None:
        """Begin to read; the child has its end by now."""
        self._close_end()
        pipe = os.fdopen(self._ours, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(lambda: self, pipe)

    def begin(self) -> None:
        """Another job begins: what was said before is not about it."""
        self._kept = self._rest = b""
        self._logged = 0

    def last(self) -> str:
        """` (its last words: ...)`, or nothing if it was silent."""
        text = self._kept.decode("utf-8", "replace").strip()
        return f" (its last words: {_plain(text)})" if text else ""

    def close(self) -> None:
        if self._transport is None:
            os.close(self._ours)
        else:
            self._transport.close()
        self._close_end()

    def _close_end(self) -> None:
        if self.end >= 0:
            os.close(self.end)
            self.end = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_MOST_KEPT:]
        if self._logged > _MOST_LOGGED:
            return
        self._logged += len(data)
        *lines, self._rest = (self._rest + data)[-_MOST_LOGGED:].split(b"\n")
        for line in lines:
            _LOG.info("%s", _plain(line[:_LONGEST_LINE].decode("utf-8", "replace")))
        if self._logged > _MOST_LOGGED:
            self._rest = b""
            _LOG.warning("a handler prints too much; the rest of what it prints for this job is dropped")


def _plain(text: str) -> str:
    """Text from somebody else must not move the cursor."""
    return "".join(one if one.isprintable() else " " for one in text)
