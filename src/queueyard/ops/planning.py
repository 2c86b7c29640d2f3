"""From a folder, or from ops that were made elsewhere, to a queued request. When it is queued, it lasts.

A plan is made in two passes: the first knows paths, hashes and sizes and decides about batches; the second reads the
contents batch by batch, so that memory holds a few batches and never the whole request.
"""

from __future__ import annotations

from collections.abc import Callable
import os
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.clock import Clock
from queueyard.kernel.events import Journal, Kind
from queueyard.ops.errors import InvalidOps, TooManyDeletes
from queueyard.ops.events import batch_event
from queueyard.ops.folder import Folder, Skipped
from queueyard.ops.folder_rules import Draft, deletes_too_much, drafts, expected
from queueyard.ops.records import Manifest, Op, OpType, Parent, PushRequest, Scope, Workspace
from queueyard.ops.rules import chunk, coalesce, content_hash, sending_order
from queueyard.ops.settings import OpsSettings
from queueyard.ops.store import EncodedBatch, Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from queueyard.ops.folder import Scan

#: what an op has in JSON besides its content and its path, generously
_OP_FRAME_BYTES = 320


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What was queued, or would be."""

    #: None: there was nothing to queue, or it was only asked
    request_id: str | None
    upserts: int
    deletes: int
    batches: int
    #: of the batches as they are sent; before they are queued, roughly
    bytes: int
    #: in the order of sending
    paths: list[str]
    #: files that cannot be sent
    skipped: list[Skipped] = []
    #: paths that wait for somebody's decision: see `conflicts` and `dead list`
    held: list[str] = []

    @property
    def ops(self) -> int:
        return self.upserts + self.deletes


class Planner(msgspec.Struct, frozen=True, kw_only=True):
    """Plans for one scope."""

    scope: Scope
    queue: Queue
    settings: OpsSettings
    clock: Clock
    journal: Journal
    #: a new id for a request or a file, never used before
    new_id: Callable[[], str]

    def plan_folder(self, folder: Folder, *, message: str | None, allow_deletes: bool, dry_run: bool) -> Plan:
        """Queue what the folder has and the server has not. TooManyDeletes if most files seem to be gone."""
        with self.queue.locked():
            workspace = self.queue.workspace()
            now_ns = int(self.clock.now().timestamp() * 1e9)
            scan = folder.scan(workspace.seen, max_bytes=self.settings.max_file_bytes, now_ns=now_ns)
            wanted = drafts(expected(workspace.tracked, self.queue.on_their_way()), scan.files)
            wanted, held = self._without_held(wanted, workspace, folder)
            self._refuse_many_deletes(wanted, workspace, allow_deletes=allow_deletes)
            planned = self._plan_drafts(wanted, scan, folder, message=message, dry_run=dry_run)
            if not dry_run and scan.seen != workspace.seen:
                self.queue.save_workspace(msgspec.structs.replace(workspace, seen=scan.seen))
        return msgspec.structs.replace(planned, skipped=scan.skipped, held=held)

    def plan_ops(self, ops: Iterable[Op], *, message: str | None = None, dry_run: bool = False) -> Plan:
        """Queue ops that were made elsewhere, one per file."""
        wanted = coalesce(ops)
        sizes = [len(_encode(op)) + 1 for op in wanted]
        with self.queue.locked():
            return self._plan(wanted, sizes, load=lambda op: op, message=message, dry_run=dry_run)

    def plan_lazily(self, ops: Sequence[Op], sizes: Sequence[int], load: Callable[[Op], Op]) -> Plan:
        """The same for more than fits into memory: `ops` have no content yet, `load` gives it, batch by batch.

        `sizes`: bytes of each op as JSON. Each file may occur once.
        """
        with self.queue.locked():
            return self._plan(ops, sizes, load=load, message=None, dry_run=False)

    def queue_request(
        self,
        batches: Iterable[Sequence[Op]],
        *,
        total: int,
        order: list[int] | None = None,
        message: str | None = None,
        parent: Parent | None = None,
    ) -> Manifest:
        """Queue batches as one request. The caller holds the lock of the queue."""
        request_id = self.new_id()
        now = self.clock.now()
        created_at = int(now.timestamp() * 1000)

        def encoded() -> Iterator[EncodedBatch]:
            for index, ops in enumerate(batches, 1):
                request = PushRequest(
                    request_id=request_id,
                    created_at=created_at,
                    batch_index=index,
                    total_batches=total,
                    message=message,
                    ops=list(ops),
                )
                # With the newline withheld, the server can understand the batch before it may apply it.
                yield EncodedBatch(body=_encode(request) + b"\n", ops=len(ops))

        manifest = self.queue.enqueue(
            request_id, encoded(), created_at=created_at, order=order, message=message, parent=parent
        )
        said: dict[str, Any] = {"message": message} if message else {}
        told = (
            batch_event(
                now,
                Kind.QUEUED,
                source=self.scope.server,
                space=self.scope.space,
                request_id=request_id,
                batch_index=index,
                ops=entry.ops,
                bytes=entry.bytes,
                **said,
            )
            for index, entry in enumerate(manifest.batches, 1)
        )
        self.journal.append(*told)
        return manifest

    def _plan_drafts(
        self, wanted: Sequence[Draft], scan: Scan, folder: Folder, *, message: str | None, dry_run: bool
    ) -> Plan:
        ops = [
            Op(
                op_id=f"op-{number:06d}",
                type=draft.type,
                file_id=draft.file_id or self.new_id(),
                server_path=draft.server_path,
                base_version=draft.base_version,
                content_hash=draft.content_hash,
            )
            for number, draft in enumerate(wanted, 1)
        ]

        def load(op: Op) -> Op:
            if op.type is OpType.DELETE:
                return op
            # It may have changed since the scan; what is read now is what is sent, under its own hash.
            content = folder.read(scan.spelled[op.server_path])
            return msgspec.structs.replace(op, content=content, content_hash=content_hash(content))

        sizes = [_OP_FRAME_BYTES + len(draft.server_path.encode()) + draft.encoded_bytes for draft in wanted]
        return self._plan(ops, sizes, load=load, message=message, dry_run=dry_run)

    def _plan(
        self,
        ops: Sequence[Op],
        sizes: Sequence[int],
        *,
        load: Callable[[Op], Op],
        message: str | None,
        dry_run: bool,
    ) -> Plan:
        ranked = sorted(range(len(ops)), key=lambda place: sending_order(ops[place]))
        ranges = chunk(
            [sizes[place] for place in ranked], max_ops=self.settings.batch_ops, max_bytes=self.settings.batch_bytes
        )
        deletes = sum(op.type is OpType.DELETE for op in ops)
        plan = Plan(
            request_id=None,
            upserts=len(ops) - deletes,
            deletes=deletes,
            batches=len(ranges),
            bytes=sum(sizes),
            paths=[ops[place].server_path for place in ranked],
        )
        if dry_run or not ops:
            return plan
        batches = ([load(ops[ranked[place]]) for place in places] for places in ranges)
        manifest = self.queue_request(batches, total=len(ranges), message=message)
        return msgspec.structs.replace(plan, request_id=manifest.request_id, bytes=manifest.bytes)

    def _without_held(
        self, wanted: Sequence[Draft], workspace: Workspace, folder: Folder
    ) -> tuple[list[Draft], list[str]]:
        """Leave out what waits for a decision, and deletes of files that are merely not looked at any more."""
        in_conflict = {conflict.server_path for conflict in workspace.conflicts.values()} | set(workspace.conflicts)
        dead = {(one.op.server_path, one.op.content_hash) for one in self.queue.dead_letters()}
        left, held = [], []
        for draft in wanted:
            if {draft.server_path, draft.file_id} & in_conflict or (draft.server_path, draft.content_hash) in dead:
                held.append(draft.server_path)
            elif draft.type is OpType.UPSERT or not os.path.lexists(folder.root / draft.server_path):
                left.append(draft)
        return left, held

    def _refuse_many_deletes(self, wanted: Sequence[Draft], workspace: Workspace, *, allow_deletes: bool) -> None:
        deletes = sum(draft.type is OpType.DELETE for draft in wanted)
        if deletes_too_much(deletes, len(workspace.tracked)) and not allow_deletes:
            raise TooManyDeletes(
                f"{deletes} of {len(workspace.tracked)} files are gone from {self.scope.workspace}",
                hint="If that is meant: --allow-deletes",
            )


def read_ops(raw: bytes) -> list[Op]:
    """Ops from JSON: an array, an object with `ops`, one op, or one per line. InvalidOps says what makes no sense."""
    try:
        try:
            whole = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            return msgspec.json.Decoder(Op).decode_lines(raw)
        if isinstance(whole, dict):
            whole = whole.get("ops", [whole])
        return msgspec.convert(whole, list[Op])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as fault:
        raise InvalidOps(
            f"these ops make no sense: {fault}",
            hint='One looks so: {"opId":"1","type":"upsert","fileId":"F1","serverPath":"a.md","baseVersion":0,'
            '"content":"hi"}',
        ) from fault


def _encode(value: Op | PushRequest) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as fault:
        raise InvalidOps("an op holds what is no text", hint="Send UTF-8, without lone surrogates.") from fault
