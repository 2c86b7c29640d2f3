"""Every way in which the server refuses a request: status, code and sentence (RFC 9457, `application/problem+json`).

A code never changes its meaning. `CATALOGUE` is the whole list; the OpenAPI document is made from it, and nothing else
is ever answered.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """One way to refuse."""

    status: int
    code: str
    #: the same words each time
    title: str


_KINDS = (
    Kind(400, "malformed_json", "The body is not JSON in UTF-8"),
    Kind(400, "malformed_encoding", "The body is not what Content-Encoding says"),
    Kind(400, "malformed_header", "A header makes no sense"),
    Kind(400, "malformed_query", "A parameter of the address makes no sense"),
    Kind(401, "token_required", "A token is required"),
    Kind(401, "token_invalid", "This token is not, or no longer, valid"),
    Kind(403, "scope_missing", "The token does not allow this"),
    Kind(404, "unknown_space", "There is no such space"),
    Kind(404, "unknown_request", "There is no such request"),
    Kind(404, "unknown_route", "There is nothing at this address"),
    Kind(405, "method_not_allowed", "Not with this method"),
    Kind(408, "body_timeout", "The body took too long to arrive"),
    Kind(409, "in_progress", "The same batch is being applied right now"),
    Kind(409, "out_of_order", "Another batch of this request comes first"),
    Kind(410, "expired", "The batch was answered long ago and its answer is no longer kept"),
    Kind(413, "body_too_large", "The body is larger than the server takes"),
    Kind(413, "too_many_ops", "The batch has more ops than the server takes"),
    Kind(415, "unsupported_media_type", "The body must be application/json"),
    Kind(415, "unsupported_encoding", "The server does not know this Content-Encoding"),
    Kind(421, "forbidden_host", "This server is not known by that name"),
    Kind(422, "invalid_request", "The request does not have the shape that it should have"),
    Kind(422, "batch_index_out_of_range", "batchIndex counts from 1 to totalBatches"),
    Kind(422, "total_batches_changed", "totalBatches is not what it was in the batches before"),
    Kind(422, "duplicate_op_id", "Two ops of the batch have the same opId"),
    Kind(422, "idempotency_key_reused", "Another batch was sent under this requestId and batchIndex"),
    Kind(429, "rate_limited", "Too many requests with this token"),
    Kind(500, "internal", "Something is wrong with the server; the log says what"),
    Kind(503, "overloaded", "The server has too much to do"),
    Kind(503, "storage_failed", "The server cannot write"),
    Kind(503, "shutting_down", "The server is going down"),
)
CATALOGUE = {kind.code: kind for kind in _KINDS}

#: why a single op is rejected, in the answer to its batch
REJECTIONS = {
    "bad_file_id": "fileId has a character that it must not have, or is too long",
    "bad_path": "serverPath is not a relative path of safe names",
    "path_too_long": "serverPath is longer than the server takes",
    "reserved_path": "serverPath leads into a folder that belongs to another tool",
    "content_missing": "an upsert without content",
    "content_unexpected": "a delete with content",
    "content_too_large": "the content is larger than the server takes",
    "bad_hash": "contentHash is not the SHA-256 of the content",
}
#: why a single op meets a conflict
CONFLICTS = {
    "version": "baseVersion is not the version that the server has",
    "path_taken": "another file has this path, or one that differs only in case, or one of them would be a folder",
}


class Problem(Exception):
    """A request that is refused. `retry_after_s` becomes a header, `facts` further members of the document."""

    def __init__(self, code: str, detail: str | None = None, *, retry_after_s: int | None = None, **facts: Any) -> None:
        self.kind = CATALOGUE[code]
        super().__init__(detail or self.kind.title)
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.facts = facts

    @property
    def status(self) -> int:
        return self.kind.status

    def body(self) -> bytes:
        """The problem document."""
        told: dict[str, Any] = {
            "type": f"urn:queueyard:ops:{self.kind.code}",
            "title": self.kind.title,
            "status": self.kind.status,
            "code": self.kind.code,
        }
        told |= {"detail": self.detail} if self.detail else {}
        return msgspec.json.encode(told | self.facts)
