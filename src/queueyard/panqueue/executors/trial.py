"""One handler, one payload, one policy: tried without a queue, to see whether the policy lets it work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.panqueue.errors import BadPayload, TimedOut
from queueyard.panqueue.executors.tiers import Sandbox
from queueyard.panqueue.jobs import Held
from queueyard.panqueue.queues import Queue
from queueyard.panqueue.records import KEEP_RESULTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue.executors.machine import Machine
    from queueyard.panqueue.executors.policy import Policy


async def try_once(
    policy: Policy, handler: Callable[..., Any], payload: str, *, machine: Machine, timeout_s: float
) -> Any:
    """What the handler returns. BadPolicy, PolicyRefused, BadHandler, BadPayload, ChildFailed, TimedOut."""
    queue: Queue[Any, Any] = Queue("trial", keep_completed=KEEP_RESULTS)
    try:
        msgspec.json.decode(payload)
    except msgspec.MsgspecError as fault:
        raise BadPayload(f"the payload is not JSON: {fault}", hint='For example: \'{"name": "Ada"}\'') from fault
    crew = Sandbox(policy, machine=machine).crew(queue, handler)
    job = Held("trial", queue.id, 1, 0, None, "trial", None, False, payload.encode(), None, 0.0, 0.0)
    try:
        async with asyncio.timeout(timeout_s):
            return await crew.run(job)
    except TimeoutError as fault:
        raise TimedOut(f"the handler was killed after {timeout_s:g} s", hint="Allow more with --timeout.") from fault
    finally:
        await crew.close()
