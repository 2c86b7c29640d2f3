"""A job in a warm child against a process per job, and against the bare line between two processes.

Run: make bench, or python benchmarks/panqueue_executors.py [ROUNDS]. No server is needed: what is measured is the way
from the worker to the handler and back. Peers in the same run: a Python that is started for one job and ends; two
processes that pass the same bytes through a socket pair without any of our code, once with blocking calls and once with
an event loop at our end, which is what a worker has and the least that it can take.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
import socket
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec

import measuring
from queueyard.panqueue.executors import Policy, PoolSettings, Sandbox, Subprocess
from queueyard.panqueue.executors.guarantees import level
from queueyard.panqueue.executors.machine import this_machine
from queueyard.panqueue.jobs import Held, Job
from queueyard.panqueue.queues import Queue
from queueyard.panqueue.records import KEEP_RESULTS

if TYPE_CHECKING:
    from queueyard.panqueue.executors.crew import Crew, Executor

_ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
_JOBS = 1_000
_TEXT = b"x" * 120
_QUEUE: Queue[Any, Any] = Queue("bench", keep_completed=KEEP_RESULTS)
_SETTINGS = PoolSettings(max_jobs=10_000_000)


def handle(job: Job[Any]) -> int:
    return int(job.payload["n"]) + 1


def _job() -> Held[Any]:
    return Held("1", _QUEUE.id, 1, 0, None, "token", None, False, b'{"n":1}', None, 0.0, 0.0)


def _executors() -> dict[str, Executor]:
    here = this_machine()
    # The handler stands beside a module that this file imports.
    policy = Policy(read=(str(Path(__file__).parent),))
    found: dict[str, Executor] = {"plain child": Subprocess(_SETTINGS)}
    if level(here) == "namespaces":
        found["sandbox of namespaces"] = Sandbox(policy, _SETTINGS)
    without = msgspec.structs.replace(here, bubblewrap=None)
    if level(without) == "landlock":
        found["sandbox of Landlock"] = Sandbox(policy, _SETTINGS, machine=without)
    return found


async def _round_trip(crew: Crew) -> float:
    start = time.perf_counter()
    for _ in range(_JOBS):
        await crew.run(_job())
    return (time.perf_counter() - start) / _JOBS


async def _first_job(executor: Executor) -> float:
    crew = executor.crew(_QUEUE, handle)
    start = time.perf_counter()
    await crew.run(_job())
    taken = time.perf_counter() - start
    await crew.close()
    return taken


def _spawned() -> float:
    program = "import json, sys; print(json.load(sys.stdin)['n'] + 1)"
    return measuring.seconds(
        lambda: subprocess.run([sys.executable, "-I", "-c", program], input=b'{"n":1}', capture_output=True, check=True)
    )


def _echo() -> socket.socket:
    """The line to a process that gives back what it gets."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        while text := theirs.recv(4_096):
            theirs.sendall(text)
        os._exit(0)
    theirs.close()
    return ours


def _bare_line() -> float:
    """Blocking calls: what the machine itself takes."""
    with _echo() as line:
        start = time.perf_counter()
        for _ in range(_JOBS):
            line.sendall(_TEXT)
            line.recv(4_096)
        taken = (time.perf_counter() - start) / _JOBS
    os.wait()
    return taken


class _Answers(asyncio.BufferedProtocol):
    """As little as an event loop needs to wait for an answer."""

    answer: asyncio.Future[bytes]

    def __init__(self) -> None:
        self._piece = memoryview(bytearray(4_096))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  asyncio's guess
        return self._piece

    def buffer_updated(self, nbytes: int) -> None:
        self.answer.set_result(bytes(self._piece[:nbytes]))


async def _bare_loop() -> float:
    """The same with an event loop at our end: what asyncio takes."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(_Answers, sock=_echo())
    start = time.perf_counter()
    for _ in range(_JOBS):
        protocol.answer = loop.create_future()
        transport.write(_TEXT)
        await protocol.answer
    taken = (time.perf_counter() - start) / _JOBS
    transport.abort()
    await asyncio.to_thread(os.wait)
    return taken


async def main() -> None:
    executors = _executors()
    crews = {name: executor.crew(_QUEUE, handle) for name, executor in executors.items()}
    for crew in crews.values():
        await _round_trip(crew)
    warm: dict[str, list[float]] = {name: [] for name in crews}
    cold: dict[str, list[float]] = {name: [] for name in crews}
    line, loop, spawned = [], [], []
    for _ in range(_ROUNDS):
        line.append(_bare_line())
        loop.append(await _bare_loop())
        spawned.append(_spawned())
        for name, crew in crews.items():
            warm[name].append(await _round_trip(crew))
            cold[name].append(await _first_job(executors[name]))
    for crew in crews.values():
        await crew.close()
    measuring.report("bare line between two processes", statistics.median(line) * 1e6, "us")
    measuring.report("the same with an event loop at one end", statistics.median(loop) * 1e6, "us")
    measuring.report("a Python per job", statistics.median(spawned) * 1e3, "ms")
    _tell(warm, cold, statistics.median(loop), statistics.median(spawned))


def _tell(warm: dict[str, list[float]], cold: dict[str, list[float]], loop: float, spawned: float) -> None:
    for name, times in warm.items():
        trip = statistics.median(times)
        measuring.report(f"{name}: round trip, warm", trip * 1e6, "us")
        measuring.report(f"{name}: the same / a bare event loop", trip / loop, "x", at_most=3)
        measuring.report(f"{name}: first job, with its start", statistics.median(cold[name]) * 1e3, "ms")
        measuring.report(f"{name}: a Python per job takes", spawned / trip, "times as long", at_least=50)
    measuring.finish()


if __name__ == "__main__":
    asyncio.run(main())
