"""The server's books: files, their texts, the change feed, requests and answers, whatever database keeps them.

The one promise everything else stands on: the effect of a batch, its entries in the feed and in the audit stream, the
progress of its request and the bytes of its answer commit together. A crash before the commit leaves nothing; after
it, the same batch again gets the same bytes. Numbers of the feed are given out inside that transaction, with the space
locked, so they have no gaps and stand in the order of commits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.ops import schema
from queueyard.ops.names import folders_of, path_key
from queueyard.ops.preparing import PreparedBatch, PreparedOp
from queueyard.ops.problems import Problem
from queueyard.ops.records import (
    DEFAULT_TENANT,
    FeedOp,
    OpResult,
    OpType,
    PushRequest,
    PushResponse,
    Status,
    batch_id,
)
from queueyard.ops.rules import (
    BatchVerdict,
    FileState,
    KnownBatch,
    judge_batch,
    judge_delete,
    judge_upsert,
)
from queueyard.ops.texts import Texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from queueyard.ops.database import Connection, Database, Row


class SpaceName(msgspec.Struct, frozen=True):
    """A space, by what it is called."""

    tenant: str
    slug: str


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that wants to be applied."""

    space: SpaceName
    batch: PreparedBatch
    #: what the client calls itself
    client_id: str | None = None
    #: the name of the token
    user_id: str | None = None

    @property
    def key(self) -> tuple[SpaceName, str, int]:
        """What nobody may use twice."""
        return self.space, self.batch.request.request_id, self.batch.request.batch_index


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    body: bytes
    replayed: bool = False
    #: status -> ops; empty for a replay
    counts: dict[Status, int] = {}


class _Space(msgspec.Struct):
    """A locked space: its numbers grow while a batch is applied."""

    id: int
    seq: int
    audit_seq: int


class Ledger:
    """One thread's view of the books."""

    def __init__(
        self, database: Database, *, clock: Clock = SYSTEM_CLOCK, turn: AbstractContextManager[object] | None = None
    ) -> None:
        """`turn`: held while batches are worked on, let go of while the disk is waited for."""
        self.database = database
        self._turn = turn or nullcontext()
        self.line: Connection = database.connect()
        self.texts = Texts(database)
        self._clock = clock

    def create(self) -> None:
        """Make the tables and the default space, unless they are there."""
        schema.create(self.database, self.line, now=self.now())

    def now(self) -> str:
        return to_rfc3339(self._clock.now())

    def close(self) -> None:
        self.line.close()

    # --- pushing -----------------------------------------------------------------------------------------------------

    def apply(self, pushes: Sequence[Push]) -> list[Answered | Problem]:
        """Apply batches in one transaction, each after the other; the answers are committed when this returns.

        A batch that is refused gets its Problem and leaves nothing; the others go on. LedgerFailed if the database
        refuses; then nothing of any of them is there.
        """
        try:
            with self.line.writing(), self._turn:
                return [self._apply(push) for push in pushes]
        except BaseException:
            self.texts.forget_recent()
            raise

    def _apply(self, push: Push) -> Answered | Problem:
        try:
            space = self._locked_space(push.space)
            replay = self._judge(space, push.batch)
        except Problem as problem:
            return problem
        if replay is not None:
            return Answered(body=replay, replayed=True)
        applying = _Applying(self, space, push)
        results = [applying.apply(one) for one in push.batch.ops]
        request = push.batch.request
        response = PushResponse(
            request_id=request.request_id,
            batch_index=request.batch_index,
            total_batches=request.total_batches,
            batch_id=batch_id(request.request_id, request.batch_index),
            results=results,
            new_cursor=space.seq,
        )
        body = msgspec.json.encode(response)
        applying.write(body)
        return Answered(body=body, counts=_counted(results))

    def _locked_space(self, name: SpaceName) -> _Space:
        sql = f"SELECT id, seq, audit_seq FROM space WHERE tenant = ? AND slug = ?{self.database.lock_rows}"  # noqa: S608
        rows = self.line.rows(sql, (name.tenant, name.slug))
        if not rows:
            raise Problem("unknown_space", f"no space {name.slug!r}")
        return _Space(*rows[0])

    def _judge(self, space: _Space, batch: PreparedBatch) -> bytes | None:
        """The bytes of the first answer if there was one; None if the batch is to be applied. Problem else."""
        request = batch.request
        key = (space.id, request.request_id)
        progress = self.line.rows("SELECT total, done FROM request WHERE space_id = ? AND request_id = ?", key)
        known_total, done = progress[0] if progress else (None, 0)
        before = self.line.rows(
            "SELECT fingerprint, answer FROM batch WHERE space_id = ? AND request_id = ? AND batch_index = ?",
            (*key, request.batch_index),
        )
        known = KnownBatch(fingerprint=before[0][0], answer_is_kept=before[0][1] is not None) if before else None
        verdict = judge_batch(
            index=request.batch_index,
            total=request.total_batches,
            digest=batch.fingerprint,
            known_total=known_total,
            done=done,
            known=known,
        )
        match verdict:
            case BatchVerdict.APPLY:
                return None
            case BatchVerdict.REPLAY:
                return bytes(before[0][1])
            case BatchVerdict.OUT_OF_ORDER:
                detail = f"batch {request.batch_index} came, batch {done + 1} is expected"
                raise Problem(verdict.value, detail, expectedIndex=done + 1)
            case _:
                raise Problem(verdict.value)

    # --- spaces and upkeep -------------------------------------------------------------------------------------------

    def create_spaces(self, *slugs: str, tenant: str = DEFAULT_TENANT) -> list[str]:
        """Make spaces that are not there; those that are new."""
        sql = """INSERT INTO space (tenant, slug, created_at) VALUES (?, ?, ?)
            ON CONFLICT (tenant, slug) DO NOTHING RETURNING slug"""
        with self.line.writing():
            return [row[0] for slug in slugs for row in self.line.rows(sql, (tenant, slug, self.now()))]

    def expire_answers(self, before: str) -> int:
        """Forget the bytes of answers that are older; their keys stay, so that nothing is ever applied again."""
        with self.line.writing():
            gone = self.line.rows(
                "UPDATE batch SET answer = NULL WHERE answered_at < ? AND answer IS NOT NULL RETURNING batch_index",
                (before,),
            )
        return len(gone)


class _Applying:
    """One batch while it is applied: the files it speaks of, in memory, and what has to be written in the end.

    Reading before and writing after, each in a few statements, takes a third of the time of going op by op.
    """

    def __init__(self, ledger: Ledger, space: _Space, push: Push) -> None:
        self._line = ledger.line
        self._kept_texts = ledger.texts
        self._space = space
        self._push = push
        self._now = ledger.now()
        upserts = [one for one in push.batch.ops if one.rejection is None and one.op.type is OpType.UPSERT]
        self._files = self._load_files(one.op.file_id for one in push.batch.ops)
        self._holders = self._load_holders(upserts)
        self._known_folders = self._load_folders(one.key for one in upserts)
        self._added_folders: set[str] = set()
        self._left_keys: set[str] = set()
        self._texts: dict[bytes, bytes] = {}
        #: each ends with the hash of the text that it has now, in the place of the text's number
        self._file_rows: list[Row] = []
        self._change_rows: list[Row] = []
        self._audit_rows: list[Row] = []

    def apply(self, one: PreparedOp) -> OpResult:
        """The answer to one op, with what came before it in this batch taken into account."""
        op = one.op
        current = self._files.get(op.file_id)
        if one.rejection is not None:
            self._refuse(one, one.rejection)
            return one.rejection
        if op.type is OpType.DELETE:
            verdict = judge_delete(op, current)
        else:
            verdict = judge_upsert(op, one.path, one.content_hash, current, self._holder_of(one, current))
        if verdict.after is not None:
            self._take(one, current, verdict.after)
        elif verdict.result.status is Status.CONFLICT:
            self._refuse(one, verdict.result)
        return verdict.result

    def write(self, answer: bytes) -> None:
        """Everything that the batch changes."""
        line, space, request = self._line, self._space, self._push.batch.request
        if self._file_rows:
            numbers = self._kept_texts.keep(line, self._texts)
            line.run_many(_UPSERT_FILE, ((*row[:-1], numbers.get(row[-1])) for row in self._file_rows))
            line.run_many(_INSERT_CHANGE, ((*row[:-1], numbers.get(row[-1])) for row in self._change_rows))
        if self._audit_rows:
            line.run_many(_INSERT_AUDIT, self._audit_rows)
        line.rows("UPDATE space SET seq = ?, audit_seq = ? WHERE id = ?", (space.seq, space.audit_seq, space.id))
        self._write_progress(request)
        line.rows(
            _INSERT_BATCH,
            (
                space.id,
                request.request_id,
                request.batch_index,
                self._push.batch.fingerprint,
                answer,
                self._now,
            ),
        )

    def _write_progress(self, request: PushRequest) -> None:
        push = self._push
        self._line.rows(
            _UPSERT_REQUEST,
            (
                self._space.id,
                request.request_id,
                request.total_batches,
                request.batch_index,
                request.message,
                push.client_id,
                push.user_id,
                self._now,
                self._now,
            ),
        )

    def _take(self, one: PreparedOp, before: FileState | None, after: FileState) -> None:
        space, op = self._space, one.op
        space.seq += 1
        hashed = bytes.fromhex(one.content_hash) if one.content_hash else None
        was_live = before is not None and not before.deleted
        if op.type is OpType.DELETE:
            feed_op, kept = FeedOp.DELETE, _raw_hash(after.content_hash)
        else:
            feed_op, kept = (FeedOp.UPDATE if was_live else FeedOp.CREATE), hashed
            self._texts[hashed or b""] = one.content
        key = one.key if op.type is OpType.UPSERT else path_key(after.path)
        self._move(before, after, key)
        self._files[op.file_id] = after
        self._file_rows.append(
            (
                space.id,
                op.file_id,
                after.path,
                None if after.deleted else key,
                after.version,
                int(after.deleted),
                kept,
                space.seq,
                hashed,
            )
        )
        moved_from = before.path if before is not None and before.path != after.path else None
        self._change_rows.append(
            (
                space.id,
                space.seq,
                feed_op.value,
                op.file_id,
                after.version,
                op.base_version,
                after.path,
                moved_from,
                hashed,
                len(one.content),
                *self._provenance(one),
                self._now,
                hashed,
            )
        )

    def _move(self, before: FileState | None, after: FileState, key: str) -> None:
        """Keep the map of taken paths in step."""
        if before is not None and not before.deleted:
            old = path_key(before.path)
            self._holders[old] = None
            self._left_keys.add(old)
        if not after.deleted:
            self._holders[key] = after
            self._left_keys.discard(key)
            self._added_folders.update(folders_of(key))

    def _refuse(self, one: PreparedOp, result: OpResult) -> None:
        space, op = self._space, one.op
        space.audit_seq += 1
        self._audit_rows.append(
            (
                space.id,
                space.audit_seq,
                result.status.value,
                result.code,
                result.detail,
                op.type.value,
                _storable(op.file_id),
                _storable(op.server_path),
                op.base_version,
                result.server_version,
                *self._provenance(one),
                self._now,
            )
        )

    def _provenance(self, one: PreparedOp) -> Row:
        request = self._push.batch.request
        return request.request_id, request.batch_index, one.op.op_id, self._push.client_id, self._push.user_id

    # --- who has which path ------------------------------------------------------------------------------------------

    def _holder_of(self, one: PreparedOp, current: FileState | None) -> FileState | None:
        """Another file on this path, or where a folder on the way to it would have to be, or below it."""
        if current is not None and not current.deleted and path_key(current.path) == one.key:
            return None
        for key in (one.key, *folders_of(one.key)):
            holder = self._holders.get(key)
            if holder is not None and holder.file_id != one.op.file_id:
                return holder
        return self._below(one)

    def _below(self, one: PreparedOp) -> FileState | None:
        prefix = one.key + "/"
        if one.key in self._added_folders:
            for key, holder in self._holders.items():
                if holder is not None and key.startswith(prefix) and holder.file_id != one.op.file_id:
                    return holder
        if one.key not in self._known_folders:
            return None
        # Those that left in this batch do not count, so as many more have to be looked at.
        rows = self._line.rows(
            f"{_SELECT_FILE} WHERE space_id = ? AND path_key > ? AND path_key < ? LIMIT ?",
            (self._space.id, prefix, one.key + "0", len(self._left_keys) + 2),
        )
        for holder in map(_state, rows):
            if path_key(holder.path) not in self._left_keys and holder.file_id != one.op.file_id:
                return holder
        return None

    def _load_folders(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that are folders: some file has a path below them."""
        wanted = sorted(set(keys))
        found: set[str] = set()
        for start in range(0, len(wanted), _IN_ONE_QUESTION):
            some = wanted[start : start + _IN_ONE_QUESTION]
            marks = ", ".join(["(?)"] * len(some))
            # "0" is the character behind "/": everything that starts with `key/`, and nothing else.
            sql = f"""
                SELECT column1 FROM (VALUES {marks}) AS wanted WHERE EXISTS (SELECT 1 FROM file WHERE space_id = ?
                AND path_key > column1 || '/' AND path_key < column1 || '0')"""  # noqa: S608  marks only
            found.update(key for (key,) in self._line.rows(sql, (*some, self._space.id)))
        return found

    def _load_files(self, file_ids: Iterable[str]) -> dict[str, FileState]:
        wanted = sorted(set(file_ids))
        return {state.file_id: state for state in self._load("file_id", wanted)}

    def _load_holders(self, upserts: Sequence[PreparedOp]) -> dict[str, FileState | None]:
        wanted = {key for one in upserts for key in (one.key, *folders_of(one.key))}
        return {path_key(state.path): state for state in self._load("path_key", sorted(wanted))}

    def _load(self, column: str, wanted: Sequence[str]) -> list[FileState]:
        found: list[FileState] = []
        for start in range(0, len(wanted), _IN_ONE_QUESTION):
            some = wanted[start : start + _IN_ONE_QUESTION]
            marks = ", ".join(["(?)"] * len(some))
            # Not IN: for that SQLite reads the whole space, because it takes spaces to be small.
            sql = f"{_SELECT_FILE_AMONG.format(marks)} WHERE space_id = ? AND {column} = column1"
            found += map(_state, self._line.rows(sql, (*some, self._space.id)))
        return found


_IN_ONE_QUESTION = 500
_SELECT_FILE = "SELECT file_id, path, version, deleted, hash FROM file"
_SELECT_FILE_AMONG = "SELECT file_id, path, version, deleted, hash FROM (VALUES {}) AS wanted CROSS JOIN file"
_UPSERT_FILE = """
    INSERT INTO file (space_id, file_id, path, path_key, version, deleted, hash, seq, blob_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (space_id, file_id) DO UPDATE SET path = excluded.path, path_key = excluded.path_key,
    version = excluded.version, deleted = excluded.deleted, hash = excluded.hash, seq = excluded.seq,
    blob_id = excluded.blob_id"""
_INSERT_CHANGE = """
    INSERT INTO change (space_id, seq, op, file_id, version, base_version, path, previous_path, hash, size,
    request_id, batch_index, op_id, client_id, user_id, accepted_at, blob_id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_INSERT_AUDIT = """
    INSERT INTO audit (space_id, seq, status, code, detail, type, file_id, path, base_version, server_version,
    request_id, batch_index, op_id, client_id, user_id, at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPSERT_REQUEST = """
    INSERT INTO request (space_id, request_id, total, done, message, client_id, user_id, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (space_id, request_id) DO UPDATE SET done = excluded.done, updated_at = excluded.updated_at"""
_INSERT_BATCH = """
    INSERT INTO batch (space_id, request_id, batch_index, fingerprint, answer, answered_at)
    VALUES (?, ?, ?, ?, ?, ?)"""


def _state(row: Row) -> FileState:
    file_id, path, version, deleted, hashed = row
    return FileState(
        file_id=file_id,
        path=path,
        version=version,
        deleted=bool(deleted),
        content_hash=None if hashed is None else bytes(hashed).hex(),
    )


def _raw_hash(hashed: str | None) -> bytes | None:
    return None if hashed is None else bytes.fromhex(hashed)


def _storable(text: str) -> str:
    """A rejected text may hold what a database does not take."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:2_000]


def _counted(results: Iterable[OpResult]) -> dict[Status, int]:
    counts: dict[Status, int] = {}
    for result in results:
        counts[result.status] = counts.get(result.status, 0) + 1
    return counts
