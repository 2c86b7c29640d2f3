"""What can be read from the server's books: files since a cursor, the feed, the audit stream, progress. Writes nothing.

Each answer is of one moment, however many tables it takes. Pages are bounded in entries and in bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.ops.problems import Problem
from queueyard.ops.records import (
    AuditPage,
    Change,
    FeedOp,
    FeedPage,
    OpType,
    PulledFile,
    PullRequest,
    PullResponse,
    Refusal,
    RequestStatus,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.ops.database import Connection, Row
    from queueyard.ops.ledger import Ledger, SpaceName

MOST_FILES_PER_PAGE = 1_000
MOST_ENTRIES_PER_PAGE = 5_000
_PAGE_BYTES = 8 << 20


class SpaceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One space, in numbers."""

    tenant: str
    slug: str
    #: the last number of the feed
    head: int
    #: the last number of the audit stream
    audit_head: int
    #: RFC 3339
    created_at: str


def pull(ledger: Ledger, name: SpaceName, asked: PullRequest) -> PullResponse:
    """The files that changed after a cursor, each as it is now, the one that changed first at first."""
    line = ledger.line
    since = asked.since_cursor
    most = min(asked.limit or MOST_FILES_PER_PAGE, MOST_FILES_PER_PAGE)
    with line.reading():
        space_id, head, _ = _space(line, name)
        # A snapshot for somebody who has nothing yet has no use for tombstones.
        rows = line.rows(
            "SELECT file_id, path, version, deleted, hash, seq, blob_id FROM file "
            "WHERE space_id = ? AND seq > ? AND deleted <= ? ORDER BY seq LIMIT ?",
            (space_id, since, int(since > 0 or asked.tombstones), most + 1),
        )
        files, last = [], since
        for row, content in _with_contents(line, rows[:most]):
            files.append(_pulled(row, content))
            last = row[5]
    more = len(files) < len(rows)
    return PullResponse(new_cursor=last if more else max(head, since), changes=files, more=more)


def feed(ledger: Ledger, name: SpaceName, *, after: int, limit: int, content: bool = False) -> FeedPage:
    """Entries of the change feed behind number `after`, oldest first; with their texts if asked for."""
    line = ledger.line
    most = min(limit, MOST_ENTRIES_PER_PAGE)
    with line.reading():
        space_id, head, _ = _space(line, name)
        rows = line.rows(
            "SELECT seq, op, file_id, version, base_version, path, previous_path, size, request_id, batch_index, "
            "op_id, client_id, user_id, accepted_at, hash, blob_id FROM change "
            "WHERE space_id = ? AND seq > ? ORDER BY seq LIMIT ?",
            (space_id, after, most),
        )
        texts = _with_contents(line, rows) if content else ((row, None) for row in rows)
        entries = [_change(name.slug, row, text) for row, text in texts]
    return FeedPage(entries=entries, last=entries[-1].seq if entries else after, head=head)


def audit(ledger: Ledger, name: SpaceName, *, after: int, limit: int) -> AuditPage:
    """Entries of the audit stream behind number `after`, oldest first."""
    line = ledger.line
    with line.reading():
        space_id, _, head = _space(line, name)
        rows = line.rows(
            "SELECT seq, status, code, detail, type, file_id, path, base_version, server_version, request_id, "
            "batch_index, op_id, client_id, user_id, at FROM audit WHERE space_id = ? AND seq > ? "
            "ORDER BY seq LIMIT ?",
            (space_id, after, min(limit, MOST_ENTRIES_PER_PAGE)),
        )
    entries = [_refusal(name.slug, row) for row in rows]
    return AuditPage(entries=entries, last=entries[-1].seq if entries else after, head=head)


def request_status(ledger: Ledger, name: SpaceName, request_id: str) -> RequestStatus:
    """How far a request is. Problem 404 if the server has never seen a batch of it."""
    line = ledger.line
    with line.reading():
        space_id, _, _ = _space(line, name)
        rows = line.rows(
            "SELECT total, done, created_at, updated_at FROM request WHERE space_id = ? AND request_id = ?",
            (space_id, request_id),
        )
    if not rows:
        raise Problem("unknown_request", f"no request {request_id!r} in space {name.slug!r}")
    total, done, created_at, updated_at = rows[0]
    return RequestStatus(
        request_id=request_id,
        total_batches=total,
        done_batches=done,
        expected_index=done + 1,
        complete=done == total,
        created_at=created_at,
        updated_at=updated_at,
    )


def spaces(ledger: Ledger) -> list[SpaceReport]:
    """All spaces of all tenants."""
    rows = ledger.line.rows("SELECT tenant, slug, seq, audit_seq, created_at FROM space ORDER BY tenant, slug")
    return [
        SpaceReport(tenant=tenant, slug=slug, head=head, audit_head=audit_head, created_at=created_at)
        for tenant, slug, head, audit_head, created_at in rows
    ]


def check_space(ledger: Ledger, name: SpaceName) -> None:
    """Problem 404 if there is no such space."""
    _space(ledger.line, name)


def _space(line: Connection, name: SpaceName) -> tuple[int, int, int]:
    """Id, head of the feed, head of the audit stream."""
    rows = line.rows("SELECT id, seq, audit_seq FROM space WHERE tenant = ? AND slug = ?", (name.tenant, name.slug))
    if not rows:
        raise Problem("unknown_space", f"no space {name.slug!r}")
    space_id, seq, audit_seq = rows[0]
    return space_id, seq, audit_seq


def _with_contents(line: Connection, rows: list[Row]) -> Iterator[tuple[Row, str | None]]:
    """Each row with its text, whose number comes last in it, until the page is full; at least one."""
    size = 0
    for row in rows:
        found = line.rows("SELECT content FROM blob WHERE id = ?", (row[-1],)) if row[-1] is not None else []
        content = bytes(found[0][0]) if found else None
        size += len(content or b"")
        if size > _PAGE_BYTES and size > len(content or b""):
            return
        yield row, None if content is None else content.decode()


def _pulled(row: Row, content: str | None) -> PulledFile:
    file_id, path, version, deleted, hashed, _, _ = row
    return PulledFile(
        file_id=file_id,
        server_path=path,
        version=version,
        deleted=bool(deleted),
        content=msgspec.UNSET if deleted or content is None else content,
        content_hash=msgspec.UNSET if deleted or hashed is None else bytes(hashed).hex(),
    )


def _change(space: str, row: Row, content: str | None) -> Change:
    (seq, op, file_id, version, base, path, previous, size, request_id, index, op_id, client, user, at, hashed, _) = row
    return Change(
        seq=seq,
        space=space,
        op=FeedOp(op),
        file_id=file_id,
        version=version,
        base_version=base,
        server_path=path,
        previous_path=previous,
        content_hash=None if hashed is None else bytes(hashed).hex(),
        size=size,
        request_id=request_id,
        batch_index=index,
        op_id=op_id,
        client_id=client,
        user_id=user,
        accepted_at=at,
        content=content,
    )


def _refusal(space: str, row: Row) -> Refusal:
    (seq, status, code, detail, type_, file_id, path, base, theirs, request_id, index, op_id, client, user, at) = row
    return Refusal(
        seq=seq,
        space=space,
        status=Status(status),
        code=code,
        detail=detail,
        type=OpType(type_),
        file_id=file_id,
        server_path=path,
        base_version=base,
        server_version=theirs,
        request_id=request_id,
        batch_index=index,
        op_id=op_id,
        client_id=client,
        user_id=user,
        at=at,
    )
