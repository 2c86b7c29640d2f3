"""The batch files of one scope: the only place that reads and writes them.

    REQ-<requestId>-<index, 6 digits>.json    one batch, in the spec's own shape; never changed once it is queued
    REQ-<requestId>.manifest.json             written last: from here on the request is queued
    REQ-<requestId>.answers.jsonl             which batches were answered, and how
    completed/  dead/  quarantine/            what was sent, what will not be sent, what cannot be read
    workspace.json  coming.json               what is known of the folder; what a pull is about to write into it

Promises: a request is queued whole or not at all; a queued batch is there until its answer is noted; after a kill -9
at any instant `recover` finds the queue as it was, less what was never accepted. Everything that writes holds
`locked()`; one process at a time sends from a scope.

The one exception to "never changed": a batch whose ops moved elsewhere (to a child request or to `dead/`) is replaced
by an empty one, so that the server can go on to the next index.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from hashlib import sha256
import os
import re
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, BadLine, Files, append_lines, read_document, read_lines, replace_file
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock
from queueyard.kernel.errors import QueueyardError, explaining
from queueyard.kernel.ids import sequence_id
from queueyard.kernel.locks import FileLock
from queueyard.ops.errors import CorruptBatch, UnknownItem
from queueyard.ops.home import PRIVATE_FILE, make_private_file, make_private_folder
from queueyard.ops.records import (
    Answer,
    BatchEntry,
    DeadLetter,
    Manifest,
    NotedOp,
    Parent,
    PushRequest,
    State,
    Tracked,
    Workspace,
)
from queueyard.ops.rules import queue_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

COMPLETED, DEAD, QUARANTINE = "completed", "dead", "quarantine"
JOURNAL_NAME = "events.jsonl"
_WORKSPACE_NAME = "workspace.json"
_COMING_NAME = "coming.json"
_MANIFEST_SUFFIX = ".manifest.json"
_ANSWERS_SUFFIX = ".answers.jsonl"
_BATCH_NAME = re.compile(r"REQ-([A-Za-z0-9][A-Za-z0-9_-]*)-(\d{6,})\.json")


class EncodedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch, ready to be written and to be sent: the same bytes."""

    body: bytes
    ops: int


class Queue:
    """The batches of one scope that are on their way."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Clock = SYSTEM_CLOCK,
        files: Files = FILES,
        writers: int = 8,
        lock_timeout_s: float = 10.0,
    ) -> None:
        """`writers`: how many batch files are synced at once; a disk does eight in the time of two."""
        self.folder = folder
        self._files = files
        self._writers = writers
        self._lock = FileLock(folder / "lock", timeout_s=lock_timeout_s, clock=clock, mode=PRIVATE_FILE)
        self.journal_path = folder / JOURNAL_NAME
        make_private_file(self.journal_path)

    @contextmanager
    def locked(self) -> Iterator[list[str]]:
        """Nobody else plans or sends in this scope meanwhile; gives what had to be repaired, in words.

        LockTimeout says who does.
        """
        if self._lock.held:
            yield []
            return
        with self._lock:
            yield self._recover()

    # --- queueing ----------------------------------------------------------------------------------------------------

    def enqueue(
        self,
        request_id: str,
        batches: Iterable[EncodedBatch],
        *,
        created_at: int,
        order: list[int] | None = None,
        message: str | None = None,
        parent: Parent | None = None,
    ) -> Manifest:
        """Queue a request whole: when this returns, every batch survives a power cut.

        StorageFailed if the disk refuses; then nothing is queued.
        """
        try:
            entries = list(self._stored(request_id, batches))
            with explaining("write", self.folder):
                self._files.fsync_folder(str(self.folder))
            manifest = Manifest(
                request_id=request_id,
                created_at=created_at,
                order=order or [self._next_number()],
                batches=entries,
                message=message,
                parent=parent,
            )
            replace_file(
                self._manifest_path(request_id), msgspec.json.encode(manifest), mode=PRIVATE_FILE, files=self._files
            )
        except QueueyardError:
            self._forget_batches(request_id)
            raise
        if parent is not None:
            self._empty_parent(manifest)
        return manifest

    def requests(self) -> list[Manifest]:
        """Every queued request, in the order of sending. CorruptFile if a manifest cannot be understood."""
        found = [manifest for path in self.manifest_paths() if (manifest := read_manifest(path)) is not None]
        return sorted(found, key=lambda manifest: queue_key(manifest.order))

    def manifest_paths(self) -> list[Path]:
        return sorted(self.folder.glob(f"REQ-*{_MANIFEST_SUFFIX}"))

    def request(self, request_id: str) -> Manifest:
        """One queued request, by its id or the start of it. UnknownItem if there is none, or more than one."""
        matching = [one for one in self.requests() if one.request_id.casefold().startswith(request_id.casefold())]
        exact = [one for one in matching if one.request_id == request_id]
        if len(exact or matching) != 1:
            many = f"{len(matching)} requests start with {request_id!r}" if matching else f"no request {request_id!r}"
            raise UnknownItem(many, hint="List what is queued: jolli-ops pending list")
        return (exact or matching)[0]

    # --- sending -----------------------------------------------------------------------------------------------------

    def pending(self, manifest: Manifest) -> list[int]:
        """The indexes that are not answered yet, in order."""
        lines = read_lines(self._answers_path(manifest.request_id), _ANSWERED_INDEX.decode, on_bad=_skip_torn)
        answered = {line.value.batch_index for line in lines}
        return [index for index in range(1, manifest.total_batches + 1) if index not in answered]

    def read(self, manifest: Manifest, index: int) -> bytes:
        """One batch as it was queued, byte for byte. CorruptBatch if its file is torn, changed or gone."""
        path = self._batch_path(manifest.request_id, index)
        with explaining("read", path):
            try:
                body = path.read_bytes()
            except FileNotFoundError:
                raise CorruptBatch(f"{path} is gone", hint=_REPLAN) from None
        if sha256(body).hexdigest() != manifest.batches[index - 1].sha256 and body != emptied(manifest, index):
            raise CorruptBatch(f"{path} is not what was queued", hint=_REPLAN)
        return body

    def on_their_way(self) -> Iterator[NotedOp]:
        """Every op that is queued and not answered, in the order of sending.

        A batch that cannot be read is passed by: whoever sends sets it aside.
        """
        for manifest in self.requests():
            for index in self.pending(manifest):
                with suppress(CorruptBatch):
                    yield from noted(self.read(manifest, index))

    def read_request(self, manifest: Manifest, index: int) -> PushRequest:
        return msgspec.json.decode(self.read(manifest, index), type=PushRequest)

    def state(self, manifest: Manifest, index: int) -> State:
        """Where one batch stands."""
        if index not in self.pending(manifest):
            there = self._batch_path(manifest.request_id, index).exists()
            return State.ANSWERED if there else State.COMPLETED
        return State.EMPTIED if self.read(manifest, index) == emptied(manifest, index) else State.PENDING

    def note_answer(self, manifest: Manifest, answer: Answer) -> None:
        """Remember that a batch was answered; a kill does not forget it. `clear` makes it last before the file goes."""
        path = self._answers_path(manifest.request_id)
        make_private_file(path)
        append_lines(path, [msgspec.json.encode(answer)], durable=False, files=self._files)

    def answers(self, manifest: Manifest) -> Iterator[Answer]:
        """What was answered so far, in the order of answers, one at a time: all of them may be many."""
        path = self._answers_path(manifest.request_id)
        return (line.value for line in read_lines(path, _ANSWER.decode, on_bad=_skip_torn))

    def clear(self, manifest: Manifest, indexes: Iterable[int], *, keep: bool) -> None:
        """Take the files of answered batches out of the way: delete them, or move them to `completed/`."""
        self._make_last(self._answers_path(manifest.request_id))
        for index in indexes:
            path = self._batch_path(manifest.request_id, index)
            with explaining("clear away", path), suppress(FileNotFoundError):
                if keep:
                    self._move(path, COMPLETED)
                else:
                    self._files.unlink(str(path))

    def finish(self, manifest: Manifest, *, keep: bool) -> None:
        """Forget a request whose batches are all answered and whose answers are taken over."""
        self.clear(manifest, range(1, manifest.total_batches + 1), keep=keep)
        self._forget_request(manifest.request_id)

    def drop(self, manifest: Manifest) -> None:
        """Give up a request: what was not sent will not be."""
        self._forget_request(manifest.request_id)
        self._forget_batches(manifest.request_id)

    # --- what went wrong ---------------------------------------------------------------------------------------------

    def empty(self, manifest: Manifest, index: int) -> None:
        """Put an empty batch in the place of one whose ops are safe elsewhere."""
        path = self._batch_path(manifest.request_id, index)
        replace_file(path, emptied(manifest, index), mode=PRIVATE_FILE, files=self._files)

    def quarantine(self, manifest: Manifest, index: int) -> Path:
        """Keep a batch file that is not what was queued where nobody sends it, and go on with an empty one."""
        path = self._batch_path(manifest.request_id, index)
        with explaining("set aside", path), suppress(FileNotFoundError):
            self._move(path, QUARANTINE)
        self.empty(manifest, index)
        return self.folder / QUARANTINE / path.name

    def bury(self, letter: DeadLetter) -> None:
        """Keep an op that cannot be sent, with the reason. The same one again replaces itself."""
        make_private_folder(self.folder / DEAD)
        path = self.folder / DEAD / f"{letter.id}.json"
        replace_file(path, msgspec.json.encode(letter), mode=PRIVATE_FILE, files=self._files)

    def dead_letters(self) -> list[DeadLetter]:
        """All of them, oldest first. CorruptFile if one cannot be understood."""
        decode = msgspec.json.Decoder(DeadLetter).decode
        paths = sorted((self.folder / DEAD).glob("*.json"))
        letters = [read_document(path, decode, repair=f"Look at it, then: rm {path}") for path in paths]
        return sorted((one for one in letters if one is not None), key=lambda one: (one.at, one.id))

    def unbury(self, letter: DeadLetter) -> None:
        path = self.folder / DEAD / f"{letter.id}.json"
        with explaining("remove", path):
            with suppress(FileNotFoundError):
                self._files.unlink(str(path))
            self._files.fsync_folder(str(path.parent))

    # --- the folder that is kept in step -----------------------------------------------------------------------------

    def workspace(self) -> Workspace:
        """What the client remembers of its folder. CorruptFile if that cannot be understood."""
        path = self.folder / _WORKSPACE_NAME
        repair = f"Learn it anew from the server: mv {path} {path}.bad && jolli-ops pull"
        return read_document(path, msgspec.json.Decoder(Workspace).decode, repair=repair) or Workspace()

    def save_workspace(self, workspace: Workspace) -> None:
        path = self.folder / _WORKSPACE_NAME
        replace_file(path, msgspec.json.encode(workspace), mode=PRIVATE_FILE, files=self._files)

    def coming(self) -> list[Tracked]:
        """What a pull that died was about to write; empty if none did."""
        path = self.folder / _COMING_NAME
        return (
            read_document(path, msgspec.json.Decoder(list[Tracked]).decode, repair=f"Look at it, then: rm {path}") or []
        )

    def note_coming(self, files: list[Tracked]) -> None:
        """Remember what is about to be written, before the first byte of it is."""
        replace_file(self.folder / _COMING_NAME, msgspec.json.encode(files), mode=PRIVATE_FILE, files=self._files)

    def forget_coming(self) -> None:
        """Everything that was coming is in `workspace`. If a power cut brings the note back, that does no harm."""
        path = self.folder / _COMING_NAME
        with explaining("remove", path), suppress(FileNotFoundError):
            self._files.unlink(str(path))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _stored(self, request_id: str, batches: Iterable[EncodedBatch]) -> Iterator[BatchEntry]:
        """What the manifest says of each batch, once it is on disk; at most as many under way as there are writers."""
        if self._writers == 1:
            for index, batch in enumerate(batches, 1):
                yield self._store(request_id, index, batch)
            return
        from collections import deque  # noqa: PLC0415
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  only who queues has use for threads

        with ThreadPoolExecutor(self._writers) as pool:
            under_way: deque[Future[BatchEntry]] = deque()
            for index, batch in enumerate(batches, 1):
                under_way.append(pool.submit(self._store, request_id, index, batch))
                if len(under_way) > self._writers:
                    yield under_way.popleft().result()
            yield from (stored.result() for stored in under_way)

    def _store(self, request_id: str, index: int, batch: EncodedBatch) -> BatchEntry:
        self._write_new(self._batch_path(request_id, index), batch.body)
        return BatchEntry(sha256=sha256(batch.body).hexdigest(), ops=batch.ops, bytes=len(batch.body))

    def _write_new(self, path: Path, body: bytes) -> None:
        # No temporary name: without the manifest nobody takes it for a batch, however much of it is there.
        with explaining("write", path):
            descriptor = self._files.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
            try:
                left = memoryview(body)
                while left:
                    left = left[self._files.write(descriptor, bytes(left) if len(left) < len(body) else body) :]
                self._files.fsync(descriptor)
            finally:
                self._files.close(descriptor)

    def _next_number(self) -> int:
        return 1 + max((manifest.order[0] for manifest in self.requests()), default=0)

    def _recover(self) -> list[str]:
        """Finish or undo what a process that died has left; in words, for whoever asks."""
        manifests = {manifest.request_id: manifest for manifest in self.requests()}
        for manifest in manifests.values():
            self._empty_parent(manifest)
        orphans = {request_id for request_id, _ in self._batch_files()} - set(manifests)
        for request_id in sorted(orphans):
            self._forget_batches(request_id)
        for path in self.folder.glob(f"REQ-*{_ANSWERS_SUFFIX}"):
            if path.name.removeprefix("REQ-").removesuffix(_ANSWERS_SUFFIX) not in manifests:
                self._files.unlink(str(path))
        return [f"request {request_id} was never queued whole and is discarded" for request_id in sorted(orphans)]

    def _empty_parent(self, child: Manifest) -> None:
        """A child request holds the ops of a batch from the moment it is queued; that batch must not send them too."""
        if child.parent is None:
            return
        parent = read_manifest(self._manifest_path(child.parent.request_id))
        if parent is None or child.parent.batch_index not in self.pending(parent):
            return
        batch = self._batch_path(parent.request_id, child.parent.batch_index)
        with explaining("read", batch):
            there = batch.read_bytes() if batch.exists() else b""
        if there != emptied(parent, child.parent.batch_index):
            self.empty(parent, child.parent.batch_index)

    def _make_last(self, path: Path) -> None:
        if path.exists():
            with explaining("write", path):
                descriptor = self._files.open(str(path), os.O_RDWR)
                try:
                    self._files.fsync(descriptor)
                finally:
                    self._files.close(descriptor)

    def _move(self, path: Path, folder: str) -> None:
        make_private_folder(self.folder / folder)
        self._files.rename(str(path), str(self.folder / folder / path.name))
        self._files.fsync_folder(str(self.folder / folder))

    def _forget_request(self, request_id: str) -> None:
        """The batch files are gone for good before the manifest goes, and the manifest before the answers.

        Whatever a power cut brings back is then understood: a batch without a manifest was never queued, and a
        manifest still has its answers.
        """
        with explaining("clear away", self.folder):
            self._files.fsync_folder(str(self.folder))
            for path in (self._manifest_path(request_id), self._answers_path(request_id)):
                with suppress(FileNotFoundError):
                    self._files.unlink(str(path))
                self._files.fsync_folder(str(self.folder))

    def _forget_batches(self, request_id: str) -> None:
        """Whatever there is of a request that has no manifest; a file that stays is found by the next `_recover`."""
        for known, path in self._batch_files():
            if known == request_id:
                with suppress(OSError):
                    self._files.unlink(str(path))

    def _batch_files(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self.folder.glob("REQ-*.json")):
            if found := _BATCH_NAME.fullmatch(path.name):
                yield found[1], path

    def _batch_path(self, request_id: str, index: int) -> Path:
        return self.folder / f"REQ-{request_id}-{sequence_id(index)}.json"

    def _manifest_path(self, request_id: str) -> Path:
        return self.folder / f"REQ-{request_id}{_MANIFEST_SUFFIX}"

    def _answers_path(self, request_id: str) -> Path:
        return self.folder / f"REQ-{request_id}{_ANSWERS_SUFFIX}"


_REPLAN = "The batch is set aside; what it held is planned again by the next: jolli-ops push"


def read_manifest(path: Path) -> Manifest | None:
    """A manifest, or None if it is gone. CorruptFile if it cannot be understood."""
    repair = f"Set it aside: jolli-ops doctor --fix (or mv {path} away)"
    return read_document(path, _MANIFEST.decode, repair=repair)


def emptied(manifest: Manifest, index: int) -> bytes:
    """The batch that stands in for one whose ops went elsewhere; the same bytes each time."""
    return msgspec.json.encode(
        PushRequest(request_id=manifest.request_id, batch_index=index, total_batches=manifest.total_batches, ops=[])
    )


def noted(body: bytes) -> list[NotedOp]:
    """The ops of a batch without their contents, which are not even decoded."""
    return _NOTED.decode(body).ops


class _NotedBatch(msgspec.Struct, frozen=True):
    ops: list[NotedOp]


class _AnsweredIndex(msgspec.Struct, frozen=True, rename="camel"):
    batch_index: int


_MANIFEST = msgspec.json.Decoder(Manifest)
_NOTED = msgspec.json.Decoder(_NotedBatch)
_ANSWER = msgspec.json.Decoder(Answer)
_ANSWERED_INDEX = msgspec.json.Decoder(_AnsweredIndex)


def _skip_torn(_: BadLine) -> None:
    """The answer of a batch that was being noted when the process died: it is asked for again."""
