"""How the jobs of a flow find each other, as conversations: planting children and telling parents.

Every step may be repeated by anybody: a child has an id that follows from its flow and is added once, and a parent
takes the first thing that it is told about each child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue import scripts
from queueyard.panqueue.errors import JobExists, ModeMismatch
from queueyard.panqueue.flows import Parent, Planned, walk
from queueyard.panqueue.records import KEEP_FAILED, IdsFrom, Keep
from queueyard.panqueue.rules import retention_arguments
from queueyard.panqueue.store import Ask, QueueStore, Talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.wire import Reply, Word

_PARENT_FAILED = 4
#: whoever added a flow plants it himself; workers give him so long before they do
PLANT_AFTER_MS = 5_000


def add_flow(flow: Planned, *, actor: str = "") -> Talk[str]:
    """Accept a flow with one call, then plant everything below its root; gives the root's id. ModeMismatch."""
    yield _ask_add(flow, None, actor)
    for job in walk(flow):
        if job.children:
            yield from _plant(QueueStore(job.queue), job.id, job.children, actor=actor)
    return flow.id


def plant_forgotten(store: QueueStore, *, actor: str = "") -> Talk[int]:
    """Plant the children of jobs whose adder died half-way; gives how many jobs that concerned."""
    time: list[bytes] = yield Ask(None, [], ["TIME"], _same)
    before = int(time[0]) * 1_000 - PLANT_AFTER_MS
    ids: list[bytes] = yield Ask(
        None, [], ["ZRANGE", store.keys["unplanted"], "-inf", before, "BYSCORE", "LIMIT", 0, 100], _same
    )
    for raw in ids:
        job_id = raw.decode("utf-8", "surrogateescape")
        plan: bytes | None = yield Ask(None, [], ["HGET", store.keys.job(job_id), "plan"], _same)
        children = [] if plan is None else msgspec.json.decode(plan, type=list[Planned])
        yield from _plant(store, job_id, children, actor=actor)
    return len(ids)


def _plant(store: QueueStore, job_id: str, children: Sequence[Planned], *, actor: str) -> Talk[None]:
    for child in children:
        parent = Parent(store.queue_id, job_id, child.name, child.on_failure)
        try:
            yield _ask_add(child, parent, actor)
        except JobExists:
            # Somebody else was here.
            continue
        except ModeMismatch as fault:
            yield from tell(parent, actor=actor, well=False, text=str(fault).encode())
    yield Ask(None, [], ["ZREM", store.keys["unplanted"], job_id], _same)


def _ask_add(job: Planned, parent: Parent | None, actor: str) -> Ask[int]:
    words: list[Word] = [job.id, job.payload]
    if job.key is not None:
        words.append(job.key)
    return QueueStore(job.queue).add(
        words, job.added(parent), keyed=job.key is not None, ids_from=IdsFrom.CALLER, actor=actor
    )


def tell_parents(store: QueueStore, ids: Sequence[str] = (), *, actor: str = "") -> Talk[int]:
    """Tell the parents of children that have ended: of those named, or of all that nobody told yet; gives how many."""
    cursor, told = "" if ids else "0", 0
    while True:
        words: list[Word] = [store.keys["jobs"], cursor, *ids]
        next_cursor, flat = yield Ask(scripts.ENDED_CHILDREN, [store.keys["children"]], words, _same)
        items = iter(flat)
        for raw_id, raw_parent, well, text in zip(items, items, items, items, strict=True):
            parent = msgspec.json.decode(raw_parent, type=Parent)
            yield from tell(parent, actor=actor, well=bool(int(well)), text=text)
            yield Ask(None, [], ["HDEL", store.keys["children"], raw_id], _same)
            told += 1
        cursor = next_cursor.decode()
        if cursor == "0":
            return told


def tell(parent: Parent, *, actor: str, well: bool, text: bytes, keep: Keep | None = KEEP_FAILED) -> Talk[None]:
    """Tell a parent how one of its children ended; telling twice does no harm."""
    above = QueueStore(parent.queue)
    words: list[Word] = [
        *(above.keys["jobs"], parent.id, parent.name, int(well), text, str(parent.on_failure), actor),
        *retention_arguments(keep),
    ]
    code: int = yield Ask(scripts.TELL_PARENT, above.keys.of(scripts.TELL_PARENT), words, int)
    if code == _PARENT_FAILED:
        # It may itself be awaited.
        yield from tell_parents(above, [parent.id], actor=actor)


def child_ended(store: QueueStore, job_id: str, token: str, result: bytes) -> Ask[int]:
    """Keep the result of a child for its parent, before the child's own end is recorded."""
    return Ask(scripts.CHILD_ENDED, [store.keys["children"]], [store.keys["jobs"], job_id, token, result], int)


def _same(reply: Reply) -> Reply:
    return reply
