"""What workers do for a queue now and then, besides taking back the jobs of the dead: expiry, dead letters, flows.

One look tells whether there is anything of this in the queue at all, so that a queue without it pays one short command
per sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queueyard.panqueue.dead_letters import forward
from queueyard.panqueue.family import plant_forgotten, tell_parents
from queueyard.panqueue.store import Ask, QueueStore, Talk

if TYPE_CHECKING:
    from queueyard.panqueue.queues import Queue

_BATCH = 100


def run_errands(store: QueueStore, queue: Queue[Any, Any], *, actor: str) -> Talk[None]:
    """Do all of it once."""
    keys = store.keys
    words = ["EXISTS", keys["expiry"], keys["children"], keys["unplanted"]]
    found: int = yield Ask(None, [], words, lambda reply: reply)
    if found:
        looked_at = _BATCH
        while looked_at == _BATCH:
            looked_at = yield store.expire(most=_BATCH, keep=queue.keep_failed, actor=actor)
        yield from plant_forgotten(store, actor=actor)
        yield from tell_parents(store, actor=actor)
    if queue.dead_letters is not None:
        yield from forward(store, QueueStore(queue.dead_letters), actor=actor)
