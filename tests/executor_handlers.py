"""Handlers for the tests of executors, good and bad; children find them here by name."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
import signal
import sys
import threading
import time
from typing import Any

import msgspec

from queueyard.panqueue import Job, Tasks, Unrecoverable


class Sum(msgspec.Struct):
    a: int
    b: int


class Total(msgspec.Struct):
    value: int


def add(job: Job[Sum]) -> Total:
    return Total(job.payload.a + job.payload.b)


async def add_async(job: Job[Sum]) -> Total:
    await asyncio.sleep(0)
    return Total(job.payload.a + job.payload.b)


def speak_and_add(job: Job[Sum]) -> Total:
    job.log("adding")
    return Total(job.step_in_thread("sum", lambda: job.payload.a + job.payload.b))


def pid(_: Job[Any]) -> int:
    return os.getpid()


def fail(job: Job[Any]) -> None:
    raise Unrecoverable("never again") if job.payload == "final" else ValueError("not today")


def return_an_object(_: Job[Any]) -> Any:
    return object()


def die(job: Job[Any]) -> str:
    """Dies if it is told to, as a bug in a C library would."""
    if job.payload == "die":
        print("goodbye", flush=True)  # noqa: T201
        ctypes.string_at(0)
    return "alive"


def leave(job: Job[Any]) -> str:
    if job.payload == "leave":
        os._exit(3)
    return "alive"


def babble(job: Job[Any]) -> str:
    """Writes to the line to its parent what it should not."""
    texts = {
        "garbage": b"\0\0\0\5hello",
        "huge": b"\xff\xff\xff\xff",
        "unknown": b'\0\0\0\x10{"type":"other"}',
        "twice": b'\0\0\0\x1c{"type":"done","value":null}' * 2,
    }
    if job.payload in texts:
        os.write(_line(), texts[job.payload])
        threading.Event().wait(20)
    return "fine"


def flood(job: Job[Any]) -> str:
    """Says more and more without an end."""
    while job.payload == "flood":
        os.write(_line(), b'{"type":' * 1_000)
    return "fine"


def print_much(_: Job[Any]) -> str:
    for _number in range(2_000):
        print("x" * 200)  # noqa: T201
    return "fine"


def _line() -> int:
    """The descriptor of the channel: a hostile handler would find it too."""
    return next(number for number in range(3, 20) if _is_socket(number))


def _is_socket(number: int) -> bool:
    try:
        return "socket" in str(Path(f"/proc/self/fd/{number}").readlink())
    except OSError:
        return False


def grow(job: Job[Any]) -> int:
    """Leaks; gives its pid."""
    _LEAK.append(bytearray(job.payload << 20))
    return os.getpid()


_LEAK: list[bytearray] = []


def stay(job: Job[Any]) -> str:
    """Tells that it runs, and ends when it is told to."""
    _here(job)
    while not job.lost:
        time.sleep(0.01)
    return "told"


def wait_for_leave(job: Job[Any]) -> str:
    _here(job)
    while not Path(job.payload + ".leave").exists():
        time.sleep(0.01)
    return "left"


async def stay_async(job: Job[Any]) -> str:
    _here(job)
    await asyncio.sleep(60)
    return "slept"


def ignore_everything(job: Job[Any]) -> None:
    """Neither looks at its job nor ends on TERM, and has a child that does the same."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        Path(job.payload + ".child").write_text(str(os.getpid()))
    else:
        _here(job)
    while True:
        time.sleep(1)


def ignore_cancellation(job: Job[Any]) -> None:
    _here(job)
    while True:
        time.sleep(1)


def spin(job: Job[Any]) -> str:
    while job.payload == "spin":
        pass
    return "fine"


def _here(job: Job[Any]) -> None:
    temporary = Path(job.payload + ".new")
    temporary.write_text(str(os.getpid()))
    temporary.rename(job.payload)


def run_program(job: Job[Any]) -> str:
    import subprocess

    done = subprocess.run(job.payload, capture_output=True, text=True, check=False)
    return done.stdout


def fork_and_wait(job: Job[Any]) -> int:
    """How many children it can have at once, up to the payload."""
    children: list[int] = []
    try:
        while len(children) < job.payload:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    except OSError:
        pass
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return len(children)


def say(job: Job[Any]) -> None:
    sys.stdout.write(f"{job.payload}\n")
    sys.stdout.flush()


tasks = Tasks()


@tasks.task("executor-task")
def multiply(a: int, b: int = 2) -> int:
    return a * b


def leave_at_first(job: Job[Any]) -> int:
    if job.attempt == 1:
        os._exit(3)
    return job.attempt


async def speak(job: Job[Any]) -> str:
    """Says all that a handler can say; its first attempt fails after its step."""

    async def work() -> int:
        return os.getpid()

    job.log(f"attempt {job.attempt}")
    job.progress({"half": True})
    first = await job.step("work", work)
    if job.attempt == 1:
        raise ValueError(str(first))
    return str(first)


def speak_plainly(job: Job[Any]) -> int:
    job.log("hello")
    return job.step_in_thread("work", lambda: 7)


def length(job: Job[Any]) -> int:
    return len(job.payload)


#: for handlers and tests in one process
NOTE_CAME, REPLY_CAME = threading.Event(), threading.Event()


def speak_in_a_thread(job: Job[Any]) -> str:
    """Returns while a thread of it waits for a reply; the next job tells whether that came."""
    if job.payload == "did it come?":
        return "yes" if REPLY_CAME.wait(20) else "no"

    def speak() -> None:
        job.log("hello")
        REPLY_CAME.set()

    threading.Thread(target=speak).start()
    NOTE_CAME.wait(20)
    return "it still speaks"


def increment(job: Job[Any]) -> int:
    time.sleep(0.005)
    return int(job.payload) + 1
