"""One child process, as its parent has it: started, asked, cancelled, stopped.

A child that fails in any way is `spent`: whoever holds it gives it back to its pool, and the pool ends it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
import signal
import socket
from typing import TYPE_CHECKING

from queueyard.kernel import proc
from queueyard.panqueue.executors import footprint
from queueyard.panqueue.executors.channel import Channel
from queueyard.panqueue.executors.errors import ChildBabbled, ChildDied, ChildFailed, StartFailed
from queueyard.panqueue.executors.messages import Broken, Cancel, Done, Failed, Ready, Reply, Stop, framed
from queueyard.panqueue.executors.proxy import Proxy
from queueyard.panqueue.executors.words import Words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.panqueue.executors.messages import Note, Run
    from queueyard.panqueue.executors.policy import NetRule
    from queueyard.panqueue.executors.pool import PoolSettings

_REAP_S = 5.0
_TOO_LATE = Reply(error="the job was cancelled")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How children of one kind are started."""

    argv: list[str]
    env: dict[str, str]
    #: where it is started
    cwd: Path = Path("/")
    #: the first message: where code is, which handler, how to lock oneself in
    hello: bytes
    #: None: the child has no proxy
    rules: list[NetRule] | None = None
    #: whether standard input and output are all it has: what it prints is what it says, and cancellations come that way
    has_one_line: bool = False


class Child:
    """A process that runs one job at a time."""

    def __init__(self, process: proc.Child, words: Words, settings: PoolSettings) -> None:
        self._process = process
        self._words = words
        self._settings = settings
        self._channel = Channel(most_bytes=settings.max_reply_bytes)
        self._proxy: Proxy | None = None
        self._ended: asyncio.Task[int] | None = None
        self.jobs = 0
        #: when it became idle, on the loop's clock
        self.idle_since = 0.0
        #: it must not be given another job
        self.spent = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        return not self.spent and self._channel.fault is None

    @classmethod
    async def start(cls, launch: Launch, settings: PoolSettings) -> Child:
        """Start one, and wait until it is ready. StartFailed; then nothing is left of it."""
        ours, theirs = socket.socketpair()
        words = Words()
        try:
            line = theirs.fileno()
            said = line if launch.has_one_line else words.end
            process = proc.start(launch.argv, cwd=launch.cwd, env=launch.env, stdin=line, stdout=said, stderr=words.end)
        except OSError as fault:
            ours.close()
            words.close()
            raise StartFailed(f"the child cannot be started: {fault}") from fault
        finally:
            theirs.close()
        child = cls(process, words, settings)
        try:
            await asyncio.wait_for(child._become_ready(ours, launch), settings.start_timeout_s)
        except BaseException as fault:
            if not child._channel.is_connected:
                ours.close()
            await asyncio.shield(child.end())
            if isinstance(fault, ChildFailed | TimeoutError | OSError):
                raise StartFailed(child._why(fault)) from fault
            raise
        return child

    async def _become_ready(self, ours: socket.socket, launch: Launch) -> None:
        loop = asyncio.get_running_loop()
        ours.setblocking(False)
        await self._words.listen()
        hello = framed(launch.hello)
        if not launch.has_one_line:
            # The first byte carries the end of the line that it will listen to while it is busy.
            self._channel.hang_bell(ours, hello[:1])
            hello = hello[1:]
        await loop.sock_sendall(ours, hello)
        if launch.rules is not None:
            self._proxy = await Proxy.serve(await _received_listener(ours), launch.rules)
        # Nothing else is read before: the answer is expected when the first byte arrives.
        answer = self._channel.expect()
        await loop.create_connection(lambda: self._channel, sock=ours)
        match await answer:
            case Ready():
                return
            case Broken(message=message):
                raise StartFailed(message)
            case _:
                raise StartFailed("it began with something else")

    async def ask(self, run: Run, serve: Callable[[Note], Awaitable[Reply]]) -> Done | Failed:
        """Let it run a job; `serve` answers what the handler says meanwhile.

        ChildDied, ChildBabbled; if cancelled, the handler has ended when this returns.
        """
        self.jobs += 1
        self._words.begin()
        try:
            return await self._converse(run, serve)
        except ChildDied as fault:
            self.spent = True
            code = await asyncio.to_thread(self._process.wait, _REAP_S)
            raise ChildDied(f"the child {_told_end(code)}{self._words.last()}") from fault
        except ChildFailed:
            self.spent = True
            raise
        except asyncio.CancelledError:
            await self._cancel()
            raise

    async def _converse(self, run: Run, serve: Callable[[Note], Awaitable[Reply]]) -> Done | Failed:
        self._channel.last = None
        answer = self._channel.expect()
        self._channel.send(run)
        while not isinstance(told := await answer, Done | Failed):
            if isinstance(told, Ready | Broken):
                raise ChildBabbled(f"the child answered a job with {type(told).__name__}")
            reply = await serve(told)
            answer = self._channel.expect()
            self._channel.last = None
            self._channel.send(reply)
        return told

    async def _cancel(self) -> None:
        """Ask the handler to end; if it does not, end the child."""
        last = self._channel.last
        if isinstance(last, Done | Failed):
            # It ended by itself, in the moment in which we were cancelled.
            return
        answer = self._channel.expect()
        self._channel.ring(Cancel(self.jobs))
        if last is not None:
            # Its handler has said something, and waits.
            self._channel.send(_TOO_LATE)
        try:
            async with asyncio.timeout(self._settings.cancel_grace_s):
                while not isinstance(await answer, Done | Failed):
                    answer = self._channel.expect()
                    self._channel.send(_TOO_LATE)
        except (TimeoutError, ChildFailed):
            self.spent = True
            await asyncio.shield(self.end())
        except asyncio.CancelledError:
            # Asked twice: no more patience.
            self.spent = True
            proc.signal_group(self.pid, signal.SIGKILL)
            raise

    async def stop(self) -> None:
        """Ask it to go, then make it: message, TERM, KILL."""
        self.spent = True
        gone = self._channel.expect()
        self._channel.send(Stop())
        await asyncio.wait([gone], timeout=self._settings.stop_grace_s)
        await self.end()

    def end(self) -> asyncio.Task[int]:
        """TERM, then KILL, for it and all that it started; once."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_task(self._end())
        return self._ended

    async def _end(self) -> int:
        self.spent = True
        code = await asyncio.to_thread(self._process.stop, grace_s=self._settings.term_grace_s)
        if self._proxy is not None:
            self._proxy.close()
        self._channel.close()
        self._words.close()
        return code

    def memory_mb(self) -> float:
        return footprint.memory_mb(self.pid)

    def _why(self, fault: BaseException) -> str:
        if isinstance(fault, TimeoutError):
            return f"the child was not ready within {self._settings.start_timeout_s:g} s{self._words.last()}"
        return f"the child could not begin: {fault}{self._words.last()}"


async def _received_listener(ours: socket.socket) -> socket.socket:
    """The socket that a child hands over; StartFailed if it sends something else."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(ours, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(ours)
    _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        raise StartFailed("it handed over no socket for its proxy")
    return socket.socket(fileno=descriptors[0])


def _told_end(code: int | None) -> str:
    if code is None:
        return "closed its line to the worker"
    # bubblewrap tells a signal as a shell does.
    number = -code if code < 0 else code - 128
    try:
        return f"was killed by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with exit code {code}"
