"""The changes of others, brought into the folder; and the decisions about what was changed on both sides.

Never overwrites or removes a local edit: where both sides changed, the local file stays as it is, the server's text is
put beside it as a conflict copy, and the file is not pushed until somebody says which one counts. The cursor moves
only by what was pulled, never by the answer to a push, which knows nothing of what others wrote in between.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import QueueyardError, UnsafePath, UsageFault
from queueyard.ops.errors import BadServerPath, UnknownItem
from queueyard.ops.folder_rules import Pull, Shelf, is_echo, judge_pull
from queueyard.ops.ignores import conflict_copy_name
from queueyard.ops.names import server_path
from queueyard.ops.records import Conflict, NotedOp, PulledFile, PullRequest, PullResponse, Tracked
from queueyard.ops.retries import Asking, refused
from queueyard.ops.rules import content_hash

if TYPE_CHECKING:
    from queueyard.ops.folder import Folder
    from queueyard.ops.service import Ops

PULL_PATH = "/v1/sync/pull"


class Pulled(msgspec.Struct, kw_only=True):
    """What a pull did."""

    written: list[str] = msgspec.field(default_factory=list)
    moved: list[str] = msgspec.field(default_factory=list)
    removed: list[str] = msgspec.field(default_factory=list)
    conflicts: list[Conflict] = msgspec.field(default_factory=list)
    #: path: why it could not be written here
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    cursor: int = 0


def pull(ops: Ops, *, everything: bool = False) -> Pulled:
    """Bring the folder up to date; with `everything` from the beginning, for files that could not be written then.

    Refused if the server refuses the caller, TransportFailed if it does not answer.
    """
    folder = ops.folder
    with ops.up_to_date(), ops.asking() as asking:
        return _Puller(ops, folder, everything=everything).pull(asking)


class _Puller:
    def __init__(self, ops: Ops, folder: Folder, *, everything: bool) -> None:
        self._ops = ops
        self._folder = folder
        workspace = ops.queue.workspace()
        self._seen = workspace.seen
        self._shelf = Shelf(workspace.tracked)
        self._conflicts = dict(workspace.conflicts)
        self._cursor = 0 if everything else workspace.cursor
        self._on_their_way: dict[str, list[NotedOp]] = {}
        for op in ops.queue.on_their_way():
            self._on_their_way.setdefault(op.file_id, []).append(op)
        self._done = Pulled()
        #: what is noted as about to be written
        self._coming: list[Tracked] = []
        #: changes that want a path which another file of the server still has here
        self._later: list[PulledFile] = []

    def pull(self, asking: Asking) -> Pulled:
        cursor, more = self._cursor, True
        while more:
            page = _page(asking, PullRequest(since_cursor=cursor, tombstones=bool(self._shelf.by_path)))
            self._announce(page.changes)
            for change in page.changes:
                self._take_or_wait(change)
            more, cursor = page.more, page.new_cursor
            if not self._later:
                self._save(cursor)
        for change in self._later:
            self._take(change)
        self._save(cursor)
        self._done.cursor = cursor
        return self._done

    def _announce(self, changes: list[PulledFile]) -> None:
        """Note what is about to be written, so that whoever comes after our death does not take it for the user's."""
        for change in changes:
            if not change.deleted and not isinstance(change.content, msgspec.UnsetType):
                with suppress(BadServerPath):
                    path = server_path(change.server_path)
                    self._coming.append(_tracked(change, path, content_hash(change.content)))
        if self._coming:
            self._ops.queue.note_coming(self._coming)

    def _take_or_wait(self, change: PulledFile) -> None:
        owner = self._shelf.by_path.get(change.server_path)
        if owner is not None and owner.file_id != change.file_id and not change.deleted:
            self._later.append(change)
        else:
            self._take(change)

    def _take(self, change: PulledFile) -> None:
        try:
            self._bring(change)
        except (UnsafePath, BadServerPath) as fault:
            # What cannot stand here is told and passed by; a disk that refuses ends the pull, and the cursor stays.
            self._done.skipped[change.server_path] = str(fault)

    def _bring(self, change: PulledFile) -> None:
        path = server_path(change.server_path)
        if own := next((op for op in self._on_their_way.get(change.file_id, ()) if is_echo(change, op)), None):
            self._shelf.take(own, change.version)
            return
        known = self._shelf.get(change.file_id)
        here = self._folder.hash_of(known.server_path) if known else None
        there = here if known and known.server_path == path else self._folder.hash_of(path)
        content = "" if change.deleted or isinstance(change.content, msgspec.UnsetType) else change.content
        verdict = judge_pull(change, known, here, there)
        match verdict:
            case Pull.IGNORE:
                return
            case Pull.CONFLICT:
                self._keep_both(change, known, here, content)
                return
            case Pull.WRITE | Pull.MOVE:
                if not self._folder.write(path, content, instead_of=there):
                    self._keep_both(change, known, here, content)
                    return
                self._done.written.append(path)
        if known is not None and verdict in {Pull.MOVE, Pull.REMOVE}:
            self._folder.remove(known.server_path, instead_of=known.content_hash)
            (self._done.moved if verdict is Pull.MOVE else self._done.removed).append(known.server_path)
        self._conflicts.pop(change.file_id, None)
        if verdict is Pull.REMOVE:
            self._shelf.forget(change.file_id)
        else:
            self._shelf.put(_tracked(change, path, content_hash(content)))

    def _keep_both(self, change: PulledFile, known: Tracked | None, here: str | None, content: str) -> None:
        """The local file stays where it is and is from now on an edit of what the server has."""
        path = known.server_path if known is not None and here is not None else change.server_path
        hashed = content_hash(content)
        copy = None if change.deleted else self._copy(path, content, hashed)
        conflict = Conflict(
            file_id=change.file_id,
            server_path=path,
            moved_to=change.server_path if change.server_path != path else None,
            server_version=change.version,
            server_hash=None if change.deleted else hashed,
            server_deleted=change.deleted,
            copy=copy,
            detail="deleted there, changed here" if change.deleted else "changed here and there",
            at=to_rfc3339(self._ops.clock.now()),
        )
        self._conflicts = {file_id: one for file_id, one in self._conflicts.items() if one.server_path != path} | {
            change.file_id: conflict
        }
        self._shelf.put(_tracked(change, path, "" if change.deleted else hashed))
        self._done.conflicts.append(conflict)

    def _copy(self, path: str, content: str, hashed: str) -> str:
        moment = self._ops.clock.now().strftime("%Y-%m-%d-%H-%M")
        number = 1
        while True:
            name = conflict_copy_name(path, moment, number)
            there = self._folder.hash_of(name)
            # The same text under that name: a pull that died here had come this far.
            if there == hashed or (there is None and self._folder.write(name, content, instead_of=None)):
                return name
            number += 1

    def _save(self, cursor: int) -> None:
        workspace = self._ops.queue.workspace()
        after = msgspec.structs.replace(
            workspace, cursor=cursor, tracked=self._shelf.by_path, conflicts=self._conflicts, seen=self._seen
        )
        if after != workspace:
            self._ops.queue.save_workspace(after)
        if self._coming:
            self._ops.queue.forget_coming()
            self._coming.clear()


# --- decisions -------------------------------------------------------------------------------------------------------


def conflicts(ops: Ops) -> list[Conflict]:
    """What waits for a decision, by path."""
    return sorted(ops.queue.workspace().conflicts.values(), key=lambda one: one.server_path)


def resolve(ops: Ops, path: str, *, keep: str) -> Conflict:
    """Decide a conflict: `mine` pushes the local file over the server's version, `theirs` takes the server's text.

    UnknownItem if there is no conflict about that path.
    """
    with ops.up_to_date():
        workspace = ops.queue.workspace()
        conflict = next((one for one in workspace.conflicts.values() if path in {one.server_path, one.file_id}), None)
        if conflict is None:
            raise UnknownItem(f"no conflict about {path!r}", hint="List them: jolli-ops conflicts")
        shelf = Shelf(workspace.tracked)
        if keep == "mine":
            _keep_mine(shelf, conflict)
        else:
            _take_theirs(ops.folder, shelf, conflict)
        if conflict.copy and ops.scope.workspace:
            ops.folder.remove(conflict.copy, instead_of=conflict.server_hash or "")
        left = {file_id: one for file_id, one in workspace.conflicts.items() if one != conflict}
        ops.queue.save_workspace(msgspec.structs.replace(workspace, tracked=shelf.by_path, conflicts=left))
    return conflict


def _keep_mine(shelf: Shelf, conflict: Conflict) -> None:
    # The local file is an edit of the server's version from now on; of nothing, if the server never had the file.
    if conflict.server_version:
        shelf.put(
            Tracked(
                file_id=conflict.file_id,
                server_path=conflict.server_path,
                version=conflict.server_version,
                content_hash=conflict.server_hash or "",
            )
        )
    else:
        shelf.forget(conflict.file_id)


def _take_theirs(folder: Folder, shelf: Shelf, conflict: Conflict) -> None:
    mine = folder.hash_of(conflict.server_path)
    if conflict.server_deleted:
        if mine is not None:
            folder.remove(conflict.server_path, instead_of=mine)
        shelf.forget(conflict.file_id)
        return
    if conflict.copy is None or folder.hash_of(conflict.copy) != conflict.server_hash:
        raise UsageFault(f"the server's text of {conflict.server_path} is not here", hint="Fetch it: jolli-ops pull")
    content = folder.read(conflict.copy)
    target = conflict.moved_to or conflict.server_path
    if not folder.write(target, content, instead_of=folder.hash_of(target)):
        raise UsageFault(f"{target} is being changed right now", hint="Try again when it is not.")
    if target != conflict.server_path and mine is not None:
        folder.remove(conflict.server_path, instead_of=mine)
    shelf.put(
        Tracked(
            file_id=conflict.file_id,
            server_path=target,
            version=conflict.server_version,
            content_hash=conflict.server_hash or "",
        )
    )


def _page(asking: Asking, wanted: PullRequest) -> PullResponse:
    reply, _ = asking.ask("POST", PULL_PATH, msgspec.json.encode(wanted))
    if reply.status != 200:
        raise refused(reply)
    try:
        return msgspec.json.decode(reply.body, type=PullResponse)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise QueueyardError(
            f"the server's answer makes no sense: {fault}", hint="Is it a jolli-ops server?"
        ) from fault


def _tracked(change: PulledFile, path: str, hashed: str) -> Tracked:
    return Tracked(file_id=change.file_id, server_path=path, version=change.version, content_hash=hashed)
