"""The algorithm of the spec, both sides of it, with nothing around it. Pure: no I/O, no clock, no randomness.

Client: one op per file (`coalesce`), batches by count and bytes (`chunk`), what to do with a reply (`after_reply`),
how long to wait (`wait_ms`), how to split a refused batch (`halves`), which request goes first (`queue_key`).
Server: what a key is bound to (`fingerprint`), what becomes of a batch (`judge_batch`) and of one op
(`judge_upsert`, `judge_delete`).
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import sha256
import math
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.backoff import Backoff
from queueyard.ops.records import Op, OpResult, OpType, PushRequest, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# --- client: planning ------------------------------------------------------------------------------------------------

FEWEST_OPS_PER_BATCH = 25
MOST_OPS_PER_BATCH = 200
DEFAULT_OPS_PER_BATCH = 100
DEFAULT_BATCH_BYTES = 1 << 20


def coalesce(ops: Iterable[Op]) -> list[Op]:
    """One op per file: the last one that was asked for, on the version that the first one was made on.

    Two ops on one file would need a guess of the version between them, and a conflict of the first would bring down
    the second. The place of the first one is kept.
    """
    merged: dict[str, Op] = {}
    for op in ops:
        earlier = merged.get(op.file_id)
        merged[op.file_id] = op if earlier is None else msgspec.structs.replace(op, base_version=earlier.base_version)
    return list(merged.values())


def sending_order(op: Op) -> int:
    """Deletes free paths, moves free and take them, new files take them: in this order nobody meets his own past."""
    if op.type is OpType.DELETE:
        return 0
    return 1 if op.base_version else 2


def chunk(sizes: Sequence[int], *, max_ops: int, max_bytes: int) -> list[range]:
    """The batches, as ranges of places: in order, without gaps, none empty, none above a limit.

    An op that is alone above `max_bytes` gets a batch of its own; whether it can be sent at all is not decided here.
    """
    batches: list[range] = []
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and (place - start == max_ops or total + size > max_bytes):
            batches.append(range(start, place))
            start, total = place, 0
        total += size
    if start < len(sizes):
        batches.append(range(start, len(sizes)))
    return batches


def halves(ops: Sequence[Op]) -> tuple[Sequence[Op], Sequence[Op]]:
    """A refused batch in two, for the search of the op that is to blame; neither is empty."""
    if len(ops) < 2:
        raise ValueError("one op cannot be halved")
    middle = (len(ops) + 1) // 2
    return ops[:middle], ops[middle:]


def queue_key(order: Sequence[int]) -> tuple[float, ...]:
    """Sorts requests: by their number, and what was split out of a batch before the rest of its request."""
    return (*order, math.inf)


# --- client: replies -------------------------------------------------------------------------------------------------


class Next(StrEnum):
    """What a reply means for the batch that it answers."""

    #: done, go on
    ANSWERED = "answered"
    #: the same batch again, later
    RETRY = "retry"
    #: this batch is refused for good: find the op that is to blame
    SPLIT = "split"
    #: this batch is refused for good, and no part of it would fare better
    BURY = "bury"
    #: the caller is refused, not the batch: stop and spend nothing
    STOP = "stop"
    #: it was answered long ago and the answer is gone
    GONE = "gone"
    #: the server expects another batch of this request
    OUT_OF_ORDER = "out of order"


_RETRIED = frozenset({408, 425, 429})
_NOT_ABOUT_THE_BATCH = frozenset({401, 402, 403, 404, 405, 406, 407, 411, 415, 417, 421, 426, 431, 451})
_BURIED_CODES = frozenset({"idempotency_key_reused", "total_batches_changed"})


def after_reply(status: int, code: str | None) -> Next:
    """Retry what may pass, stop where the caller is at fault, split what is refused for good."""
    if status == 200:
        return Next.ANSWERED
    if status == 409:
        return {"out_of_order": Next.OUT_OF_ORDER, "in_progress": Next.RETRY}.get(code or "", Next.SPLIT)
    if status == 410:
        return Next.GONE
    if status in _RETRIED or status >= 500:
        return Next.RETRY
    if status in _NOT_ABOUT_THE_BATCH or status < 400:
        # A redirect too: the address is wrong, and the token must not follow it elsewhere.
        return Next.STOP
    return Next.BURY if code in _BURIED_CODES else Next.SPLIT


RETRIES = Backoff(base_ms=200, cap_ms=30_000, factor=2.0, jitter=1.0)


def wait_ms(attempt: int, retry_after_s: float | None, random: Callable[[], float]) -> int:
    """How long to wait after the `attempt`-th failure: full jitter, and never less than the server asked for."""
    jittered = RETRIES.delay_ms(attempt, random)
    return jittered if retry_after_s is None else math.ceil(retry_after_s * 1000) + jittered


# --- server: the key -------------------------------------------------------------------------------------------------


def content_hash(content: str) -> str:
    """SHA-256 of the text in UTF-8, lower-case hex."""
    return sha256(content.encode()).hexdigest()


def fingerprint(request: PushRequest, hashes: Sequence[str | None]) -> bytes:
    """What the key is bound to: every op in order, each content by its hash, which is known anyway.

    `createdAt` and `message` are not part of it: a client may forget them between two tries.
    """
    ops = [
        (op.op_id, op.type, op.file_id, op.server_path, op.base_version, hashed, op.content_hash)
        for op, hashed in zip(request.ops, hashes, strict=True)
    ]
    return sha256(msgspec.json.encode((request.request_id, request.batch_index, request.total_batches, ops))).digest()


class BatchVerdict(StrEnum):
    """What the server does with a batch."""

    APPLY = "apply"
    REPLAY = "replay"
    KEY_REUSED = "idempotency_key_reused"
    TOTAL_CHANGED = "total_batches_changed"
    OUT_OF_ORDER = "out_of_order"
    EXPIRED = "expired"


class KnownBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What the server remembers of a batch that it answered."""

    fingerprint: bytes
    #: False once it is older than answers are kept
    answer_is_kept: bool


def judge_batch(
    *, index: int, total: int, digest: bytes, known_total: int | None, done: int, known: KnownBatch | None
) -> BatchVerdict:
    """Read from top to bottom: the first line that fits decides.

    `known_total` is None and `done` 0 for a request that the server has never seen.
    """
    if known is not None and known.fingerprint != digest:
        # Before everything else, so that a changed total under a used key is told as what it is.
        return BatchVerdict.TOTAL_CHANGED if known_total != total else BatchVerdict.KEY_REUSED
    if known is not None:
        return BatchVerdict.REPLAY if known.answer_is_kept else BatchVerdict.EXPIRED
    if known_total is not None and known_total != total:
        return BatchVerdict.TOTAL_CHANGED
    if index != done + 1:
        return BatchVerdict.OUT_OF_ORDER
    return BatchVerdict.APPLY


# --- server: one op --------------------------------------------------------------------------------------------------


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    """What the server has of one file."""

    file_id: str
    path: str
    version: int
    deleted: bool
    #: of the last content; also of a tombstone: what it was before
    content_hash: str | None


class OpVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one op: the answer, and the new state of the file where there is one."""

    result: OpResult
    #: None: nothing is written
    after: FileState | None = None


def judge_delete(op: Op, current: FileState | None) -> OpVerdict:
    """Versions decide. Deleting what is not there, or no longer, is done already."""
    if current is None or current.deleted:
        return OpVerdict(result=_applied(op, 0 if current is None else current.version, unchanged=True))
    if op.base_version != current.version:
        return OpVerdict(result=_conflict(op, current))
    gone = msgspec.structs.replace(current, version=current.version + 1, deleted=True)
    return OpVerdict(result=_applied(op, gone.version), after=gone)


def judge_upsert(op: Op, path: str, hashed: str, current: FileState | None, holder: FileState | None) -> OpVerdict:
    """Versions decide. `path` is normalised, `hashed` the hash of the content, `holder` another file on that path.

    A change whose effect is there already, on the version it was made on or as the very next one, is applied and
    unchanged: that is how it finds its way home when its first answer was lost for good. Over a tombstone it restores
    the file, if it was made on the tombstone; who did not know of the delete meets a conflict.
    """
    version = 0 if current is None else current.version
    if _has_it(current, path, hashed) and op.base_version in {version, version - 1}:
        return OpVerdict(result=_applied(op, version, unchanged=True))
    if op.base_version != version:
        return OpVerdict(result=_conflict(op, current))
    if holder is not None:
        return OpVerdict(result=_path_taken(op, holder))
    written = FileState(file_id=op.file_id, path=path, version=version + 1, deleted=False, content_hash=hashed)
    return OpVerdict(result=_applied(op, written.version), after=written)


def _has_it(current: FileState | None, path: str, hashed: str) -> bool:
    return current is not None and not current.deleted and (current.path, current.content_hash) == (path, hashed)


def rejected(op: Op, code: str, detail: str) -> OpResult:
    return OpResult(op_id=op.op_id, file_id=op.file_id, status=Status.REJECTED, code=code, detail=detail)


def _applied(op: Op, version: int, *, unchanged: bool = False) -> OpResult:
    return OpResult(op_id=op.op_id, file_id=op.file_id, status=Status.APPLIED, new_version=version, unchanged=unchanged)


def _conflict(op: Op, current: FileState | None) -> OpResult:
    return OpResult(
        op_id=op.op_id,
        file_id=op.file_id,
        status=Status.CONFLICT,
        code="version",
        server_version=0 if current is None else current.version,
        server_hash=None if current is None or current.deleted else current.content_hash,
        server_deleted=current is not None and current.deleted,
    )


def _path_taken(op: Op, holder: FileState) -> OpResult:
    return OpResult(
        op_id=op.op_id,
        file_id=op.file_id,
        status=Status.CONFLICT,
        code="path_taken",
        detail=f"{holder.path} is there already",
        server_version=holder.version,
        server_hash=holder.content_hash,
        server_file_id=holder.file_id,
    )
