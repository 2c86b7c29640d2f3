"""The parent's end of the line to one child. It believes nothing: what is too long, or was not asked for, ends it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
import socket
from typing import TYPE_CHECKING, cast

import msgspec

from queueyard.panqueue.executors.errors import ChildBabbled, ChildDied, ChildFailed
from queueyard.panqueue.executors.messages import HEAD_BYTES, FromChild, frame, length_in, read_by_parent

if TYPE_CHECKING:
    from queueyard.panqueue.executors.messages import Cancel, ToChild

_PIECE = 65_536


class Channel(asyncio.BufferedProtocol):
    """One question, one answer. After a fault every answer is that fault."""

    def __init__(self, *, most_bytes: int) -> None:
        """`most_bytes`: no answer may be longer."""
        self._most_bytes = most_bytes
        # Filled again and again: asyncio's own way would make a quarter of a megabyte for every answer.
        self._piece = memoryview(bytearray(_PIECE))
        self._received = bytearray()
        self._transport: asyncio.WriteTransport | None = None
        self._bell: socket.socket | None = None
        self._answer: asyncio.Future[FromChild] | None = None
        #: an answer that came after whoever had asked was cancelled
        self._late: bytes | None = None
        #: what was said last and is not answered yet, whether or not somebody still waited for it
        self.last: FromChild | None = None
        self.fault: ChildFailed | None = None

    def send(self, message: ToChild) -> None:
        """Say something; if nobody is there to hear it, the answer will say so."""
        if self._transport is not None and self.fault is None:
            self._transport.write(frame(message))

    def hang_bell(self, line: socket.socket, carrier: bytes) -> None:
        """Give the child, with the first byte for it, the end of a line that it can listen to while it is busy."""
        self._bell, theirs = socket.socketpair()
        self._bell.setblocking(False)
        with theirs:
            socket.send_fds(line, [carrier], [theirs.fileno()])

    def ring(self, cancel: Cancel) -> None:
        """Cancel its job; a child that does not listen is ended by whoever rings."""
        if self._bell is None:
            self.send(cancel)
        else:
            with suppress(OSError):
                self._bell.send(frame(cancel))

    def expect(self) -> asyncio.Future[FromChild]:
        """The next message of the child; ask for it before it can come. Fails with ChildDied or ChildBabbled."""
        answer = self._answer = asyncio.get_running_loop().create_future()
        if self.fault is not None:
            self._break(self.fault)
        elif self._late is not None:
            late, self._late = self._late, None
            self._take(late)
        return answer

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        if self._bell is not None:
            self._bell.close()

    # --- what asyncio tells ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  asyncio's guess; ours is large enough
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._piece[:nbytes]
        while self.fault is None and len(self._received) >= HEAD_BYTES:
            length = length_in(self._received)
            if length > self._most_bytes:
                self._break(ChildBabbled(f"its answer is {length:,} bytes long; {self._most_bytes:,} are allowed"))
            elif len(self._received) < HEAD_BYTES + length:
                return
            else:
                text = bytes(self._received[HEAD_BYTES : HEAD_BYTES + length])
                del self._received[: HEAD_BYTES + length]
                self._take(text)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.fault is None:
            self._break(ChildDied("it ended" if exc is None else f"it ended: {exc}"))

    def _take(self, text: bytes) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            self._break(ChildBabbled("it spoke without being asked"))
            return
        if answer.cancelled():
            self._late = text
            return
        try:
            self.last = read_by_parent(text)
            answer.set_result(self.last)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
            self._answer = answer
            self._break(ChildBabbled(f"its answer cannot be understood: {fault}"))

    def _break(self, fault: ChildFailed) -> None:
        self.fault = fault
        self._received.clear()
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)
            # Looked at, so that asyncio does not complain if nobody waits for it any more.
            self._answer.exception()
