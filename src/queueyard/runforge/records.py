"""The shapes of the execution queue: what stands in queue.json and daemon.json, and what stands beside them.

`Job`, `QueueFile` and `DaemonFile` are the contract's, field for field and in its order. Everything that the contract
does not know (dependencies, retries, the process behind a running job) is in `Extra`, in the journal and in the
sidecar, never in queue.json: the public tool drops fields that it does not know.

The journal is a list of `Entry`. An entry says what it expects to find, so that the order of the lines in the file
decides who was first; one that no longer fits is void for everybody who reads it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: one JSON object as it stands in a file that others write too (request.json, result.json, group.json, plan.json)
Raw = dict[str, Any]

#: how runs without a group are called where a group is wanted (`last_served_group`)
UNGROUPED = "__ungrouped__"


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED})

#: which state may follow which; a running job is queued again when it is handed back or tried once more, and a queued
#: one ends without a start of ours when what it waits for failed, or when another tool ran it
TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, *ENDED}),
    JobState.RUNNING: frozenset({JobState.QUEUED, *ENDED}),
}


class DaemonState(StrEnum):
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Policy(StrEnum):
    """How the scheduler chooses between groups."""

    #: the group that was served least recently; no group waits for more than one service of each other group
    FAIR = "fair"
    #: the literal steps of the contract, which let two groups starve a third
    CONTRACT_V1 = "contract-v1"


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of the queue (spec: Job Fields)."""

    #: unique, job_YYYYMMDD_HHMMSS_NNNN
    job_id: str
    kind: str = "run"
    #: the folder below .ml/runs
    run_id: str
    #: None for a run without a group
    group_id: str | None = None
    #: higher is scheduled first within its group
    priority: int = 0
    state: JobState = JobState.QUEUED
    #: whether it may only run on a GPU slot; as today's public tool writes it
    requires_gpu: bool = False
    #: 1, 2, ...
    attempt: int = 1
    #: local ISO 8601 without zone, as all times here
    created_at: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    #: why it failed, or why it is queued again
    error: str | None = None


class QueueFile(msgspec.Struct, frozen=True, kw_only=True):
    """queue.json (spec: Queue State)."""

    version: Literal[1] = 1
    kind: Literal["execution_queue"] = "execution_queue"
    max_parallel: int = 2
    gpu_slots: int = 1
    jobs: list[Job] = []
    last_served_group: str | None = None


class DaemonFile(msgspec.Struct, frozen=True, kw_only=True):
    """daemon.json (spec: Daemon State)."""

    version: Literal[1] = 1
    pid: int
    #: local ISO 8601
    started_at: str
    last_heartbeat: str
    max_parallel: int = 2
    gpu_slots: int = 1
    active_jobs: int = 0
    active_gpu_jobs: int = 0
    state: DaemonState


class Extra(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What we know of a job beyond the contract."""

    #: jobs that must succeed first
    after: tuple[str, ...] = ()
    #: how many more attempts a failure is worth
    retries: int = 0
    #: pause before the first of them, milliseconds; doubled for each further one
    backoff_ms: int = 0
    #: seconds that one attempt may take; None for the daemon's own limit
    timeout_s: float | None = None
    #: seconds since 1970; not started before
    not_before: float | None = None
    #: the process of the current attempt: pid, and its start in the words of kernel.proc
    pid: int | None = None
    pid_started: str | None = None
    #: how often a daemon died under it so that nobody saw how it ended
    lost: int = 0
    #: why somebody wants the running attempt to end
    stop: str | None = None


# --- journal ---------------------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag_field="op", omit_defaults=True):
    """One line of the journal."""


class Added(_Entry, tag="add", frozen=True, kw_only=True):
    """Jobs came in, all or none of them."""

    jobs: list[Job]
    #: job -> what the contract has no field for
    extras: dict[str, Extra] = {}


class Started(_Entry, tag="start", frozen=True, kw_only=True):
    """queued -> running; written before the process exists."""

    job_id: str
    attempt: int
    #: local ISO 8601
    at: str


class Spawned(_Entry, tag="spawn", frozen=True, kw_only=True):
    """The process of a running job, so that a later daemon knows it again."""

    job_id: str
    attempt: int
    pid: int
    pid_started: str


class Ended(_Entry, tag="end", frozen=True, kw_only=True):
    """A job came to its end; void unless it is still what `was` says, in the same attempt."""

    job_id: str
    was: JobState
    attempt: int
    state: JobState
    at: str
    error: str | None = None


class Returned(_Entry, tag="return", frozen=True, kw_only=True):
    """running -> queued: handed back by a daemon that stops, lost by one that died, or tried once more."""

    job_id: str
    #: the attempt that ended without an outcome
    attempt: int
    #: the attempt that is queued now
    next_attempt: int
    at: str
    reason: str
    #: seconds since 1970; the next attempt is not started before
    not_before: float | None = None
    #: whether nobody saw how it ended
    lost: bool = False


class StopWished(_Entry, tag="stop", frozen=True, kw_only=True):
    """Somebody wants running attempts to end; the daemon does it."""

    #: job -> attempt
    jobs: dict[str, int]
    reason: str


class Prioritised(_Entry, tag="priority", frozen=True, kw_only=True):
    """Another tool gave a queued job another priority."""

    job_id: str
    priority: int


class Pruned(_Entry, tag="prune", frozen=True, kw_only=True):
    """Ended jobs that nobody needs any more were taken out."""

    job_ids: list[str]


class Limits(_Entry, tag="limits", frozen=True, kw_only=True):
    """What a daemon allows, or what a queue.json of another tool said when we met it first."""

    max_parallel: int
    gpu_slots: int
    last_served_group: str | None = None


#: device, inode, size and time of modification: what tells one queue.json from the next
Fingerprint = tuple[int, int, int, int]


class Published(_Entry, tag="published", frozen=True, kw_only=True):
    """queue.json tells everything up to a byte of this journal."""

    upto: int
    file: Fingerprint
    #: CRC-32 of its content: a file that was copied or restored is still ours
    checksum: int = 0


class GroupSaved(_Entry, tag="saved", frozen=True, kw_only=True):
    """group.json tells everything up to a byte of this journal."""

    group_id: str
    upto: int


Entry = (
    Added | Started | Spawned | Ended | Returned | StopWished | Prioritised | Pruned | Limits | Published | GroupSaved
)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """queueyard.json: all that the journals before `journal` said."""

    version: Literal[1] = 1
    kind: Literal["queueyard_runforge"] = "queueyard_runforge"
    #: the journal that goes on where this ends
    journal: str
    max_parallel: int = 2
    gpu_slots: int = 1
    last_served_group: str | None = None
    #: group -> the number of the service that it got last
    served: dict[str, int] = {}
    #: groups whose group.json is behind
    unsaved: list[str] = []
    #: the queue.json that we wrote last, and its checksum; None if we never did
    published: tuple[Fingerprint, int] | None = None
    extras: dict[str, Extra] = {}
    #: in the order in which they came
    jobs: list[Job] = []


def group_key(job: Job) -> str:
    """The group that a job is scheduled with; runs without one form a group of their own."""
    return UNGROUPED if job.group_id is None else job.group_id


_queue_decoder = msgspec.json.Decoder(QueueFile)
_checkpoint_decoder = msgspec.json.Decoder(Checkpoint)
_entry_decoder = msgspec.json.Decoder(Entry)
_daemon_decoder = msgspec.json.Decoder(DaemonFile)
_raw_decoder = msgspec.json.Decoder(dict[str, Any])

decode_queue = _queue_decoder.decode
decode_checkpoint = _checkpoint_decoder.decode
decode_entry = _entry_decoder.decode
decode_daemon = _daemon_decoder.decode
decode_raw = _raw_decoder.decode


def encode_rows(document: msgspec.Struct | Raw, rows_key: str) -> bytes:
    """A JSON object with one line per key, and one line per item of the list under `rows_key`.

    As cheap as the compact form even for 100,000 rows, and still a file that a person can read, search and compare.
    """
    parts = []
    for key, value in _items(document):
        if key == rows_key and value:
            rows = b",\n  ".join(map(_encoder.encode, value))
            parts.append(b'"%s": [\n  %s\n]' % (key.encode(), rows))
        else:
            parts.append(b"%s: %s" % (_encoder.encode(key), _encoder.encode(value)))
    return b"{\n" + b",\n".join(parts) + b"\n}\n"


_encoder = msgspec.json.Encoder()


def _items(document: msgspec.Struct | Raw) -> list[tuple[str, Any]]:
    if isinstance(document, dict):
        return list(document.items())
    return [(name, getattr(document, name)) for name in document.__struct_fields__]


def encode_pretty(raw: object) -> bytes:
    """Two spaces of indent, as the public tool writes its files."""
    return msgspec.json.format(_encoder.encode(raw), indent=2) + b"\n"
