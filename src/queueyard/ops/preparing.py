"""From the bytes of a request body to a batch that only has to be applied: everything that needs no database. Pure.

What is wrong with the batch as a whole raises a Problem and nothing of it is applied. What is wrong with one op is a
rejection of that op in the answer; the others go on.
"""

from __future__ import annotations

from hashlib import sha256
import re
from typing import TypeVar

import msgspec

from queueyard.ops.errors import BadServerPath
from queueyard.ops.names import path_key, server_path
from queueyard.ops.problems import Problem
from queueyard.ops.records import FILE_ID_PATTERN, Limits, Op, OpResult, OpType, PushRequest
from queueyard.ops.rules import fingerprint, rejected

_T = TypeVar("_T")
_FILE_ID = re.compile(FILE_ID_PATTERN)
_DECODER = msgspec.json.Decoder(PushRequest)


class PreparedOp(msgspec.Struct, frozen=True, gc=False):
    """One op, checked as far as it can be without knowing the files."""

    op: Op
    #: normalised; empty for a rejected op
    path: str
    #: which paths count as the same
    key: str
    #: the content in UTF-8, and its SHA-256 in hex; empty for a delete
    content: bytes
    content_hash: str
    #: not None: this op goes no further
    rejection: OpResult | None = None


class PreparedBatch(msgspec.Struct, frozen=True, kw_only=True):
    request: PushRequest
    ops: list[PreparedOp]
    #: what the key of the batch is bound to
    fingerprint: bytes
    #: of the body, after decompression
    size: int


def prepare(body: bytes, limits: Limits) -> PreparedBatch:
    """The batch in a body. Problem, 400 to 422, if it is none that could ever be applied."""
    request = decode(body, _DECODER)
    if not 1 <= request.batch_index <= request.total_batches:
        raise Problem(
            "batch_index_out_of_range", f"batchIndex {request.batch_index} of {request.total_batches} batches"
        )
    if len(request.ops) > limits.max_ops:
        raise Problem("too_many_ops", f"{len(request.ops)} ops, at most {limits.max_ops}", maxOps=limits.max_ops)
    if len({op.op_id for op in request.ops}) != len(request.ops):
        raise Problem("duplicate_op_id")
    ops = [_prepared(op, limits) for op in request.ops]
    digest = fingerprint(request, [one.content_hash or None for one in ops])
    return PreparedBatch(request=request, ops=ops, fingerprint=digest, size=len(body))


def decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """A body as what it should be. Problem 400 if it is no JSON, 422 if it is another shape."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as fault:
        raise Problem("invalid_request", str(fault)) from fault
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise Problem("malformed_json", str(fault)) from fault
    except RecursionError as fault:
        raise Problem("malformed_json", "nested too deeply") from fault


def _prepared(op: Op, limits: Limits) -> PreparedOp:
    content = b"" if op.content is None else op.content.encode()
    hashed = "" if op.content is None else sha256(content).hexdigest()
    try:
        path = server_path(op.server_path, max_bytes=limits.max_path_bytes)
    except BadServerPath as fault:
        return PreparedOp(op, "", "", content, hashed, rejected(op, fault.code, str(fault)))
    return PreparedOp(op, path, path_key(path), content, hashed, _rejection_of(op, content, hashed, limits))


def _rejection_of(op: Op, content: bytes, hashed: str, limits: Limits) -> OpResult | None:
    if not _FILE_ID.match(op.file_id):
        return rejected(op, "bad_file_id", "letters, digits, '-', '_' and single dots, at most 128 of them")
    if op.type is OpType.DELETE:
        return None if op.content is None else rejected(op, "content_unexpected", "a delete has no content")
    if op.content is None:
        return rejected(op, "content_missing", "an upsert carries the whole content")
    if len(content) > limits.max_content_bytes:
        detail = f"{op.server_path} has {len(content)} bytes, at most {limits.max_content_bytes} are taken"
        return rejected(op, "content_too_large", detail)
    if op.content_hash is not None and op.content_hash != hashed:
        return rejected(op, "bad_hash", f"the SHA-256 of the content is {hashed}")
    return None
