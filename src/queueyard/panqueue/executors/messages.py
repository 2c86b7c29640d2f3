"""What parent and child say to each other: JSON, each text behind four bytes that hold its length.

The child's first message is `Ready` or `Broken`; then it answers each `Run` with `Done` or `Failed`. Before that it may
say something about its job, and waits for a `Reply` each time. `Stop` may come between two jobs, `Cancel` at any time.
A child in Python hears `Cancel` on a line of its own, so that its main thread reads its jobs itself.
"""

from __future__ import annotations

import struct

import msgspec

_HEAD = struct.Struct(">I")
HEAD_BYTES = _HEAD.size
NOTHING = msgspec.Raw(b"null")


class Run(msgspec.Struct, frozen=True, tag="run"):
    """A job, as its handler is to see it."""

    id: str
    queue_id: str
    attempt: int
    failures: int
    key: str | None
    token: str
    payload: msgspec.Raw


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """What came of something that the handler said."""

    #: whether there is a value
    found: bool = False
    value: msgspec.Raw = NOTHING
    #: why it could not be done
    error: str | None = None


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """Nobody waits for the job any more: end it, or be ended."""

    #: which job of this child, counted from 1: two lines have no order, so it may come before its job or after it
    turn: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Go home."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The handler is loaded, and everything else given up."""


class Broken(msgspec.Struct, frozen=True, tag="broken"):
    """The handler cannot be loaded, or the child cannot lock itself in."""

    message: str


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far the handler is."""

    value: msgspec.Raw


class Log(msgspec.Struct, frozen=True, tag="log"):
    """A line for the job's log."""

    text: str


class Step(msgspec.Struct, frozen=True, tag="step"):
    """Whether a step was done before; with a result, that it is done now."""

    name: str
    found: bool = False
    result: msgspec.Raw = NOTHING


class Children(msgspec.Struct, frozen=True, tag="children"):
    """How the jobs ended that this one waited for."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """What the handler returned."""

    value: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """What the handler raised."""

    message: str
    #: whether there is no point in trying again
    final: bool = False


ToChild = Run | Reply | Cancel | Stop
Note = Progress | Log | Step | Children
FromChild = Ready | Broken | Note | Done | Failed

_TO_CHILD: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_FROM_CHILD: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)
_ENCODER = msgspec.json.Encoder()


def frame(message: ToChild | FromChild) -> bytes:
    return framed(_ENCODER.encode(message))


def framed(text: bytes) -> bytes:
    return _HEAD.pack(len(text)) + text


def length_in(head: bytes | bytearray) -> int:
    """How long the text behind these four bytes is."""
    length: int = _HEAD.unpack_from(head)[0]
    return length


def read_by_child(text: bytes) -> ToChild:
    return _TO_CHILD.decode(text)


def read_by_parent(text: bytes) -> FromChild:
    """MsgspecError if a child says what is not in this file."""
    return _FROM_CHILD.decode(text)
