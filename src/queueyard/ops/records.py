"""The shapes of ops: what goes over the wire, what stands in the files of the client, what the change feed tells.

Names are `snake_case` here and `camelCase` in JSON, as the spec writes them. Fields that a shape does not know are
ignored on reading, so that an older server can take the batches of a newer client.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

#: no JSON reader of another language holds a greater whole number exactly
LARGEST_NUMBER = 2**53 - 1

REQUEST_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
OP_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\Z"
FILE_ID_PATTERN = r"^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,127}\Z"

RequestId = Annotated[str, msgspec.Meta(pattern=REQUEST_ID_PATTERN)]
OpId = Annotated[str, msgspec.Meta(pattern=OP_ID_PATTERN)]
Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]
Message = Annotated[str, msgspec.Meta(max_length=2_000)]

FEED_SCHEMA_VERSION = 1
DEFAULT_SPACE = "default"
DEFAULT_TENANT = "default"

#: whatever the body says, a replayed answer says so here and only here
REPLAY_HEADER = "Idempotent-Replay"
SPACE_HEADER = "X-Jolli-Space"
CLIENT_HEADER = "X-Jolli-Client"
PROBLEM_TYPE = "application/problem+json"


class OpType(StrEnum):
    UPSERT = "upsert"
    DELETE = "delete"


class Status(StrEnum):
    """What became of one op. Each of them is an answer: the op is not sent again."""

    APPLIED = "applied"
    #: the file is not what the op was made for; the server's version comes with it
    CONFLICT = "conflict"
    #: the op can never be applied as it is; the code says why
    REJECTED = "rejected"


class State(StrEnum):
    """Where a batch stands on its way from the client to the server."""

    #: its file is there, its request's manifest is not: a crash now discards it
    WRITTEN = "written"
    #: accepted for sending; it survives everything from here on
    PENDING = "pending"
    #: the server has answered, the answer is noted, the file is not cleared away yet
    ANSWERED = "answered"
    #: cleared away: deleted, or moved to `completed/`
    COMPLETED = "completed"
    #: refused as a whole: its ops went to a child request or to `dead/`, an empty batch goes in its place
    EMPTIED = "emptied"
    #: given up by a person
    DROPPED = "dropped"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.WRITTEN: frozenset({State.PENDING}),
    State.PENDING: frozenset({State.ANSWERED, State.EMPTIED, State.DROPPED}),
    State.EMPTIED: frozenset({State.ANSWERED, State.DROPPED}),
    State.ANSWERED: frozenset({State.COMPLETED}),
}


class Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What all shapes share: keyword-only, frozen, camelCase, and what is not set is left out."""


class Op(Wire, frozen=True, kw_only=True):
    """One change of one file."""

    #: tells the op from the others of its request
    op_id: OpId
    type: OpType
    #: stays with the file through renames; letters, digits, `-`, `_`, single dots
    file_id: str
    #: relative, `/` between names
    server_path: str
    #: the version that the change was made on; 0: the file is new
    base_version: Count
    #: the whole new text; an upsert has it, a delete has not
    content: str | None = None
    #: SHA-256 of the content in UTF-8, lower-case hex; checked if given
    content_hash: str | None = None


class PushRequest(Wire, frozen=True, kw_only=True):
    """One batch, as it is posted (spec: Push Request Shape) and as it stands in its file (spec: Data Model)."""

    request_id: RequestId
    #: milliseconds since 1970, when the batch was planned; not part of what the key is bound to
    created_at: Count | None = None
    #: counted from 1
    batch_index: Count
    total_batches: Count
    #: what the whole request is about, for people
    message: Message | None = None
    ops: list[Op]


class OpResult(Wire, frozen=True, kw_only=True):
    """The answer to one op, in the place that the op had in its batch."""

    op_id: str
    file_id: str
    status: Status
    #: applied: the version that the file has now
    new_version: int | None = None
    #: applied: the server had exactly this already, so nothing was written
    unchanged: bool = False
    #: conflict: what the server has, 0 if it never had the file
    server_version: int | None = None
    server_hash: str | None = None
    #: conflict: the server's version is a tombstone
    server_deleted: bool = False
    #: conflict over a path: the file that has it
    server_file_id: str | None = None
    #: conflict or rejected: why, for programs
    code: str | None = None
    #: the same for people
    detail: str | None = None


class PushResponse(Wire, frozen=True, kw_only=True):
    request_id: str
    batch_index: int
    total_batches: int
    #: `<requestId>:<batchIndex>`
    batch_id: str
    results: list[OpResult]
    #: the last entry of the feed after this batch. Not a cursor to pull from: other clients wrote in between
    new_cursor: int


class PullRequest(Wire, frozen=True, kw_only=True):
    #: 0: everything that is there; else what changed since
    since_cursor: Count = 0
    #: with cursor 0 too: deleted files as well, for who knows some already
    tombstones: bool = False
    #: how many files at most; the server may send fewer
    limit: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_NUMBER)] | None = None


class PulledFile(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """The latest state of one file."""

    file_id: str
    server_path: str
    version: int
    deleted: bool
    #: absent for a tombstone
    content: str | msgspec.UnsetType = msgspec.UNSET
    content_hash: str | msgspec.UnsetType = msgspec.UNSET


class PullResponse(Wire, frozen=True, kw_only=True, omit_defaults=False):
    new_cursor: int
    changes: list[PulledFile]
    #: there is more: pull again from `newCursor`
    more: bool


class RequestStatus(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """How far the server is with one request."""

    request_id: str
    total_batches: int
    #: batches 1 to this one are answered
    done_batches: int
    #: the next index that the server takes; one past the end when it is complete
    expected_index: int
    complete: bool
    #: RFC 3339
    created_at: str
    updated_at: str


class Limits(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """What the server takes; a client plans its batches by it."""

    max_ops: int
    #: of the request body as it is sent
    max_body_bytes: int
    #: of the request body after decompression
    max_decompressed_bytes: int
    #: of one file, in UTF-8
    max_content_bytes: int
    max_path_bytes: int
    #: how long an answer can be asked for again
    answers_kept_days: float
    encodings: list[str]


class FeedOp(StrEnum):
    """What a change did: created or restored, updated, deleted."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"


class Change(Wire, frozen=True, kw_only=True):
    """One entry of the change feed of one space: one op that was applied."""

    #: 1, 2, 3, ... without a gap, in the order of commits
    seq: int
    space: str
    op: FeedOp
    file_id: str
    #: the version that this change made
    version: int
    base_version: int
    server_path: str
    #: where the file was before, if it moved
    previous_path: str | None = None
    #: absent for a delete
    content_hash: str | None = None
    #: bytes of the content in UTF-8
    size: int = 0
    request_id: str
    batch_index: int
    op_id: str
    #: what the client calls itself
    client_id: str | None = None
    #: the name of the token
    user_id: str | None = None
    #: RFC 3339, the same for all ops of a batch
    accepted_at: str
    schema_version: int = msgspec.field(default_factory=lambda: FEED_SCHEMA_VERSION)
    #: only where it was asked for
    content: str | None = None


class Refusal(Wire, frozen=True, kw_only=True):
    """One entry of the audit stream of one space: one op that met a conflict or was rejected."""

    #: 1, 2, 3, ... without a gap; a count of its own, beside the feed's
    seq: int
    space: str
    status: Status
    code: str
    detail: str | None = None
    type: OpType
    file_id: str
    server_path: str
    base_version: int
    #: what the server had
    server_version: int | None = None
    request_id: str
    batch_index: int
    op_id: str
    client_id: str | None = None
    user_id: str | None = None
    #: RFC 3339
    at: str
    schema_version: int = msgspec.field(default_factory=lambda: FEED_SCHEMA_VERSION)


class FeedPage(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Some entries of a feed, oldest first."""

    entries: list[Change]
    #: ask again with `after=` this
    last: int
    #: the last entry that there is now
    head: int


class AuditPage(Wire, frozen=True, kw_only=True, omit_defaults=False):
    entries: list[Refusal]
    last: int
    head: int


# --- files of the client ---------------------------------------------------------------------------------------------


class Scope(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """What one queue of batches belongs to. Never holds a token."""

    #: scheme, host and port
    server: str
    space: str
    #: absolute path of the folder that is kept in step; empty for ops that come from elsewhere
    workspace: str


class BatchEntry(Wire, frozen=True, kw_only=True):
    """One batch file, as the manifest knows it."""

    sha256: str
    ops: int
    bytes: int


class Parent(Wire, frozen=True, kw_only=True):
    """The batch that a child request was made of."""

    request_id: str
    batch_index: int


class Manifest(Wire, frozen=True, kw_only=True):
    """Written last: a request with a manifest is queued whole, one without was never queued."""

    request_id: str
    #: milliseconds since 1970
    created_at: int
    #: the place in the queue: [7] for the seventh request, [7, 3] for what was split out of its batch 3
    order: list[int]
    #: batch 1 first
    batches: list[BatchEntry]
    message: str | None = None
    parent: Parent | None = None

    @property
    def total_batches(self) -> int:
        return len(self.batches)

    @property
    def ops(self) -> int:
        return sum(entry.ops for entry in self.batches)

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.batches)


class NotedOp(Wire, frozen=True, kw_only=True):
    """One op and its result, as far as the client has to remember it."""

    op_id: str
    type: OpType
    file_id: str
    server_path: str
    base_version: int
    content_hash: str | None = None
    result: OpResult | None = None


class Answer(Wire, frozen=True, kw_only=True):
    """One line beside the batch files: batch so-and-so was answered. Without results where the answer was lost."""

    batch_index: int
    ops: list[NotedOp]
    #: RFC 3339
    at: str = ""


class DeadLetter(Wire, frozen=True, kw_only=True):
    """An op that will not be sent again unless somebody says so."""

    #: name of its file, without the suffix
    id: str
    #: why, for programs
    code: str
    #: the same for people, with path and size where these are the reason
    reason: str
    #: HTTP status of the refusal, if there was one
    status: int | None = None
    request_id: str | None = None
    batch_index: int | None = None
    #: RFC 3339
    at: str
    op: Op


class Tracked(Wire, frozen=True, kw_only=True):
    """What the client knows of one file that the server has."""

    file_id: str
    server_path: str
    #: of the server, as last answered or pulled
    version: int
    content_hash: str


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """What a local file looked like when its hash was taken; as long as it looks so, it is not read again."""

    mtime_ns: int
    size: int
    inode: int
    content_hash: str
    #: bytes of the content as a JSON text
    encoded_bytes: int


class Workspace(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Everything that the client remembers of a folder between two runs, in one file."""

    #: up to here the changes of others were pulled
    cursor: int = 0
    #: server path -> what the server has there, as last answered or pulled
    tracked: dict[str, Tracked] = {}
    #: server path -> what the local file there looked like when it was last read
    seen: dict[str, Seen] = {}
    #: file id -> what has to be decided by a person
    conflicts: dict[str, Conflict] = {}


class Conflict(Wire, frozen=True, kw_only=True):
    """A file that was changed here and there. It is not pushed until somebody decides."""

    file_id: str
    #: where the local file is
    server_path: str
    #: where the server has it, if that is somewhere else
    moved_to: str | None = None
    #: what the server has, 0 if it has no such file
    server_version: int
    server_hash: str | None = None
    server_deleted: bool = False
    #: where the server's text was put beside the local one; None until it is pulled
    copy: str | None = None
    code: str = "version"
    detail: str | None = None
    #: RFC 3339
    at: str


def to_raw(value: Any) -> Any:
    """A record, or an answer that holds records, as plain JSON values."""
    return msgspec.to_builtins(value)


def batch_id(request_id: str, batch_index: int) -> str:
    return f"{request_id}:{batch_index}"
