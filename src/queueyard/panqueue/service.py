"""The verbs: what a person or program can do with a queue besides running its jobs.

Each verb is a conversation (`Talk`): it yields what is to be asked and is sent the answers. The async client, the sync
client and the command line carry the same conversations over different connections, so there is one of each verb.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from queueyard.panqueue.errors import JobActive, JobFailed, JobOver, ModeMismatch, PanqueueError, ResultGone, UnknownJob
from queueyard.panqueue.events import events_from
from queueyard.panqueue.pacing import FIELDS, QueueRules, Rate, rate_faults
from queueyard.panqueue.records import (
    KEEP_FAILED,
    Counts,
    Finish,
    JobRecord,
    JobState,
    Keep,
    Mode,
    Obliterated,
    record_from,
)
from queueyard.panqueue.rules import check_key
from queueyard.panqueue.store import Ask, QueueStore, Talk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.kernel.events import Event
    from queueyard.panqueue.payloads import Codec
    from queueyard.panqueue.wire import Reply

_T = TypeVar("_T")

_BATCH = 1_000
_SCAN_STEP = 1_000
_QUEUE_KEY = re.compile(rb"\{q:([^{}]+)\}:")
DEFAULT_EVENTS_KEPT = 10_000


class LogLine(msgspec.Struct, frozen=True):
    """One line of a job's log."""

    #: milliseconds since 1970 on the server's clock
    at_ms: int
    text: str


class Ended(msgspec.Struct, frozen=True):
    """How a job ended, if it has."""

    state: JobState
    #: JSON text; None where the handler returned nothing
    result: bytes | None = None
    reason: str = ""


# --- looking ---------------------------------------------------------------------------------------------------------


def counts(store: QueueStore) -> Talk[Counts]:
    """How many jobs are in each state, and how the queue is set."""
    found: Counts = yield store.counts()
    return found


def stored_mode(store: QueueStore) -> Talk[Mode]:
    """The mode that is written down for a queue; global where nothing is."""
    stored: bytes | None = yield Ask(None, [], ["HGET", store.keys["meta"], "mode"], _same)
    return Mode(stored.decode()) if stored else Mode.GLOBAL


def job(store: QueueStore, job_id: str) -> Talk[JobRecord]:
    """Everything that is known about one job. UnknownJob."""
    flat: list[bytes] = yield Ask(None, [], ["HGETALL", store.keys.job(job_id)], _same)
    if not flat:
        raise _unknown(store, job_id)
    return record_from(job_id, flat)


def jobs(store: QueueStore, state: JobState, *, skip: int = 0, most: int = 20) -> Talk[list[JobRecord]]:
    """Jobs in one state: those that run next, or ended last, come first."""
    found: list[JobRecord] = yield store.page(state, skip=skip, most=most)
    return found


def job_like(store: QueueStore, typed: str) -> Talk[str]:
    """The id that a person means by its beginning. UnknownJob, also if several begin like that."""
    exists: int = yield Ask(None, [], ["EXISTS", store.keys.job(typed)], _same)
    if exists:
        return typed
    prefix = store.keys["jobs"]
    found = yield from _scan(f"{_literal(prefix + typed)}*")
    if len(found) == 1:
        return found.pop().decode("utf-8", "surrogateescape").removeprefix(prefix)
    if found:
        raise UnknownJob(f"{len(found)} jobs of queue {store.queue_id} begin with {typed}", hint="Type more of the id.")
    raise _unknown(store, typed)


def queues() -> Talk[list[str]]:
    """The ids of all queues on this server. Looks at every key, so that it takes a second for a million jobs."""
    # Job keys (`:job:`) are left out by the server already; any other key of a queue tells its id.
    found = yield from _scan("{q:*}:[acdefhkmrsw]*")
    matches = (_QUEUE_KEY.match(key) for key in found)
    return sorted({match[1].decode("utf-8", "surrogateescape") for match in matches if match})


def ended(store: QueueStore, job_id: str) -> Talk[Ended | None]:
    """How a job ended; None if it has not. ResultGone if nothing is left of it."""
    key = store.keys.job(job_id)
    status, result, reason = yield Ask(None, [], ["HMGET", key, "status", "result", "failedReason"], _same)
    if status == b"completed":
        return Ended(JobState.COMPLETED, result)
    if status == b"failed":
        return Ended(JobState.FAILED, None, (reason or b"").decode("utf-8", "replace"))
    if status is None:
        raise ResultGone(
            f"job {job_id} of queue {store.queue_id} is over or was removed, and nothing was kept of it",
            hint="Declare the queue's result type, or keep completed jobs: Queue(..., keep_completed=Keep(count=1000))",
        )
    return None


def value_of(end: Ended, codec: Codec[_T], job_id: str) -> _T | None:
    """The result of a job that ended well; None if its handler returned nothing. JobFailed, BadPayload."""
    if end.state is JobState.FAILED:
        raise JobFailed(
            f"job {job_id} failed: {end.reason}", job_id=job_id, reason=end.reason, hint="Run it again: panqueue retry"
        )
    return None if end.result is None else codec.decode(end.result)


def read_events(
    store: QueueStore, *, source: str, after: str = "-", most: int = 1_000
) -> Talk[list[tuple[str, Event]]]:
    """(entry id, event) of the next events behind the entry `after`; from the start with `-`."""
    start = after if after == "-" else f"({after}"
    entries = yield Ask(None, [], ["XRANGE", store.keys["events"], start, "+", "COUNT", most], _same)
    return list(events_from(entries, source=source, queue=store.queue_id))


# --- changing --------------------------------------------------------------------------------------------------------


def retry(store: QueueStore, ids: Sequence[str], *, actor: str = "") -> Talk[int]:
    """Put failed jobs back in line. UnknownJob if one of them is gone or has not failed; the others are back then."""
    told: list[tuple[str, Finish]] = yield store.retry(ids, actor=actor)
    for job_id, code in told:
        if code is Finish.MISSING:
            raise _unknown(store, job_id)
        if code is Finish.STALE:
            raise UnknownJob(
                f"job {job_id} of queue {store.queue_id} has not failed", hint=f"Look at it: panqueue job {job_id}"
            )
    return len(told)


def retry_all(store: QueueStore, *, actor: str = "") -> Talk[int]:
    """Put every failed job back in line; gives how many."""
    # Counted first: a job that fails again meanwhile must not keep this going for ever.
    before: Counts = yield store.counts()
    total = 0
    while total < before.failed:
        told: list[tuple[str, Finish]] = yield store.retry(most=min(_BATCH, before.failed - total), actor=actor)
        if not told:
            break
        total += len(told)
    return total


def remove(store: QueueStore, ids: Sequence[str], *, actor: str = "") -> Talk[int]:
    """Remove jobs that are not running. UnknownJob or JobActive about the first that could not be removed."""
    codes: list[Finish] = yield store.remove(ids, actor=actor)
    for job_id, code in zip(ids, codes, strict=True):
        if code is Finish.MISSING:
            raise _unknown(store, job_id)
        if code is Finish.STALE:
            raise JobActive(
                f"job {job_id} of queue {store.queue_id} is running", hint="Wait for it, or stop its worker first."
            )
    return len(codes)


def cancel(
    store: QueueStore, ids: Sequence[str], *, why: str = "canceled", keep: Keep | None = KEEP_FAILED, actor: str = ""
) -> Talk[int]:
    """Cancel jobs, whatever they are doing. UnknownJob or JobOver about the first that could not be canceled.

    One that runs loses its lease at once, and its worker cancels the handler; one in a thread is told and runs on.
    """
    codes: list[int] = yield store.cancel(ids, why=why, keep=keep, actor=actor)
    for job_id, code in zip(ids, codes, strict=True):
        if code == Finish.MISSING:
            raise _unknown(store, job_id)
        if code == Finish.STALE:
            raise JobOver(
                f"job {job_id} of queue {store.queue_id} is already over",
                hint=f"Look at it: panqueue job {store.queue_id} {job_id}",
            )
    return len(codes)


def logs(store: QueueStore, job_id: str) -> Talk[list[LogLine]]:
    """What the handlers of a job have logged, oldest first."""
    lines: list[bytes] = yield Ask(None, [], ["LRANGE", store.keys["logs"] + job_id, 0, -1], _same)
    return [_log_line(line) for line in lines]


def _log_line(line: bytes) -> LogLine:
    at, _, text = line.decode("utf-8", "replace").partition(" ")
    return LogLine(int(at) if at.isdecimal() else 0, text)


def drain(store: QueueStore, *, delayed: bool = False, actor: str = "") -> Talk[int]:
    """Remove every waiting job, and the delayed ones too if asked for; gives how many."""
    total = 0
    while True:
        gone: int = yield store.drain(most=_BATCH, delayed=delayed, actor=actor)
        total += gone
        if gone < _BATCH:
            return total


def clean(store: QueueStore, state: JobState, keep: Keep) -> Talk[int]:
    """Remove completed or failed jobs beyond a number or age; gives how many."""
    if state not in {JobState.COMPLETED, JobState.FAILED}:
        raise PanqueueError(f"only completed and failed jobs can be cleaned, not {state} ones", hint="panqueue drain")
    total = 0
    while True:
        gone: int = yield store.trim(state, keep, most=_BATCH)
        total += gone
        # One call may evict that many by age and that many by number.
        if gone < _BATCH:
            return total


def pause(store: QueueStore, *, paused: bool, actor: str = "") -> Talk[bool]:
    """Let no worker of ours claim from the queue, or let them again; whether that changed anything."""
    changed: bool = yield store.pause(paused=paused, actor=actor)
    return changed


def check_confirmation(queue_id: str, confirm: str) -> None:
    """PanqueueError unless the caller typed the id of the queue that is to go."""
    if confirm != queue_id:
        raise PanqueueError(
            f"queue {queue_id} was not removed: the confirmation says {confirm!r}",
            hint=f"Confirm with the id of the queue: {queue_id}",
        )


def obliterate(store: QueueStore, *, force: bool = False) -> Talk[int]:
    """Remove the queue with everything in it; gives how many jobs went. JobActive unless `force`."""
    total = 0
    while True:
        answer: tuple[Obliterated, int] = yield store.obliterate(most=_BATCH, force=force)
        code, gone = answer
        total += gone
        if code is Obliterated.JOBS_ARE_ACTIVE:
            raise JobActive(
                f"jobs of queue {store.queue_id} are running",
                hint="Stop its workers first, or do it all the same with --force.",
            )
        if code is Obliterated.ALL_GONE:
            return total


def set_key_limit(store: QueueStore, key: str, limit: int | None) -> Talk[None]:
    """Give one key of a dynamic queue its own limit; 0 stops it, None gives it the queue's. ModeMismatch."""
    if limit is not None and limit < 0:
        raise PanqueueError(f"a limit is 0 or more, not {limit}", hint="0 stops the key.")
    yield store.key_limit(check_key(key), limit)


def rules(store: QueueStore) -> Talk[QueueRules]:
    """The priorities and rate limits of a queue."""
    found: QueueRules = yield store.rules()
    return found


def set_rate(store: QueueStore, rate: Rate | None, *, per_key: bool = False) -> Talk[None]:
    """Limit how many jobs may start in which time, of the queue or of each key; None lifts the limit. PanqueueError."""
    if faults := rate_faults("rate", rate):
        raise PanqueueError("; ".join(faults), hint="For example: panqueue rate emails 100/1s")
    if per_key and (yield from stored_mode(store)) is Mode.GLOBAL:
        raise ModeMismatch(
            f"queue {store.queue_id} is in global mode, where jobs have no key",
            hint="Start its worker with mode='keyed'.",
        )
    meta = store.keys["meta"]
    if rate is None:
        yield Ask(None, [], ["HDEL", meta, *(FIELDS[4:7] if per_key else FIELDS[1:4])], _same)
    else:
        yield store.write_rules(QueueRules(key_rate=rate) if per_key else QueueRules(rate=rate))
    yield Ask(None, [], ["PUBLISH", store.keys["notify"], "!rules"], _same)


def switch_events(store: QueueStore, kept: int | None) -> Talk[bool]:
    """Record every transition in a stream of about `kept` entries, or stop that with None."""
    changed: bool = yield store.switch_events(kept or 0)
    return changed


# --- small things ----------------------------------------------------------------------------------------------------


def _scan(pattern: str) -> Talk[set[bytes]]:
    found: set[bytes] = set()
    cursor: Any = "0"
    while True:
        cursor, keys = yield Ask(None, [], ["SCAN", cursor, "MATCH", pattern, "COUNT", _SCAN_STEP], _same)
        found.update(keys)
        if cursor == b"0":
            return found


def _literal(text: str) -> str:
    return re.sub(r"([*?\[\]\\])", r"\\\1", text)


def _same(reply: Reply) -> Reply:
    return reply


def _unknown(store: QueueStore, job_id: str) -> UnknownJob:
    return UnknownJob(f"queue {store.queue_id} has no job {job_id}", hint=f"List them: panqueue jobs {store.queue_id}")
