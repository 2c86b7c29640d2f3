"""Crews for the tests of executors: a queue, a job as the worker holds it, and children that are ended again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queueyard.panqueue.executors import guarantees
from queueyard.panqueue.executors.machine import this_machine
from queueyard.panqueue.jobs import Held
from queueyard.panqueue.queues import Queue
from queueyard.panqueue.records import KEEP_RESULTS
from servers import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from queueyard.panqueue.executors.crew import Crew, Executor

QUEUE: Queue[Any, Any] = Queue("crews", keep_completed=KEEP_RESULTS)


def held(payload: Any = None) -> Held[Any]:
    return Held("1", QUEUE.id, 1, 0, None, "token", None, False, msgspec.json.encode(payload), None, 0.0, 0.0)


@asynccontextmanager
async def crew_of(executor: Executor, handler: Callable[..., Any]) -> AsyncIterator[Crew]:
    crew = executor.crew(QUEUE, handler)
    try:
        yield crew
    finally:
        await crew.close()


def need(level: str) -> None:
    """Skip what needs a kind of sandbox that cannot be made here. A kernel that is too old fails in CI."""
    here = this_machine()
    least = {"landlock": 4, "landlock-3": 3}.get(level, 0)
    if not least and here.bubblewrap is None:
        pytest.skip(f"no sandbox of namespaces here: {here.trouble}; apt-get install bubblewrap")
    if here.landlock < least or not here.seccomp:
        reason = f"Landlock {least} and seccomp are needed here: {here}"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def need_a_sandbox() -> None:
    """Skip what needs a sandbox of any kind."""
    if guarantees.level(this_machine()) == "none":
        need("landlock-3")


async def until_there(path: Path) -> int:
    """Wait for a handler that says it is running, in a file; gives its pid as it sees it."""
    await eventually(path.exists)
    return await asyncio.to_thread(lambda: int(path.read_text()))
