"""A job in its child is cancelled exactly if its own number is called, whichever of the two lines is read first."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import executor_handlers as handlers
from queueyard.panqueue.executors.calling import Calls
from queueyard.panqueue.executors.handlers import handler_named
from queueyard.panqueue.executors.line import Line
from queueyard.panqueue.executors.messages import Done, Failed, Reply, Run, Stop, frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.panqueue.executors.messages import ToChild


class Parent:
    """The other end of a child's line."""

    def __init__(self) -> None:
        self.line, self.theirs = socket.socketpair()
        self._left: list[Calls] = []

    def calls(self, handler: Callable[..., Any]) -> Calls:
        calls = Calls(handler_named(handler), Line(self.theirs), keeps_result=True)
        self._left.append(calls)
        return calls

    def say(self, *messages: ToChild) -> None:
        self.line.sendall(b"".join(frame(one) for one in messages))

    def close(self) -> None:
        for calls in self._left:
            calls.close()
        self.line.close()
        self.theirs.close()


@pytest.fixture
def parent() -> Iterator[Parent]:
    parent = Parent()
    yield parent
    parent.close()


def run(payload: Any) -> Run:
    return Run("1", "q", 1, 0, None, "token", msgspec.Raw(msgspec.json.encode(payload)))


@pytest.mark.parametrize("handler", [handlers.add, handlers.add_async])
def test_a_call_that_comes_before_its_job_is_not_forgotten(parent: Parent, handler: Callable[..., Any]) -> None:
    calls = parent.calls(handler)

    calls.cancel(1)
    parent.say(run({"a": 1, "b": 2}), run({"a": 1, "b": 2}))

    assert calls.next_answer() == Failed("cancelled")
    assert isinstance(calls.next_answer(), Done)


@pytest.mark.parametrize("handler", [handlers.add, handlers.add_async])
def test_a_call_that_comes_after_its_job_does_not_hit_the_next_one(parent: Parent, handler: Callable[..., Any]) -> None:
    calls = parent.calls(handler)
    parent.say(run({"a": 1, "b": 2}))
    calls.next_answer()

    calls.cancel(1)
    parent.say(run({"a": 1, "b": 2}))

    assert isinstance(calls.next_answer(), Done)


def test_messages_that_come_together_or_in_pieces_are_read_one_by_one(parent: Parent) -> None:
    calls = parent.calls(handlers.length)
    words = frame(run("x" * 300_000)) + frame(run("y")) + frame(Stop())

    def speak() -> None:
        for at in range(0, len(words), 1_000):
            parent.line.sendall(words[at : at + 1_000])

    speaker = threading.Thread(target=speak)
    speaker.start()
    answers = [calls.next_answer() for _ in range(3)]
    speaker.join()

    assert answers == [Done(msgspec.Raw(b"300000")), Done(msgspec.Raw(b"1")), None]


def test_a_thread_of_a_handler_that_waits_for_a_reply_gets_it_before_the_next_job_is_read(parent: Parent) -> None:
    calls = parent.calls(handlers.speak_in_a_thread)

    def reply() -> None:
        parent.line.recv(1_000)
        handlers.NOTE_CAME.set()
        parent.say(Reply(), run("did it come?"))

    replier = threading.Thread(target=reply)
    replier.start()
    parent.say(run(None))
    answers = [calls.next_answer() for _ in range(2)]
    replier.join()

    assert answers == [Done(msgspec.Raw(b'"it still speaks"')), Done(msgspec.Raw(b'"yes"'))]


def test_a_line_that_ends_means_that_it_is_time_to_go(parent: Parent) -> None:
    calls = parent.calls(handlers.pid)

    parent.line.close()

    assert calls.next_answer() is None
