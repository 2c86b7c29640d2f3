"""A child's end of a line: whole messages, each with one call of the kernel where it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.panqueue.executors.messages import HEAD_BYTES, FromChild, ToChild, frame, length_in, read_by_child

if TYPE_CHECKING:
    import socket

_PIECE = 65_536


class Line:
    """Read by one thread at a time."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._received = bytearray()

    def send(self, message: FromChild) -> None:
        self._line.sendall(frame(message))

    def receive(self) -> ToChild:
        """The next message. EOFError once the parent is gone."""
        received = self._received
        while len(received) < HEAD_BYTES or len(received) < HEAD_BYTES + length_in(received):
            piece = self._line.recv(_PIECE)
            if not piece:
                raise EOFError
            received += piece
        end = HEAD_BYTES + length_in(received)
        text = bytes(received[HEAD_BYTES:end])
        del received[:end]
        return read_by_child(text)
