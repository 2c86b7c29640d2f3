"""What a folder and the server owe each other: which ops a scan makes, and what a pulled change does. Pure."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from queueyard.ops.records import NotedOp, OpType, PulledFile, Status, Tracked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# --- from the folder to the server -----------------------------------------------------------------------------------


class Local(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the folder."""

    content_hash: str
    #: bytes of the content as a JSON text
    encoded_bytes: int


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An op that is going to be: everything but its id and its content."""

    type: OpType
    #: None: the file is new to the server
    file_id: str | None
    server_path: str
    base_version: int
    content_hash: str | None = None
    encoded_bytes: int = 0


def drafts(tracked: Mapping[str, Tracked], found: Mapping[str, Local]) -> list[Draft]:
    """What has to be sent so that the server has what the folder has; both maps are by server path.

    A file that is gone from one path and stands, with the same content, on a new one has moved: it keeps its id.
    """
    gone = {path: known for path, known in tracked.items() if path not in found}
    new = {path: local for path, local in found.items() if path not in tracked}
    moved = _moves(gone, new)
    moved_ids = {origin.file_id for origin in moved.values()}
    deleted = [
        Draft(type=OpType.DELETE, file_id=known.file_id, server_path=path, base_version=known.version)
        for path, known in gone.items()
        if known.file_id not in moved_ids
    ]
    changed = [
        _upsert(path, found[path], known)
        for path, known in tracked.items()
        if path in found and found[path].content_hash != known.content_hash
    ]
    changed += [_upsert(path, new[path], origin) for path, origin in moved.items()]
    created = [_upsert(path, local, None) for path, local in new.items() if path not in moved]
    return [*deleted, *changed, *created]


class Shelf:
    """What the server is known to have, by path and by file id."""

    def __init__(self, tracked: Mapping[str, Tracked]) -> None:
        self.by_path = dict(tracked)
        self._path_of = {known.file_id: path for path, known in tracked.items()}

    def get(self, file_id: str) -> Tracked | None:
        path = self._path_of.get(file_id)
        return None if path is None else self.by_path.get(path)

    def put(self, known: Tracked) -> None:
        self.forget(known.file_id)
        if known.server_path in self.by_path:
            self.forget(self.by_path[known.server_path].file_id)
        self.by_path[known.server_path] = known
        self._path_of[known.file_id] = known.server_path

    def forget(self, file_id: str) -> None:
        path = self._path_of.pop(file_id, None)
        if path is not None:
            del self.by_path[path]

    def take(self, op: NotedOp, version: int) -> None:
        """The file is at this version after the op."""
        if op.type is OpType.DELETE:
            self.forget(op.file_id)
        else:
            self.put(
                Tracked(
                    file_id=op.file_id,
                    server_path=op.server_path,
                    version=version,
                    content_hash=op.content_hash or "",
                )
            )


def expected(tracked: Mapping[str, Tracked], queued: Iterable[NotedOp]) -> dict[str, Tracked]:
    """What the server will have once the queue is empty, if nobody else writes: what a new scan is compared with."""
    shelf = Shelf(tracked)
    for op in queued:
        shelf.take(op, op.base_version + 1)
    return shelf.by_path


def acknowledge(shelf: Shelf, op: NotedOp) -> None:
    """Put on the shelf what an answer says; taking the same answer twice changes nothing."""
    if op.result is None or op.result.status is not Status.APPLIED:
        return
    known = shelf.get(op.file_id)
    version = op.result.new_version or 0
    # Something newer may have been pulled meanwhile.
    if known is None or version >= known.version:
        shelf.take(op, version)


def _moves(gone: Mapping[str, Tracked], new: Mapping[str, Local]) -> dict[str, Tracked]:
    """New path -> where it came from. Only where no other file, gone or new, has the same content."""
    times_gone = Counter(known.content_hash for known in gone.values())
    times_new = Counter(local.content_hash for local in new.values())
    origin_of = {known.content_hash: known for known in gone.values()}
    return {
        path: origin_of[local.content_hash]
        for path, local in new.items()
        if times_gone[local.content_hash] == times_new[local.content_hash] == 1
    }


def _upsert(path: str, local: Local, known: Tracked | None) -> Draft:
    return Draft(
        type=OpType.UPSERT,
        file_id=known.file_id if known else None,
        server_path=path,
        base_version=known.version if known else 0,
        content_hash=local.content_hash,
        encoded_bytes=local.encoded_bytes,
    )


def deletes_too_much(deletes: int, tracked: int) -> bool:
    """Whether so many deletes look like a folder that is not mounted rather than like somebody's wish."""
    return deletes >= 10 and deletes * 2 > tracked


# --- from the server to the folder -----------------------------------------------------------------------------------


class Pull(StrEnum):
    """What a change of the server does to the folder."""

    #: nothing that we did not know
    IGNORE = "ignore"
    #: the folder has it already: only remember the version
    ADOPT = "adopt"
    #: write the server's text; nothing of ours is lost by it
    WRITE = "write"
    #: the same, and the file leaves its old path
    MOVE = "move"
    REMOVE = "remove"
    #: changed here and there: the local file stays, the server's text goes beside it
    CONFLICT = "conflict"


def judge_pull(change: PulledFile, known: Tracked | None, here: str | None, there: str | None) -> Pull:
    """`here`: the hash of the local file where we know it to be; `there`: of the one where the change wants it.

    None where there is no such file. A local file is overwritten or removed only if the server has had its very text.
    """
    if known is not None and change.version <= known.version:
        return Pull.IGNORE
    if change.deleted:
        return _judge_pulled_delete(known, here)
    if known is None:
        return _judge_arrival(change, there)
    if known.server_path == change.server_path:
        if here == change.content_hash:
            return Pull.ADOPT
        return Pull.WRITE if here in {None, known.content_hash} else Pull.CONFLICT
    may_leave = here in {None, known.content_hash}
    return Pull.MOVE if may_leave and there in {None, change.content_hash} else Pull.CONFLICT


def is_echo(change: PulledFile, op: NotedOp) -> bool:
    """Whether a pulled change is what our own op made, whose answer has not come yet: no news, whatever is here now."""
    if op.file_id != change.file_id or op.base_version + 1 != change.version:
        return False
    if op.type is OpType.DELETE or change.deleted:
        return op.type is OpType.DELETE and change.deleted
    return (op.server_path, op.content_hash) == (change.server_path, change.content_hash)


def _judge_arrival(change: PulledFile, there: str | None) -> Pull:
    if there is None:
        return Pull.WRITE
    return Pull.ADOPT if there == change.content_hash else Pull.CONFLICT


def _judge_pulled_delete(known: Tracked | None, here: str | None) -> Pull:
    if known is None:
        return Pull.IGNORE
    return Pull.REMOVE if here in {None, known.content_hash} else Pull.CONFLICT
