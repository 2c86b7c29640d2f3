"""Clients that push files to a server, and what the server made of it.

    ops/<space>/changes-<first>-<last>.jsonl    the change feed, as it is exported
    ops/<space>/audit-<first>-<last>.jsonl      what was refused
    ops/<space>/_manifest.json
    ops-client/<scope>/events.jsonl             the journal of one client

Segments appear whole and never change, so they are never late, repeated, damaged or torn; the journals may be.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.events import Kind
from queueyard.kernel.ids import derived_ulid, sequence_id
from queueyard.ops.events import batch_event
from queueyard.ops.records import Change, FeedOp, OpType, Refusal, Status
from queueyard.pipeline.generator.chance import (
    SECOND,
    Agenda,
    Crew,
    Skewed,
    arrivals,
    clock_error,
    mean_run_s,
    moment,
    per_second,
    run_time,
    text,
)
from queueyard.pipeline.generator.writing import OF_A_JOURNAL, Budget, Stream, StreamCount

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

SERVER = "http://127.0.0.1:8700"
CHANGES, AUDIT, CLIENT = "ops.changes", "ops.audit", "ops.events"
_SPACES = Skewed(("docs", "notes"))
_CLIENTS = Skewed(("laptop", "desktop", "tablet"))
_LINES_PER_BATCH = 8.0
_MOST_FILES = 20_000
_FEWEST_ROWS, _MOST_ROWS = 60, 20_000
_REJECTED = Skewed(("bad_path", "path_too_long", "content_too_large", "reserved_path"))
_RETRY_REASONS = (
    "503 Service Unavailable",
    "connection refused",
    "the server did not answer within 30 s",
    "429 Too Many Requests",
)
_FAILED_REASONS = ("payload_too_large", "http_422", "corrupt", "idempotency_key_reused")


def write(folder: Path, lines: int, random: Random) -> list[StreamCount]:
    budget = Budget(lines)
    rate = per_second(lines / _LINES_PER_BATCH)
    rows = min(_MOST_ROWS, max(_FEWEST_ROWS, lines // 8))
    spaces = {name: _Space(folder / "ops" / name, name, random, budget, rows) for name in ("docs", "notes")}
    clients = {
        name: Stream(
            CLIENT, folder / "ops-client" / name / "events.jsonl", random=random, budget=budget, flaws=OF_A_JOURNAL
        )
        for name in ("laptop", "desktop", "tablet")
    }
    sync = _Sync(spaces, clients, random, rate)
    for at in arrivals(random, rate):
        sync.agenda.run_until(at)
        if budget.left <= 0:
            break
        sync.plan(at)
    for space in spaces.values():
        space.close()
    return [
        _unflawed(CHANGES, sum(space.changes.rows for space in spaces.values())),
        _unflawed(AUDIT, sum(space.audit.rows for space in spaces.values())),
        _together([stream.close() for stream in clients.values()]),
    ]


class _Sync:
    """Clients on one side, spaces on the other, batches between them."""

    def __init__(self, spaces: dict[str, _Space], clients: dict[str, Stream], random: Random, rate: float) -> None:
        self.agenda = Agenda()
        self._spaces = spaces
        self._clients = clients
        self._random = random
        self._lines = Crew(("line-1", "line-2", "line-3", "line-4"))
        self._mean_s = min(5.0, mean_run_s(rate, 4))
        self._encode = msgspec.json.Encoder().encode
        self._requests = 0

    def plan(self, at: int) -> None:
        """A client plans a request of a few batches."""
        random = self._random
        self._requests += 1
        request = derived_ulid(moment(at), "request", str(self._requests))
        client, space = _CLIENTS.pick(random), _SPACES.pick(random)
        error = clock_error(random, self._requests)
        for index in range(1, random.choice((1, 1, 1, 2, 4)) + 1):
            ops = min(50, int(random.paretovariate(1.1)))
            batch = _Batch(request=request, index=index, space=space, client=client, ops=ops, error=error)
            self._tell(at, Kind.QUEUED, batch, 1, None, {"ops": ops, "bytes": ops * random.randint(200, 20_000)})
            self._send(at, batch)

    def _send(self, at: int, batch: _Batch) -> None:
        random = self._random
        start, end, _ = self._lines.take(at, run_time(random, self._mean_s))
        dice = random.random()
        if dice < 0.02:
            self.agenda.add(start, self._tell, Kind.CANCELED, batch, 1, None, {})
            return
        attempt, due = 1, start
        while attempt < 5 and random.random() < 0.06:
            attempt += 1
            due += SECOND * 2**attempt
            self.agenda.add(due, self._tell, Kind.RETRIED, batch, attempt, random.choice(_RETRY_REASONS), {})
        accepted = due + (end - start)
        if dice < 0.05:
            reason = random.choice(_FAILED_REASONS)
            self.agenda.add(accepted, self._tell, Kind.FAILED, batch, 1, reason, {"ops": batch.ops})
        else:
            self.agenda.add(accepted, self._accept, batch, start, attempt)

    def _accept(self, at: int, batch: _Batch, started: int, attempt: int) -> None:
        """The server takes the batch, and the client hears of it. Both are told at the end, as the client does it."""
        counts = self._spaces[batch.space].apply(at, batch)
        if self._random.random() < 0.995:
            # Else the client died before it could write it down.
            self._tell(started, Kind.STARTED, batch, 1, None, {})
            self._tell(at + SECOND // 20, Kind.SUCCEEDED, batch, attempt, None, counts)

    def _tell(self, at: int, kind: Kind, batch: _Batch, attempt: int, reason: str | None, data: dict[str, Any]) -> None:
        event = batch_event(
            moment(at + batch.error),
            kind,
            source=SERVER,
            space=batch.space,
            request_id=batch.request,
            batch_index=batch.index,
            attempt=attempt,
            reason=reason,
            **data,
        )
        self._clients[batch.client].write(self._encode(event))


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    request: str
    index: int
    space: str
    client: str
    ops: int
    #: how far the clock of the client is ahead
    error: int


class _File(msgspec.Struct, kw_only=True):
    id: str
    path: str
    version: int = 0
    deleted: bool = True


class _Space:
    """The files of one space, and what happened to them."""

    def __init__(self, folder: Path, name: str, random: Random, budget: Budget, rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.changes = _Segments(folder, "changes", rows, budget)
        self.audit = _Segments(folder, "audit", rows, budget)
        self._folder = folder
        self._name = name
        self._random = random
        self._files: list[_File] = []

    def apply(self, at: int, batch: _Batch) -> dict[str, int]:
        counts = dict.fromkeys(map(str, Status), 0)
        accepted_at = text(at)
        for number in range(1, batch.ops + 1):
            status = self._apply_one(accepted_at, batch, f"op-{number:06d}")
            counts[status] += 1
        return counts

    def _apply_one(self, at: str, batch: _Batch, op_id: str) -> Status:
        dice = self._random.random()
        file = self._pick()
        if dice < 0.04 and file.version:
            self._refuse(at, batch, op_id, file, Status.CONFLICT, "path_taken" if dice < 0.01 else "version")
            return Status.CONFLICT
        if dice < 0.05:
            self._refuse(at, batch, op_id, file, Status.REJECTED, _REJECTED.pick(self._random))
            return Status.REJECTED
        self._change(at, batch, op_id, file, dice)
        return Status.APPLIED

    def _pick(self) -> _File:
        """A new file, or an old one, of which few are changed often."""
        random, files = self._random, self._files
        if not files or (len(files) < _MOST_FILES and random.random() < 0.15):
            number = len(files) + 1
            digits = derived_ulid(moment(0), self._name, str(number))
            files.append(_File(id=digits, path=f"{self._name}/part-{number % 40:02d}/page-{number}.md"))
            return files[-1]
        return files[int(len(files) * random.random() ** 3)]

    def _change(self, at: str, batch: _Batch, op_id: str, file: _File, dice: float) -> None:
        was_at, base = file.path, file.version
        op = FeedOp.CREATE if file.deleted else FeedOp.UPDATE
        if op is FeedOp.UPDATE and dice > 0.95:
            op = FeedOp.DELETE
        elif op is FeedOp.UPDATE and dice > 0.92:
            file.path = f"{file.path.removesuffix('.md')}-{base}.md"
        file.version += 1
        file.deleted = op is FeedOp.DELETE
        self.changes.add(
            Change(
                seq=self.changes.rows + 1,
                space=self._name,
                op=op,
                file_id=file.id,
                version=file.version,
                base_version=base,
                server_path=file.path,
                previous_path=was_at if was_at != file.path else None,
                content_hash=None if file.deleted else f"{self._random.getrandbits(256):064x}",
                size=0 if file.deleted else int(self._random.lognormvariate(8, 1)),
                request_id=batch.request,
                batch_index=batch.index,
                op_id=op_id,
                client_id=batch.client,
                user_id="alex",
                accepted_at=at,
            )
        )

    def _refuse(self, at: str, batch: _Batch, op_id: str, file: _File, status: Status, code: str) -> None:
        self.audit.add(
            Refusal(
                seq=self.audit.rows + 1,
                space=self._name,
                status=status,
                code=code,
                detail=None if status is Status.CONFLICT else f"{file.path} cannot be stored: {code}",
                type=OpType.UPSERT,
                file_id=file.id,
                server_path=file.path,
                base_version=max(0, file.version - 1),
                server_version=file.version,
                request_id=batch.request,
                batch_index=batch.index,
                op_id=op_id,
                client_id=batch.client,
                user_id="alex",
                at=at,
            )
        )

    def close(self) -> None:
        manifest = {"space": self._name, "changes": self.changes.close(), "audit": self.audit.close()}
        encoded = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
        (self._folder / "_manifest.json").write_bytes(encoded)


class _Segments:
    """Entries in files of so many rows, each of which appears when it is whole."""

    def __init__(self, folder: Path, stream: str, rows: int, budget: Budget) -> None:
        self.rows = 0
        self._folder = folder
        self._stream = stream
        self._budget = budget
        self._rows_each = rows
        self._waiting: list[bytes] = []
        self._written: list[dict[str, object]] = []

    def add(self, entry: Change | Refusal) -> None:
        if not self._budget.take():
            return
        self.rows += 1
        self._waiting.append(msgspec.json.encode(entry) + b"\n")
        if len(self._waiting) == self._rows_each:
            self._flush()

    def close(self) -> list[dict[str, object]]:
        if self._waiting:
            self._flush()
        return self._written

    def _flush(self) -> None:
        first = self.rows - len(self._waiting) + 1
        name = f"{self._stream}-{sequence_id(first, 12)}-{sequence_id(self.rows, 12)}.jsonl"
        body = b"".join(self._waiting)
        self._waiting.clear()
        (self._folder / name).write_bytes(body)
        digest = sha256(body).hexdigest()
        self._written.append({"name": name, "first": first, "last": self.rows, "bytes": len(body), "sha256": digest})


def _unflawed(stream: str, lines: int) -> StreamCount:
    return StreamCount(stream=stream, lines=lines, sound=lines, corrupt=0, duplicates=0, torn=0)


def _together(counts: list[StreamCount]) -> StreamCount:
    names = ("lines", "sound", "corrupt", "duplicates", "torn")
    return StreamCount(stream=CLIENT, **{name: sum(getattr(one, name) for one in counts) for name in names})
