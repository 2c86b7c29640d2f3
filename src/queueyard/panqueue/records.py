"""The shapes of a queue in Redis: jobs, states, counts, and the codes that the scripts answer with.

The names of fields and keys are those of the public implementation wherever it has them; what is ours stands in extra
fields (`opts`, `result`, `concurrencyKey`, ...) and extra keys under the same `{q:<queue>}` tag. This file decides
nothing and talks to nobody.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue.placing import Placing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_MAX_STALLS = 5


class JobState(StrEnum):
    """Where a job is; the field `status` of its hash."""

    WAITING = "waiting"
    DELAYED = "delayed"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    #: waits for the jobs of its flow that must end first
    HELD = "held"


#: which state may follow which; completed is an end, failed one unless a person retries
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.WAITING: frozenset({JobState.ACTIVE, JobState.FAILED}),
    JobState.DELAYED: frozenset({JobState.WAITING, JobState.FAILED}),
    JobState.ACTIVE: frozenset({JobState.WAITING, JobState.DELAYED, JobState.COMPLETED, JobState.FAILED}),
    JobState.COMPLETED: frozenset(),
    JobState.FAILED: frozenset({JobState.WAITING}),
    JobState.HELD: frozenset({JobState.WAITING, JobState.FAILED}),
}


class Mode(StrEnum):
    """What limits how many jobs of a queue run at once; one per queue, for good."""

    #: only the workers' slots and the common limit
    GLOBAL = "global"
    #: so many per concurrency key as well
    KEYED = "keyed"
    #: as keyed, and single keys may have limits of their own
    DYNAMIC = "dynamic"


class FailureKind(StrEnum):
    """Why a job is where it is, if something went wrong."""

    HANDLER = "handler"
    STALLED = "stalled"
    CANCELED = "canceled"
    #: it had not started when its time was over
    EXPIRED = "expired"
    #: a job of its flow failed
    CHILD = "child"


class Finish(IntEnum):
    """What a script says about one job that was to be finished, renewed, retried or removed."""

    #: there is no such job
    MISSING = 0
    #: it is not ours: another token holds it, or it is in a state that forbids the step
    STALE = 1
    #: done: extended, handed back, removed, or waiting again
    DONE = 2
    #: it waits for its next attempt
    DELAYED = 3
    #: it failed for good
    FAILED = 4
    #: its hash is gone although its id was there
    CORRUPT = 5


class Added(IntEnum):
    """What add.lua and add_keyed.lua say."""

    DONE = 0
    OTHER_MODE = 1
    IDS_TAKEN = 2
    #: another job holds the deduplication key
    DUPLICATE = 3


class Declared(IntEnum):
    """What declare_limit.lua says."""

    WRITTEN = 0
    UNCHANGED = 1
    IGNORED = 2
    CONFLICT = 3


class Agreed(IntEnum):
    """What declare_mode.lua says."""

    DONE = 0
    OTHER_MODE = 1
    OTHER_LIMIT = 2


class Obliterated(IntEnum):
    """What obliterate.lua says."""

    ALL_GONE = 0
    CALL_AGAIN = 1
    JOBS_ARE_ACTIVE = 2


class IdsFrom(IntEnum):
    """Who makes the ids of added jobs."""

    #: random UUIDs of ours, not checked
    CLIENT = 0
    #: a person's, refused if taken
    CALLER = 1
    #: short numbers, counted by the server
    SERVER = 2


class Keep(msgspec.Struct, frozen=True):
    """How long finished jobs are kept. Without bounds they are kept until somebody removes them."""

    #: at most so many; None: any number
    count: int | None = None
    #: at most so old, seconds; None: any age
    age_s: float | None = None


#: as the public implementation: nothing is left of a success, a failure can be looked at for a week
KEEP_COMPLETED: Keep | None = None
KEEP_FAILED = Keep(count=1_000, age_s=7 * 86_400)
#: where results are wanted, they must outlive the handler for a while
KEEP_RESULTS = Keep(count=10_000, age_s=3_600)


class BackoffRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a failed job waits before its next attempt."""

    #: delay before the second attempt, milliseconds; 0 tries again at once
    base_ms: int = 1_000
    #: no delay is longer, milliseconds
    cap_ms: int = 60_000
    #: each delay is this many times the one before
    factor: float = 2.0
    #: share of the delay that is left to chance: 0 none, 1 all of it
    jitter: float = 0.5


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What can be said about a job when it is added."""

    #: further attempts after the first failed
    retries: int = 0
    #: how often its worker may die under it before it counts as failed
    max_stalls: int = DEFAULT_MAX_STALLS
    #: None: the worker's own rule
    backoff: BackoffRule | None = None
    #: a handler that runs longer fails, milliseconds; None: the worker's own rule
    timeout_ms: int | None = None
    #: W3C trace context of whoever adds it
    trace: str | None = None
    #: None: at the back of the line, now
    placing: Placing | None = None


class StoredOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The field `opts` of a job's hash; absent where all of it is default."""

    backoff: BackoffRule | None = None
    timeout_ms: int | None = None
    #: whether a job of its flow waits for it
    child: bool = False
    #: W3C trace context of whoever added it
    trace: str | None = None


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job as it stands in Redis. Times are milliseconds since 1970 on the server's clock."""

    id: str
    queue_id: str = ""
    status: str = ""
    #: compact JSON text, as its sender wrote it
    payload: str = ""
    #: how often it was started
    runs: int = 0
    #: how often its handler failed
    failures: int = 0
    #: how often its lease ran out
    stalls: int = 0
    max_retries: int = 0
    max_stalls: int = DEFAULT_MAX_STALLS
    created_at: int | None = None
    last_started_at: int | None = None
    last_failed_at: int | None = None
    last_stalled_at: int | None = None
    last_requeued_at: int | None = None
    last_requeue_reason: str | None = None
    finished_at: int | None = None
    lease_deadline: int | None = None
    failure_kind: str | None = None
    failed_reason: str | None = None
    last_error: str | None = None
    #: JSON text, where results are kept
    result: str | None = None
    concurrency_key: str | None = None
    priority: int | None = None
    #: JSON text: what its handler last said of how far it is
    progress: str | None = None
    #: JSON text: the queue, id and reason of a dead letter
    origin: str | None = None
    #: JSON text: the job of its flow that waits for it
    parent: str | None = None
    #: JSON text of StoredOptions
    opts: str | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at one moment."""

    queue: str
    waiting: int
    active: int
    completed: int
    failed: int
    delayed: int
    #: jobs that wait for others of their flow
    held: int
    #: keys with waiting jobs; 0 in global mode
    keys: int
    #: how many may be active over all workers; None: no common limit
    limit: int | None
    mode: Mode
    #: how many per key may be active; None in global mode
    key_concurrency: int | None
    paused: bool
    #: about how many events are kept; None: events are off
    events_kept: int | None
    #: events in the stream now
    events: int
    #: how long the oldest waiting job has waited, milliseconds; None if none waits
    oldest_ms: int | None
    #: active jobs whose lease ran out and that no sweep has taken back yet
    overdue: int


def record_from(job_id: str, flat: Sequence[bytes]) -> JobRecord:
    """The typed view of a job's hash as HGETALL gives it. Unknown fields are left out, odd numbers read as missing."""
    fields: dict[str, object] = {"id": job_id}
    pairs = iter(flat)
    for name, value in zip(pairs, pairs, strict=True):
        fields[name.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
    fields["id"] = job_id
    try:
        return msgspec.convert(fields, JobRecord, strict=False)
    except msgspec.ValidationError:
        readable = {name: value for name, value in fields.items() if _fits(name, value)}
        return msgspec.convert(readable, JobRecord, strict=False)


def _fits(name: str, value: object) -> bool:
    try:
        msgspec.convert({"id": "", name: value}, JobRecord, strict=False)
    except msgspec.ValidationError:
        return False
    return True
