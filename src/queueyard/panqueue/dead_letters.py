"""Dead letters: what failed for good, copied into a queue of its own with its origin, and sent back from there.

The failed job stays where it failed, for as long as its queue keeps failures, and is marked. The copy waits in the dead
letter queue like any job: look at it, run a worker over it, or redrive it. Copying twice does no harm.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue import scripts
from queueyard.panqueue.errors import JobExists, UnknownJob
from queueyard.panqueue.placing import Placing
from queueyard.panqueue.records import Finish, IdsFrom, JobOptions, JobRecord, JobState, record_from
from queueyard.panqueue.store import Ask, QueueStore, Talk, read_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.panqueue.wire import Reply, Word

_PAGE = 100


class Origin(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Where a dead letter comes from; the field `origin` of its hash."""

    queue: str
    id: str
    reason: str
    #: handler, stalled, canceled, expired, child
    kind: str = ""
    #: how often it was started
    runs: int = 0
    #: milliseconds since 1970
    failed_at: int | None = None
    max_retries: int = 0
    max_stalls: int = 5
    #: JSON text as in a job's field of that name
    opts: str | None = None
    key: str | None = None


def forward(store: QueueStore, dead: QueueStore, *, actor: str = "") -> Talk[int]:
    """Copy what failed since the last time into the dead letter queue; gives how many were copied."""
    cursor: bytes | None = yield Ask(None, [], ["HGET", store.keys["meta"], "deadCursor"], _same)
    start, copied, skip = (cursor or b"-inf").decode(), 0, 0
    while True:
        words: list[Word] = [
            "ZRANGE",
            store.keys["failed"],
            start,
            "+inf",
            "BYSCORE",
            "LIMIT",
            skip,
            _PAGE,
            "WITHSCORES",
        ]
        flat: list[bytes] = yield Ask(None, [], words, _same)
        ids = [raw.decode("utf-8", "surrogateescape") for raw in flat[::2]]
        noted: list[str] = []
        for job_id in ids:
            noted += yield from _copy(store, dead, job_id, actor)
        if ids:
            marks: list[Word] = [store.keys["jobs"], flat[-1], *noted]
            copied += yield Ask(scripts.FORWARDED, [store.keys["meta"]], marks, int)
        if len(ids) < _PAGE:
            return copied
        skip += _PAGE


def _copy(store: QueueStore, dead: QueueStore, job_id: str, actor: str) -> Talk[list[str]]:
    """The id, if it was copied now; nothing if it was before, or is gone."""
    flat: list[bytes] = yield Ask(None, [], ["HGETALL", store.keys.job(job_id)], _same)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    job = record_from(job_id, flat)
    marked = int(fields.get(b"deadLetteredAt", b"0"))
    if job.status != JobState.FAILED or marked > (job.finished_at or 0):
        return []
    origin = msgspec.json.encode(_origin(store.queue_id, job)).decode()
    options = JobOptions(placing=Placing(fields=(("origin", origin),)))
    words: list[Word] = [f"{store.queue_id}:{job_id}", job.payload]
    # Somebody may have copied it and died before he could note it.
    with suppress(JobExists):
        yield dead.add(words, options, keyed=False, ids_from=IdsFrom.CALLER, actor=actor)
    return [job_id]


def redrive(dead: QueueStore, ids: Sequence[str] = (), *, actor: str = "") -> Talk[int]:
    """Send dead letters back to where they failed, with their failures forgotten: those named, or all that wait.

    UnknownJob if one of them is no dead letter. A letter is taken out after its job is back: whoever dies in between
    leaves a letter that can be redriven again.
    """
    letters: list[JobRecord] = []
    if ids:
        for job_id in ids:
            flat: list[bytes] = yield Ask(None, [], ["HGETALL", dead.keys.job(job_id)], _same)
            letters.append(record_from(job_id, flat))
    else:
        counted = yield dead.counts()
        letters = yield dead.page(JobState.WAITING, most=max(1, counted.waiting))
        letters = [one for one in letters if one.origin]
    for letter in letters:
        yield from _send_back(dead, letter, actor)
    return len(letters)


def _send_back(dead: QueueStore, letter: JobRecord, actor: str) -> Talk[None]:
    try:
        origin = msgspec.json.decode(letter.origin or "", type=Origin)
    except msgspec.MsgspecError as fault:
        raise UnknownJob(
            f"job {letter.id} of queue {dead.queue_id} is no dead letter", hint=f"panqueue jobs {dead.queue_id}"
        ) from fault
    store = QueueStore(origin.queue)
    [(_, code)] = yield store.retry([origin.id], actor=actor)
    if code is Finish.MISSING:
        # Its queue has let go of it meanwhile: it is added anew, as it was.
        stored = read_options(None if origin.opts is None else origin.opts.encode())
        options = JobOptions(
            retries=origin.max_retries,
            max_stalls=origin.max_stalls,
            backoff=stored.backoff,
            timeout_ms=stored.timeout_ms,
        )
        words: list[Word] = [origin.id, letter.payload, *((origin.key,) if origin.key is not None else ())]
        yield store.add(words, options, keyed=origin.key is not None, ids_from=IdsFrom.CALLER, actor=actor)
    yield dead.remove([letter.id], actor=actor)


def _origin(queue_id: str, job: JobRecord) -> Origin:
    return Origin(
        queue=queue_id,
        id=job.id,
        reason=job.failed_reason or "",
        kind=job.failure_kind or "",
        runs=job.runs,
        failed_at=job.finished_at,
        max_retries=job.max_retries,
        max_stalls=job.max_stalls,
        opts=job.opts,
        key=job.concurrency_key,
    )


def _same(reply: Reply) -> Reply:
    return reply
