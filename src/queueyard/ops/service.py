"""`Ops`: the verbs of the command line as methods, for programs. `worker.resume` sends what is queued.

    from queueyard.ops import Ops, resume

    with Ops.open(Path("notes"), server="http://127.0.0.1:3001") as ops:
        ops.plan(message="spring cleaning")
        resume(ops)

One object is one scope: a server, a space and a folder, or no folder for ops that come from elsewhere. It is not meant
to be shared between threads.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import os
from pathlib import Path
import random
import socket
from typing import TYPE_CHECKING, Any, Self

import msgspec

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.kernel.errors import UnsafePath
from queueyard.kernel.events import Event, Journal, Kind
from queueyard.kernel.ids import find_id, new_ulid
from queueyard.kernel.settings import Settled
from queueyard.ops.aside import Aside, InThread
from queueyard.ops.errors import NoWorkspace, UnknownItem
from queueyard.ops.events import batch_event
from queueyard.ops.folder import Folder
from queueyard.ops.folder_rules import Shelf, acknowledge
from queueyard.ops.home import jolli_home, open_scope, scope_folder
from queueyard.ops.planning import Plan, Planner
from queueyard.ops.records import Answer, Conflict, DeadLetter, Manifest, NotedOp, Op, Parent, Scope, Status, Tracked
from queueyard.ops.retries import Asking
from queueyard.ops.settings import OpsSettings, load, load_token
from queueyard.ops.store import Queue
from queueyard.ops.transport import HttpTransport, Transport, origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType


class QueueReport(msgspec.Struct, frozen=True, kw_only=True):
    """How much is on its way."""

    scope: Scope
    folder: str
    requests: int
    pending_batches: int
    pending_ops: int
    pending_bytes: int
    dead_letters: int
    conflicts: int
    tracked_files: int
    cursor: int


class Ops:
    """One scope."""

    def __init__(
        self,
        scope: Scope,
        queue: Queue,
        settings: OpsSettings,
        *,
        connect: Callable[[], Transport],
        origin: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        dice: Callable[[], float] = random.random,
        new_id: Callable[[], str] = new_ulid,
        aside: Callable[[], Aside] = InThread,
    ) -> None:
        """Everything that touches the world is passed in; `open` passes the real things."""
        self.scope = scope
        self.queue = queue
        self.settings = settings
        self.origin = origin or {}
        self.clock = clock
        self.journal = Journal(queue.journal_path)
        self.planner = Planner(
            scope=scope, queue=queue, settings=settings, clock=clock, journal=self.journal, new_id=new_id
        )
        self.aside = aside
        self._connect = connect
        self._dice = dice

    @classmethod
    def open(
        cls,
        workspace: Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        settings_from: Path | None = None,
        **flags: Any,
    ) -> Self:
        """The scope of a folder, or of ops without one. Further settings by name: `server=`, `space=`, ...

        `settings_from`: the folder whose `.jolli/ops.toml` counts where there is no workspace. BadSettings lists
        every setting that is wrong.
        """
        variables = os.environ if environment is None else environment
        site = _site(workspace, variables, settings_from, flags)
        settings = site.settled.values
        queue = Queue(open_scope(site.home, site.scope), clock=clock, lock_timeout_s=settings.lock_timeout_s)
        return cls(
            site.scope,
            queue,
            settings,
            connect=lambda: _connect(site, variables),
            origin=site.settled.origin,
            clock=clock,
        )

    @classmethod
    def is_known(cls, workspace: Path | None, *, settings_from: Path | None = None, **flags: Any) -> bool:
        """Whether anything was ever queued or pulled in this scope, on this machine."""
        site = _site(workspace, os.environ, settings_from, flags)
        return scope_folder(site.home, site.scope).is_dir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held between two calls."""

    @contextmanager
    def asking(self, *, retry_for_s: float | None = None) -> Iterator[Asking]:
        """A connection to the server while the block runs."""
        transport = self._connect()
        patience_s = self.settings.retry_for_s if retry_for_s is None else retry_for_s
        try:
            yield Asking(transport=transport, clock=self.clock, retry_for_s=patience_s, dice=self._dice)
        finally:
            transport.close()

    @property
    def folder(self) -> Folder:
        """The workspace. NoWorkspace if this scope has none, or if it is gone."""
        if not self.scope.workspace:
            raise NoWorkspace("these ops belong to no folder", hint="Name one: jolli-ops push FOLDER")
        root = Path(self.scope.workspace)
        return Folder(root, include=self.settings.include, exclude=self.settings.exclude)

    @contextmanager
    def up_to_date(self) -> Iterator[None]:
        """Nobody else plans or sends meanwhile, and everything that was answered or pulled is known.

        A push that was killed may have noted answers without having taken them over, and a pull may have written files
        that it did not live to remember. Who compares the folder with the server would else take those for new.
        """
        with self.queue.locked():
            self.take_over(answer for manifest in self.queue.requests() for answer in self.queue.answers(manifest))
            if coming := self.queue.coming():
                self._take_up(coming)
            yield

    # --- queueing ----------------------------------------------------------------------------------------------------

    def plan(self, *, message: str | None = None, allow_deletes: bool = False, dry_run: bool = False) -> Plan:
        """Queue what the folder has and the server has not; when this returns, it survives a power cut.

        TooManyDeletes if most of the files seem to be gone, unless `allow_deletes`.
        """
        with self.up_to_date():
            return self.planner.plan_folder(self.folder, message=message, allow_deletes=allow_deletes, dry_run=dry_run)

    def plan_ops(self, ops: Iterable[Op], *, message: str | None = None, dry_run: bool = False) -> Plan:
        """Queue ops that were made elsewhere, one per file."""
        return self.planner.plan_ops(ops, message=message, dry_run=dry_run)

    def split(self, manifest: Manifest, index: int, parts: Sequence[Sequence[Op]]) -> Manifest:
        """Queue the ops of a batch as a child request, which goes first; an empty batch takes their place."""
        return self.planner.queue_request(
            parts,
            total=len(parts),
            order=[*manifest.order, index],
            message=manifest.message,
            parent=Parent(request_id=manifest.request_id, batch_index=index),
        )

    def drop(self, request_id: str) -> Manifest:
        """Give up a queued request, with everything that was split out of it."""
        with self.queue.locked():
            manifest = self.queue.request(request_id)
            family = [one for one in self.queue.requests() if one.order[: len(manifest.order)] == manifest.order]
            now = self.clock.now()
            for one in family:
                self.take_over(self.queue.answers(one))
                pending = self.queue.pending(one)
                self.queue.drop(one)
                self.journal.append(*(self.event(now, Kind.CANCELED, one, index) for index in pending))
        return manifest

    # --- answers -----------------------------------------------------------------------------------------------------

    def take_over(self, answers: Iterable[Answer]) -> None:
        """Remember what answers say about files, before the answers go. Doing it twice changes nothing."""
        workspace = self.queue.workspace()
        conflicts = dict(workspace.conflicts)
        # Only a folder has to know which file is at which version; and answers are taken one by one, because all
        # of a large request would not fit into memory so well.
        shelf = Shelf(workspace.tracked) if self.scope.workspace else None
        for op in (op for answer in answers for op in answer.ops if op.result is not None):
            if shelf is not None:
                acknowledge(shelf, op)
            if op.result is not None and op.result.status is Status.CONFLICT:
                conflict = self._conflict(op)
                conflicts.setdefault(conflict.file_id, conflict)
            else:
                conflicts.pop(op.file_id, None)
        after = msgspec.structs.replace(workspace, tracked={} if shelf is None else shelf.by_path, conflicts=conflicts)
        if after != workspace:
            self.queue.save_workspace(after)

    def bury(
        self, op: Op, *, code: str, reason: str, manifest: Manifest, index: int, status: int | None = None
    ) -> None:
        """Put an op where it is seen and not sent."""
        letter = DeadLetter(
            id=f"{manifest.request_id}-{index:06d}-{op.op_id.replace(':', '_')}",
            code=code,
            reason=reason,
            status=status,
            request_id=manifest.request_id,
            batch_index=index,
            at=to_rfc3339(self.clock.now()),
            op=op,
        )
        self.queue.bury(letter)

    def _conflict(self, op: NotedOp) -> Conflict:
        result = op.result
        assert result is not None  # noqa: S101  only ops with a result get here
        return Conflict(
            file_id=result.server_file_id or op.file_id,
            server_path=op.server_path,
            server_version=result.server_version or 0,
            server_hash=result.server_hash,
            server_deleted=result.server_deleted,
            code=result.code or "version",
            detail=result.detail,
            at=to_rfc3339(self.clock.now()),
        )

    def _take_up(self, coming: Iterable[Tracked]) -> None:
        """Remember those files of a pull that died which have the very text that it was bringing."""
        workspace, folder = self.queue.workspace(), self.folder
        shelf = Shelf(workspace.tracked)
        for one in coming:
            known = shelf.get(one.file_id)
            with suppress(UnsafePath):
                if (known and known.version >= one.version) or folder.hash_of(one.server_path) != one.content_hash:
                    continue
                if known is not None and known.server_path != one.server_path:
                    folder.remove(known.server_path, instead_of=known.content_hash)
                shelf.put(one)
        self.queue.save_workspace(msgspec.structs.replace(workspace, tracked=shelf.by_path))
        self.queue.forget_coming()

    # --- dead letters ------------------------------------------------------------------------------------------------

    def dead_letters(self) -> list[DeadLetter]:
        """All of them, oldest first."""
        return self.queue.dead_letters()

    def retry_dead(self, letters: Sequence[DeadLetter]) -> Plan:
        """Queue dead letters again as they are; each leaves `dead/` once it is queued."""
        with self.queue.locked():
            plan = self.plan_ops(letter.op for letter in letters)
            for letter in letters:
                self.queue.unbury(letter)
        return plan

    def drop_dead(self, letters: Sequence[DeadLetter]) -> None:
        with self.queue.locked():
            for letter in letters:
                self.queue.unbury(letter)

    # --- looking -----------------------------------------------------------------------------------------------------

    def status(self) -> QueueReport:
        """How much is queued. Reads only."""
        manifests = self.queue.requests()
        entries = [manifest.batches[index - 1] for manifest in manifests for index in self.queue.pending(manifest)]
        workspace = self.queue.workspace()
        return QueueReport(
            scope=self.scope,
            folder=str(self.queue.folder),
            requests=len(manifests),
            pending_batches=len(entries),
            pending_ops=sum(entry.ops for entry in entries),
            pending_bytes=sum(entry.bytes for entry in entries),
            dead_letters=len(self.queue.dead_letters()),
            conflicts=len(workspace.conflicts),
            tracked_files=len(workspace.tracked),
            cursor=workspace.cursor,
        )

    def event(self, at: datetime, kind: Kind, manifest: Manifest, index: int, **fields: Any) -> Event:
        """One step of one batch of this scope."""
        return batch_event(
            at,
            kind,
            source=self.scope.server,
            space=self.scope.space,
            request_id=manifest.request_id,
            batch_index=index,
            **fields,
        )


class _Site(msgspec.Struct, frozen=True, kw_only=True):
    home: Path
    scope: Scope
    settled: Settled[OpsSettings]


def _site(
    workspace: Path | None, variables: Mapping[str, str], settings_from: Path | None, flags: Mapping[str, Any]
) -> _Site:
    home = jolli_home(variables)
    folder = None if workspace is None else workspace.resolve()
    settled = load(home, folder or settings_from, variables, flags)
    scope = Scope(
        server=origin_of(settled.values.server),
        space=settled.values.space,
        workspace="" if folder is None else str(folder),
    )
    return _Site(home=home, scope=scope, settled=settled)


def _connect(site: _Site, variables: Mapping[str, str]) -> Transport:
    settings = site.settled.values
    return HttpTransport(
        site.scope.server,
        space=site.scope.space,
        token=load_token(settings, variables),
        client_id=socket.gethostname(),
        timeout_s=settings.timeout_s,
        ca_file=Path(settings.ca_file).expanduser() if settings.ca_file else None,
        compress=settings.compress,
        allow_clear_text=settings.allow_clear_text,
    )


def id_of_letter(name: str, known: Collection[str]) -> str:
    """The id that a person means by a part of it. UnknownItem if that fits none, or several."""
    found = find_id(name, known) or [one for one in known if name in one]
    if len(found) != 1:
        told = f"{len(found)} dead letters fit {name!r}" if found else f"no dead letter {name!r}"
        raise UnknownItem(told, hint="List them: jolli-ops dead list")
    return found[0]
