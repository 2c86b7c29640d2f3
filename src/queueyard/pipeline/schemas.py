"""Every schema of the pipeline, in one place. Nothing is ever inferred.

A table is a name below the pipeline's home, its columns, and the columns that its files are split by. `batch` is the
number of the ingestion batch that a row came with; it is what makes a batch that is run twice change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as T

_STRING = T.StringType()
_LONG = T.LongType()
_INT = T.IntegerType()
_TIME = T.TimestampType()
_BOOL = T.BooleanType()
_DOUBLE = T.DoubleType()
_DATE = T.DateType()


def _schema(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name.rstrip("_"), kind) for name, kind in columns.items()])


def _with(schema: T.StructType, **columns: T.DataType) -> T.StructType:
    return T.StructType([*schema.fields, *_schema(**columns).fields])


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """One table: where it stands, what is in it, and how its files are split."""

    name: str
    schema: T.StructType
    partition_by: tuple[str, ...] = ()
    #: a column whose values lie close together in a batch, as ids do that were made one after the other: what is far
    #: from those of a batch need not be read to find what they belong to
    ranged_by: str | None = None

    @property
    def layer(self) -> str:
        return self.name.partition("/")[0]


# --- bronze ----------------------------------------------------------------------------------------------------------

#: what every source gives: one raw record and where it came from
RECORD = _schema(
    # which format, for example `queen.messages`: decides how the raw text is read
    stream=_STRING,
    # which repository, workspace, Redis or server
    place=_STRING,
    # which file, stream or feed of it
    file=_STRING,
    # counts how often the file was replaced or truncated, or how often it and its archives were read in turn
    generation=_INT,
    # byte offset, milliseconds of an entry id, or number in the feed
    position=_LONG,
    # tells apart two records of one position
    minor=_LONG,
    raw=_STRING,
)

LINES = TableSpec(name="bronze/lines", schema=_with(RECORD, ingested_at=_TIME, batch=_LONG), partition_by=("stream",))
QUARANTINE = TableSpec(
    name="bronze/quarantine",
    schema=_with(RECORD, reason=_STRING, ingested_at=_TIME, batch=_LONG),
    partition_by=("batch",),
)

# --- silver ----------------------------------------------------------------------------------------------------------

#: the shared Event (kernel/events.py), with its time as a time
EVENT = _schema(
    id=_STRING,
    at=_TIME,
    system=_STRING,
    source=_STRING,
    queue=_STRING,
    item=_STRING,
    kind=_STRING,
    attempt=_INT,
    group=_STRING,
    actor=_STRING,
    reason=_STRING,
    # the system's own small object, as JSON text
    data=_STRING,
)

#: the Event as a line of a journal carries it
EVENT_LINE = T.StructType(
    [T.StructField(field.name, _STRING if field.name == "at" else field.dataType) for field in EVENT.fields]
)

EVENTS = TableSpec(name="silver/events", schema=_with(EVENT, day=_DATE, batch=_LONG), partition_by=("day",))

#: whose item it is; the key of items and attempts
ITEM_KEY = ("system", "source", "queue", "item")
ATTEMPT_KEY = (*ITEM_KEY, "attempt")
RECORD_KEY = ("source", "id")
_KEY = _schema(system=_STRING, source=_STRING, queue=_STRING, item=_STRING)

#: what one batch knows of an item; several rows of one item add up to its state (silver/items.py)
ITEMS = TableSpec(
    name="silver/items",
    schema=_with(
        _KEY,
        group=_STRING,
        first_at=_TIME,
        last_at=_TIME,
        last_id=_STRING,
        last_kind=_STRING,
        last_reason=_STRING,
        last_actor=_STRING,
        attempts=_INT,
        events=_LONG,
        batch=_LONG,
    ),
)

#: what one batch knows of one try (silver/attempts.py)
ATTEMPTS = TableSpec(
    name="silver/attempts",
    schema=_with(
        _KEY,
        attempt=_INT,
        group=_STRING,
        actor=_STRING,
        # sorts the actors of an attempt: who ended it before who started it before who asked for it
        actor_order=_STRING,
        queued_at=_TIME,
        started_at=_TIME,
        finished_at=_TIME,
        # which event ended it: decides between two of the same microsecond
        finished_id=_STRING,
        outcome=_STRING,
        reason=_STRING,
        # when the next attempt was asked for, and why: the end of an attempt that has no other
        superseded_at=_TIME,
        superseded_reason=_STRING,
        stalls=_LONG,
        # length of the run where the system itself measured it
        duration_ms=_LONG,
        wasted_ms=_LONG,
        batch=_LONG,
    ),
)

#: how queen's lines are read; `from` is a word of SQL, and stays what it is on disk
MESSAGE = _schema(
    id=_STRING,
    created_at=_STRING,
    from_=_STRING,
    to=_STRING,
    subject=_STRING,
    body=_STRING,
    issue_id=_STRING,
    reply_to=_STRING,
    thread_id=_STRING,
    importance=_STRING,
    read=_BOOL,
    read_at=_STRING,
    deleted=_BOOL,
    deleted_at=_STRING,
)
ASSIGNMENT = _schema(
    id=_STRING,
    created_at=_STRING,
    updated_at=_STRING,
    issue_id=_STRING,
    agent=_STRING,
    droid=_STRING,
    assigned_by=_STRING,
    status=_STRING,
    worktree=_STRING,
    reason=_STRING,
    previous_agent=_STRING,
    previous_droid=_STRING,
)
RESERVATION = _schema(
    id=_STRING,
    created_at=_STRING,
    expires_at=_STRING,
    released_at=_STRING,
    renewed_at=_STRING,
    pattern=_STRING,
    agent=_STRING,
    droid=_STRING,
    issue_id=_STRING,
    status=_STRING,
    exclusive=_BOOL,
    reason=_STRING,
)


def _folded(schema: T.StructType) -> T.StructType:
    """Rows of partly known records: fields, those that were cleared, and the place in the order of lines."""
    return _with(
        T.StructType([T.StructField("source", _STRING), *schema.fields]),
        cleared=T.ArrayType(_STRING),
        generation=_INT,
        position=_LONG,
        batch=_LONG,
    )


MESSAGES = TableSpec(name="silver/messages", schema=_folded(MESSAGE), ranged_by="id")
ASSIGNMENTS = TableSpec(name="silver/assignments", schema=_folded(ASSIGNMENT), ranged_by="id")
RESERVATIONS = TableSpec(name="silver/reservations", schema=_folded(RESERVATION), ranged_by="id")

#: one entry of the ops change feed; names as on the wire
CHANGE = _schema(
    seq=_LONG,
    space=_STRING,
    op=_STRING,
    fileId=_STRING,
    version=_LONG,
    baseVersion=_LONG,
    serverPath=_STRING,
    previousPath=_STRING,
    contentHash=_STRING,
    size=_LONG,
    requestId=_STRING,
    batchIndex=_LONG,
    opId=_STRING,
    clientId=_STRING,
    userId=_STRING,
    acceptedAt=_STRING,
)
#: one entry of the ops audit stream
REFUSAL = _schema(
    seq=_LONG,
    space=_STRING,
    status=_STRING,
    code=_STRING,
    detail=_STRING,
    type=_STRING,
    fileId=_STRING,
    serverPath=_STRING,
    baseVersion=_LONG,
    serverVersion=_LONG,
    requestId=_STRING,
    batchIndex=_LONG,
    opId=_STRING,
    clientId=_STRING,
    userId=_STRING,
    at=_STRING,
)
FILE_VERSIONS = TableSpec(
    name="silver/file_versions",
    schema=_schema(
        source=_STRING,
        space=_STRING,
        file=_STRING,
        version=_LONG,
        seq=_LONG,
        op=_STRING,
        path=_STRING,
        previous_path=_STRING,
        content_hash=_STRING,
        bytes=_LONG,
        request=_STRING,
        actor=_STRING,
        at=_TIME,
        batch=_LONG,
    ),
)
#: the newest version of a file that one batch knows (silver/files.py)
FILES = TableSpec(
    name="silver/files",
    schema=_schema(
        source=_STRING,
        space=_STRING,
        file=_STRING,
        version=_LONG,
        seq=_LONG,
        path=_STRING,
        content_hash=_STRING,
        bytes=_LONG,
        is_deleted=_BOOL,
        changed_at=_TIME,
        batch=_LONG,
    ),
)

#: one job of runforge's queue.json
JOB = _schema(
    job_id=_STRING,
    kind=_STRING,
    run_id=_STRING,
    group_id=_STRING,
    priority=_INT,
    state=_STRING,
    requires_gpu=_BOOL,
    attempt=_INT,
    created_at=_STRING,
    started_at=_STRING,
    finished_at=_STRING,
    error=_STRING,
)

#: runforge's files that are rewritten as a whole, with the fields that matter
QUEUE_FILE = _schema(kind=_STRING, max_parallel=_INT, gpu_slots=_INT, jobs=T.ArrayType(JOB), last_served_group=_STRING)
GROUP_FILE = _schema(
    kind=_STRING,
    group_id=_STRING,
    name=_STRING,
    created_at=_STRING,
    status=_STRING,
    paused=_BOOL,
    runs=T.ArrayType(_schema(run_id=_STRING, status=_STRING, result_ref=_STRING)),
)
#: `summary` and `error` are objects of the run's own: kept as JSON text
RESULT_FILE = _schema(status=_STRING, started_at=_STRING, finished_at=_STRING, summary=_STRING, error=_STRING)

#: one entry of a panqueue event stream, as our source writes it down
ENTRY = _schema(id=_STRING, kind=_STRING, item=_STRING, attempt=_STRING, group=_STRING, actor=_STRING, reason=_STRING)

SILVER = (EVENTS, ITEMS, ATTEMPTS, MESSAGES, ASSIGNMENTS, RESERVATIONS, FILE_VERSIONS, FILES)

# --- gold ------------------------------------------------------------------------------------------------------------
# Meanings: docs/pipeline/metrics.md. Only types that every reader of Parquet knows.

_QUEUE = _schema(system=_STRING, source=_STRING, queue=_STRING)
_BUCKET = _schema(grain=_STRING, bucket_at=_TIME)
_FLOW = _schema(queued=_LONG, started=_LONG, succeeded=_LONG, failed=_LONG, conflicted=_LONG, canceled=_LONG)

THROUGHPUT = TableSpec(name="gold/throughput", schema=T.StructType([*_BUCKET.fields, *_QUEUE.fields, *_FLOW.fields]))
DURATIONS = TableSpec(
    name="gold/durations",
    schema=_with(
        _QUEUE,
        measure=_STRING,
        scope=_STRING,
        group=_STRING,
        day=_DATE,
        attempts=_LONG,
        mean_s=_DOUBLE,
        max_s=_DOUBLE,
        p50_s=_DOUBLE,
        p90_s=_DOUBLE,
        p95_s=_DOUBLE,
        p99_s=_DOUBLE,
        is_exact=_BOOL,
    ),
)
FAILURES = TableSpec(
    name="gold/failures",
    schema=_with(
        _QUEUE,
        day=_DATE,
        kind=_STRING,
        reason=_STRING,
        failures=_LONG,
        items=_LONG,
        example=_STRING,
        first_at=_TIME,
        last_at=_TIME,
    ),
)
RETRIES = TableSpec(
    name="gold/retries",
    schema=_with(
        _QUEUE,
        day=_DATE,
        started=_LONG,
        retried=_LONG,
        stalled=_LONG,
        released=_LONG,
        retried_items=_LONG,
        highest_attempt=_LONG,
        retry_rate=_DOUBLE,
        stall_rate=_DOUBLE,
    ),
)
FAIRNESS = TableSpec(
    name="gold/fairness",
    schema=_with(
        T.StructType([*_BUCKET.fields, *_QUEUE.fields]),
        groups=_LONG,
        services=_LONG,
        run_s=_DOUBLE,
        jain_services=_DOUBLE,
        jain_run=_DOUBLE,
    ),
)
LANDING = TableSpec(
    name="gold/landing",
    schema=_schema(
        source=_STRING,
        queue=_STRING,
        day=_DATE,
        landed=_LONG,
        failed=_LONG,
        conflicted=_LONG,
        timed=_LONG,
        land_mean_s=_DOUBLE,
        land_max_s=_DOUBLE,
        land_p50_s=_DOUBLE,
        land_p95_s=_DOUBLE,
        checks=_LONG,
        wasted_checks=_LONG,
        wasted_s=_DOUBLE,
        wasted_share=_DOUBLE,
        reused_checks=_LONG,
        is_exact=_BOOL,
    ),
)
AGENTS = TableSpec(
    name="gold/agents",
    schema=_schema(
        source=_STRING,
        agent=_STRING,
        sent=_LONG,
        received=_LONG,
        unread=_LONG,
        answered=_LONG,
        response_p50_s=_DOUBLE,
        response_p95_s=_DOUBLE,
        assignments=_LONG,
        open_assignments=_LONG,
        completed=_LONG,
        idle_gaps=_LONG,
        idle_s=_DOUBLE,
        is_exact=_BOOL,
    ),
)
CONTENTION = TableSpec(
    name="gold/contention",
    schema=_schema(
        source=_STRING,
        day=_DATE,
        holder=_STRING,
        holder_pattern=_STRING,
        waiter=_STRING,
        waiter_pattern=_STRING,
        overlaps=_LONG,
        blocking_overlaps=_LONG,
        overlap_s=_DOUBLE,
    ),
)
SYNC = TableSpec(
    name="gold/sync",
    schema=_schema(
        source=_STRING,
        space=_STRING,
        day=_DATE,
        batches=_LONG,
        lag_mean_s=_DOUBLE,
        lag_max_s=_DOUBLE,
        lag_p50_s=_DOUBLE,
        lag_p95_s=_DOUBLE,
        applied=_LONG,
        conflicts=_LONG,
        rejected=_LONG,
        conflict_rate=_DOUBLE,
        versions=_LONG,
        files_changed=_LONG,
        bytes=_LONG,
        is_exact=_BOOL,
    ),
)
SUMMARY = TableSpec(
    name="gold/summary",
    schema=T.StructType(
        [
            *_schema(system=_STRING, day=_DATE, sources=_LONG, queues=_LONG, items=_LONG, events=_LONG).fields,
            *_FLOW.fields,
            *_schema(
                retried=_LONG,
                stalled=_LONG,
                success_rate=_DOUBLE,
                wait_p50_s=_DOUBLE,
                wait_p95_s=_DOUBLE,
                run_p50_s=_DOUBLE,
                run_p95_s=_DOUBLE,
                is_exact=_BOOL,
            ).fields,
        ]
    ),
)

# --- quality ---------------------------------------------------------------------------------------------------------

#: one row per rule that a check found broken (quality.py)
VIOLATIONS = TableSpec(
    name="quality/violations",
    schema=_schema(
        table=_STRING,
        rule=_STRING,
        violations=_LONG,
        # keys of the first and the last of them, in the order of letters
        examples=T.ArrayType(_STRING),
        # whether the whole table was looked at; else what the batches of this check brought or changed
        is_whole=_BOOL,
        # the first batch of the check; `batch` is its last
        since=_LONG,
        batch=_LONG,
    ),
)
