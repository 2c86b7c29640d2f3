"""The OpenAPI document, made from the records and the catalogue of problems, so that it cannot say anything else."""

from __future__ import annotations

from typing import Any

import msgspec

from queueyard import __version__
from queueyard.ops.problems import CATALOGUE, CONFLICTS, REJECTIONS
from queueyard.ops.records import (
    LARGEST_NUMBER,
    PROBLEM_TYPE,
    REQUEST_ID_PATTERN,
    SPACE_HEADER,
    AuditPage,
    FeedPage,
    Limits,
    PullRequest,
    PullResponse,
    PushRequest,
    PushResponse,
    RequestStatus,
)

_SHAPES = (PushRequest, PushResponse, PullRequest, PullResponse, RequestStatus, Limits, FeedPage, AuditPage)

_EVERYWHERE = (
    "malformed_header",
    "token_required",
    "token_invalid",
    "forbidden_host",
    "rate_limited",
    "internal",
    "overloaded",
    "storage_failed",
    "shutting_down",
    "method_not_allowed",
)
_IN_A_SPACE = ("scope_missing", "unknown_space")
_WITH_A_BODY = (
    "malformed_json",
    "malformed_encoding",
    "body_timeout",
    "body_too_large",
    "unsupported_media_type",
    "unsupported_encoding",
    "invalid_request",
)
_OF_A_PUSH = (
    "in_progress",
    "out_of_order",
    "expired",
    "too_many_ops",
    "batch_index_out_of_range",
    "total_batches_changed",
    "duplicate_op_id",
    "idempotency_key_reused",
)
_SPACE = {
    "name": SPACE_HEADER,
    "in": "header",
    "required": False,
    "description": "The slug of the space; without it the default space.",
    "schema": {"type": "string"},
}


def document() -> dict[str, Any]:
    """The whole document; the same each time."""
    _, components = msgspec.json.schema_components(_SHAPES, ref_template="#/components/schemas/{name}")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "jolli-ops",
            "version": __version__,
            "description": "Batches of file operations, each applied once however often it is sent. "
            "The key of a batch is (tenant, space, requestId, batchIndex), bound to its payload.",
        },
        "paths": _paths(),
        "components": {
            "schemas": {**components, "Problem": _problem_schema()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _paths() -> dict[str, Any]:
    after = _query("after", 0, LARGEST_NUMBER, 0, "Only entries behind this number.")
    limit = _query("limit", 1, LARGEST_NUMBER, 1_000, "At most so many; the server may give fewer.")
    content = {
        "name": "content",
        "in": "query",
        "description": "Whether each entry carries its text.",
        "schema": {"type": "string", "enum": ["true", "false"], "default": "false"},
    }
    request_id = {
        "name": "requestId",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": REQUEST_ID_PATTERN.replace(r"\\Z", "$")},
    }
    feed_codes = (*_IN_A_SPACE, "malformed_query")
    return {
        "/v1/sync/push": {
            "post": _operation(
                "Apply one batch",
                "PushResponse",
                codes=(*_IN_A_SPACE, *_WITH_A_BODY, *_OF_A_PUSH),
                body="PushRequest",
                detail="One result per op, in order: applied, conflict or rejected. "
                f"Codes of conflicts: {_list(CONFLICTS)}. Codes of rejections: {_list(REJECTIONS)}.",
            )
        },
        "/v1/sync/pull": {
            "post": _operation(
                "Files that changed since a cursor",
                "PullResponse",
                codes=(*_IN_A_SPACE, *_WITH_A_BODY),
                body="PullRequest",
            )
        },
        "/v1/sync/requests/{requestId}": {
            "get": _operation(
                "How far a request is",
                "RequestStatus",
                codes=(*_IN_A_SPACE, "unknown_request", "unknown_route"),
                parameters=[request_id],
            )
        },
        "/v1/sync/limits": {"get": _operation("What the server takes", "Limits", codes=_IN_A_SPACE[:1])},
        "/v1/sync/feed": {
            "get": _operation("The change feed", "FeedPage", codes=feed_codes, parameters=[after, limit, content])
        },
        "/v1/sync/audit": {
            "get": _operation("Conflicts and rejections", "AuditPage", codes=feed_codes, parameters=[after, limit])
        },
    }


def _operation(
    summary: str,
    answer: str,
    *,
    codes: tuple[str, ...],
    body: str | None = None,
    parameters: list[dict[str, Any]] | None = None,
    detail: str = "",
) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": summary,
        "parameters": [_SPACE, *(parameters or [])],
        "responses": {"200": _answer(answer)} | _problems((*_EVERYWHERE, *codes)),
    }
    told |= {"description": detail} if detail else {}
    if body:
        reference = {"schema": {"$ref": f"#/components/schemas/{body}"}}
        told["requestBody"] = {"required": True, "content": {"application/json": reference}}
    return told


def _answer(shape: str) -> dict[str, Any]:
    return {
        "description": "Done.",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{shape}"}}},
    }


def _problems(codes: tuple[str, ...]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(CATALOGUE[code].status, []).append(code)
    return {
        str(status): {
            "description": "; ".join(f"{code}: {CATALOGUE[code].title}" for code in sorted(of_status)),
            "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, of_status in sorted(by_status.items())
    }


def _problem_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["type", "title", "status", "code"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "code": {"type": "string", "enum": sorted(CATALOGUE)},
            "detail": {"type": "string"},
            "expectedIndex": {"type": "integer", "description": "out_of_order: the batch that comes next"},
        },
    }


def _query(name: str, least: int, most: int, default: int, told: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "description": told,
        "schema": {"type": "integer", "minimum": least, "maximum": most, "default": default},
    }


def _list(codes: dict[str, str]) -> str:
    return ", ".join(f"{code} ({told})" for code, told in codes.items())
