"""A change in ops, told as the shared Event. Pure.

Server: each entry of the change feed and of the audit stream is one event of one op. Client: each step of a batch is
one event of that batch. The id of an event follows from what it tells, so that reading a segment twice is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queueyard.kernel.clock import from_rfc3339
from queueyard.kernel.events import Event, Kind, System, make_event
from queueyard.ops.records import Change, Refusal, Status, batch_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime


def change_events(entries: Iterable[Change], *, source: str) -> Iterator[Event]:
    """Succeeded: the op was applied. The item is the op: `<requestId>:<batchIndex>:<opId>`."""
    for entry in entries:
        data = {
            "seq": entry.seq,
            "op": entry.op,
            "file": entry.file_id,
            "path": entry.server_path,
            "version": entry.version,
            "bytes": entry.size,
        }
        yield _of_op(entry, Kind.SUCCEEDED, entry.accepted_at, source=source, data=data)


def refusal_events(entries: Iterable[Refusal], *, source: str) -> Iterator[Event]:
    """Conflicted or failed; why stands in the reason."""
    for entry in entries:
        kind = Kind.CONFLICTED if entry.status is Status.CONFLICT else Kind.FAILED
        data = {"file": entry.file_id, "path": entry.server_path, "base_version": entry.base_version}
        yield _of_op(entry, kind, entry.at, source=source, data=data, reason=entry.code)


def batch_event(
    at: datetime,
    kind: Kind,
    *,
    source: str,
    space: str,
    request_id: str,
    batch_index: int,
    attempt: int = 1,
    reason: str | None = None,
    **data: Any,
) -> Event:
    """One step of one batch, as the client saw it."""
    return make_event(
        at,
        system=System.OPS,
        queue=space,
        item=batch_id(request_id, batch_index),
        kind=kind,
        change=f"client:{attempt}",
        source=source,
        attempt=attempt,
        group=request_id,
        reason=reason,
        data=data,
    )


def _of_op(
    entry: Change | Refusal, kind: Kind, at: str, *, source: str, data: dict[str, Any], reason: str | None = None
) -> Event:
    return make_event(
        from_rfc3339(at),
        system=System.OPS,
        queue=entry.space,
        item=f"{batch_id(entry.request_id, entry.batch_index)}:{entry.op_id}",
        kind=kind,
        change=str(entry.seq),
        source=source,
        group=entry.request_id,
        actor=entry.client_id or entry.user_id,
        reason=reason,
        data=data,
    )
