"""A client's home: requests that are on their way, dead letters, conflicts. A server: what it applied and refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.ops.home import known_scopes
from queueyard.ops.records import DEFAULT_SPACE, AuditPage, FeedPage, Scope
from queueyard.ops.retries import refused
from queueyard.ops.store import Queue
from queueyard.ops.transport import HttpTransport
from queueyard.yard.details.parts import Part, Wanted, part, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.ops.records import Change, Conflict, DeadLetter, Manifest, Refusal

_P = TypeVar("_P", FeedPage, AuditPage)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMEOUT_S = 3.0
#: of a server's feeds the last so many entries are looked through
_RECENT = 500


class RequestRow(msgspec.Struct, frozen=True, kw_only=True):
    request: str
    #: the folder that it comes from, or (ops)
    folder: str
    space: str
    #: RFC 3339, as all times here
    at: str
    batches: int
    left: int
    ops_left: int
    bytes_left: int
    message: str | None


class DeadRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    path: str
    kind: str
    code: str
    reason: str
    at: str


class ConflictRow(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    folder: str
    code: str
    reason: str | None
    at: str


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True):
    space: str
    number: int
    #: created, updated or deleted
    kind: str
    path: str
    version: int
    bytes: int
    client: str | None
    at: str


class RefusalRow(msgspec.Struct, frozen=True, kw_only=True):
    space: str
    number: int
    #: conflict or rejected
    state: str
    code: str
    path: str
    reason: str | None
    client: str | None
    at: str


class HomeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What a client has to say."""

    requests: Part[RequestRow]
    dead: Part[DeadRow]
    conflicts: Part[ConflictRow]


class ServerDetails(msgspec.Struct, frozen=True, kw_only=True):
    changes: Part[ChangeRow]
    refusals: Part[RefusalRow]


def look(at: str, wanted: Wanted) -> HomeDetails | ServerDetails:
    return look_at_server(at, wanted) if "://" in at else look_at_home(at, wanted)


def look_at_home(at: str, wanted: Wanted) -> HomeDetails:
    scopes = [(Queue(folder), scope) for folder, scope in known_scopes(Path(at))]
    return HomeDetails(
        requests=part((_request_row(queue, scope, one) for queue, scope in scopes for one in queue.requests()), wanted),
        dead=part((_dead_row(letter) for queue, _ in scopes for letter in queue.dead_letters()), wanted),
        conflicts=part(
            (_conflict_row(scope, one) for queue, scope in scopes for one in queue.workspace().conflicts.values()),
            wanted,
        ),
    )


def look_at_server(at: str, wanted: Wanted) -> ServerDetails:
    spaces = [name.strip() for name in urlsplit(at).fragment.split(",") if name.strip()] or [DEFAULT_SPACE]
    changes: list[Change] = []
    refusals: list[Refusal] = []
    for space in spaces:
        line = HttpTransport(at, space=space, token=os.environ.get("JOLLI_TOKEN"), timeout_s=_TIMEOUT_S)
        try:
            changes += _newest(line, "/v1/sync/feed", FeedPage).entries
            refusals += _newest(line, "/v1/sync/audit", AuditPage).entries
        finally:
            line.close()
    changes.sort(key=lambda one: (one.accepted_at, one.seq), reverse=True)
    refusals.sort(key=lambda one: (one.at, one.seq), reverse=True)
    return ServerDetails(changes=part(_change_rows(changes), wanted), refusals=part(_refusal_rows(refusals), wanted))


def _newest(line: HttpTransport, path: str, kind: type[_P]) -> _P:
    head = _page(line, f"{path}?after=0&limit=1", kind).head
    return _page(line, f"{path}?after={max(0, head - _RECENT)}&limit={_RECENT}", kind)


def _page(line: HttpTransport, path: str, kind: type[_P]) -> _P:
    reply = line.exchange("GET", path)
    if reply.status != 200:
        raise refused(reply)
    return msgspec.json.decode(reply.body, type=kind)


def _request_row(queue: Queue, scope: Scope, one: Manifest) -> RequestRow:
    left = [one.batches[index - 1] for index in queue.pending(one)]
    return RequestRow(
        request=one.request_id,
        folder=scope.workspace or "(ops)",
        space=scope.space,
        at=to_rfc3339(_EPOCH + timedelta(milliseconds=one.created_at)),
        batches=one.total_batches,
        left=len(left),
        ops_left=sum(batch.ops for batch in left),
        bytes_left=sum(batch.bytes for batch in left),
        message=shortened(one.message) if one.message else None,
    )


def _dead_row(letter: DeadLetter) -> DeadRow:
    return DeadRow(
        id=letter.id,
        path=letter.op.server_path,
        kind=letter.op.type,
        code=letter.code,
        reason=shortened(letter.reason),
        at=letter.at,
    )


def _conflict_row(scope: Scope, one: Conflict) -> ConflictRow:
    return ConflictRow(path=one.server_path, folder=scope.workspace, code=one.code, reason=one.detail, at=one.at)


def _change_rows(changes: list[Change]) -> Iterator[ChangeRow]:
    kinds = {"c": "created", "u": "updated", "d": "deleted"}
    for one in changes:
        yield ChangeRow(
            space=one.space,
            number=one.seq,
            kind=kinds[one.op],
            path=one.server_path,
            version=one.version,
            bytes=one.size,
            client=one.client_id,
            at=one.accepted_at,
        )


def _refusal_rows(refusals: list[Refusal]) -> Iterator[RefusalRow]:
    for one in refusals:
        yield RefusalRow(
            space=one.space,
            number=one.seq,
            state=one.status,
            code=one.code,
            path=one.server_path,
            reason=one.detail,
            client=one.client_id,
            at=one.at,
        )
