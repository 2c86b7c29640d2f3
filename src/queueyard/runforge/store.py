"""The queue on disk: the only place in runforge that reads or writes queue.json, the sidecar and the journal.

- The journal is the truth, together with the checkpoint that it goes on from. An entry counts from the moment its line
  is whole; where two writers did not see each other, the order of their lines decides (`state.QueueState`).
- queue.json is the copy for other tools: replaced as a whole, never read as the truth. What another tool wrote into it
  is noticed by its fingerprint and merged (`rules.merge`).
- Commands hold the lock around look-decide-append. The daemon does not: it must not wait for a command that reads
  100,000 jobs. It only moves jobs on, and sees by its own append whether somebody was faster.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import errno
from itertools import islice
import os
import re
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from queueyard.kernel.atomic import (
    FILES,
    NOT_UNDERSTOOD,
    BadLine,
    Files,
    append_lines,
    read_document,
    read_lines,
    replace_file,
)
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock
from queueyard.kernel.errors import QueueyardError, StorageFailed, explaining
from queueyard.kernel.events import Journal
from queueyard.kernel.locks import FileLock
from queueyard.runforge.events import job_events
from queueyard.runforge.records import (
    Checkpoint,
    DaemonFile,
    Entry,
    Fingerprint,
    Limits,
    Published,
    QueueFile,
    decode_checkpoint,
    decode_daemon,
    decode_entry,
    decode_queue,
    encode_pretty,
    encode_rows,
)
from queueyard.runforge.rules import local_iso, merge
from queueyard.runforge.state import Change, QueueState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from queueyard.kernel.events import Event
    from queueyard.runforge.workspace import Workspace

#: a journal that is longer than this, and than half of its checkpoint, is folded into a new one
COMPACT_FROM_BYTES = 1 << 20

_FIRST_JOURNAL = "queueyard-journal-000001.jsonl"
_JOURNAL_NUMBER = re.compile(r"queueyard-journal-(\d+)\.jsonl")
_PUBLISHED_WITHIN_S = 2.0
_LOOK_EVERY_S = 0.005
_MOST_OVERTAKEN = 20
_EVENTS_AT_ONCE = 1000

WAKE_FOR_SNAPSHOT = b"s"
WAKE = b"w"


class Overtaken(Exception):
    """Another tool wrote queue.json while we were about to."""


class Store:
    """The queue of one workspace. Not to be shared between threads."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        clock: Clock = SYSTEM_CLOCK,
        lock_timeout_s: float = 10.0,
        files: Files = FILES,
        actor: str = "client",
    ) -> None:
        self.workspace = workspace
        self.clock = clock
        self.state = QueueState()
        self.bad: list[BadLine] = []
        #: what did not go as it should, but not so that the command fails
        self.warnings: list[str] = []
        self._files = files
        self.actor = actor
        self._lock = FileLock(workspace.lock, timeout_s=lock_timeout_s, clock=clock)
        self._events = Journal(workspace.events, files=files)
        self._journal = workspace.journal(_FIRST_JOURNAL)
        self._read_to = 0
        self._is_loaded = False
        self._sidecar: Fingerprint | None = None
        self._merged: Fingerprint | None = None
        self._is_synced = True
        self._news: list[Change] = []
        self._untold: list[tuple[Entry, list[Change]]] = []
        #: the same for entries that were read, from the last `Published` on
        self._read_untold: list[tuple[Entry, list[Change]]] = []
        self._tells_later = False

    # --- reading -----------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See what others committed. CorruptFile if the sidecar makes no sense.

        Lines of the journal that make none are in `bad`.
        """
        while True:
            sidecar = fingerprint(self.workspace.sidecar)
            if not self._is_loaded or sidecar != self._sidecar:
                self._load(sidecar)
            self._catch_up()
            # A journal that was folded away under our eyes reads as empty; its checkpoint tells.
            if fingerprint(self.workspace.sidecar) == self._sidecar:
                return

    def follow(self) -> list[Change]:
        """The list that every further change is added to, whoever made it; its reader empties it."""
        return self._news

    def catch_up(self) -> None:
        """The same for a daemon, whose checkpoint nobody else replaces."""
        self._catch_up()

    def look(self) -> QueueState:
        """The queue as it is now, with what other tools wrote, without writing anything."""
        self.refresh()
        entries = self._foreign_entries()
        for entry in entries:
            self.state.apply(entry, self._read_to)
        # What is not in the journal yet may only be seen: who writes next must find it new, and commit it.
        self._is_loaded = not entries
        return self.state

    def daemon(self) -> DaemonFile | None:
        """daemon.json, or None where no daemon ever was. CorruptFile if it makes no sense."""
        return read_document(self.workspace.daemon_file, decode_daemon, repair=_repair(self.workspace))

    # --- writing -----------------------------------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else who locks decides meanwhile; the state is fresh. LockTimeout says who holds the lock."""
        self.workspace.make_queue_folder()
        with self._lock:
            self.refresh()
            self.merge_foreign()
            yield

    @contextmanager
    def alone(self, *, timeout_s: float = 0.0) -> Iterator[None]:
        """The lock for the daemon, which does not wait for a command while it works. LockTimeout if one holds it."""
        lock = FileLock(self.workspace.lock, timeout_s=timeout_s, clock=self.clock)
        with lock:
            self._catch_up()
            yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """`locked`, and afterwards queue.json tells what was committed: by the daemon if one runs, else by us."""
        daemon_does_it = False
        with self.locked():
            yield
            if self.state.is_behind:
                daemon_does_it = self.wake(WAKE_FOR_SNAPSHOT)
                if not daemon_does_it:
                    self._publish_or_warn()
        if daemon_does_it:
            self._wait_for_publication()

    def _publish_or_warn(self) -> None:
        """What is in the journal is accepted; that others cannot see it yet is no reason to call it refused."""
        try:
            self.publish()
            if self.is_long:
                self.compact()
        except StorageFailed as fault:
            self.warnings.append(f"accepted, but other tools cannot see it yet: {fault}")

    def commit(self, *entries: Entry, durable: bool = True) -> list[Change]:
        """Append entries at once; what they changed, which is nothing where somebody was faster.

        When it returns, the entries survive a kill; with `durable` a power cut too. StorageFailed if the disk refuses;
        then nothing has changed.
        """
        lines = [_encode(entry) for entry in entries]
        start, end = append_lines(self._journal, lines, durable=durable, files=self._files)
        if start > self._read_to:
            self._catch_up(until=start)
        changes: list[Change] = []
        for entry in entries:
            own = self.state.apply(entry, end)
            if own:
                changes += own
                self._untold.append((entry, own))
        self._news += changes
        self._read_to = end
        self._is_synced = durable
        if not self._tells_later:
            self.tell_now()
        return changes

    def tell_later(self) -> None:
        """From now on events are written when `tell_now` is called: many at once.

        What the last daemon may not have come to tell is told again, which is harmless: an event has the same id each
        time. All that stands before a `Published` was told.
        """
        self._tells_later = True
        self._untold = [*self._read_untold, *self._untold]
        self._read_untold = []

    @property
    def has_untold(self) -> bool:
        return bool(self._untold)

    def tell_now(self) -> None:
        """Write the events of what happened since."""
        untold, self._untold = self._untold, []
        events = (
            event
            for entry, changes in untold
            for event in job_events(entry, changes, source=self.workspace.root_text, actor=self.actor)
        )
        while chunk := list(islice(events, _EVENTS_AT_ONCE)):
            self._events.append(*chunk)

    def tell(self, event: Event) -> None:
        """Record an event that is no change of a job."""
        self._events.append(event)

    def merge_foreign(self) -> bool:
        """Take over what another tool wrote into queue.json; whether it did. CorruptFile if that makes no sense."""
        seen = fingerprint(self.workspace.queue_file)
        entries = self._foreign_entries()
        if entries:
            self.commit(*entries)
        self._merged = seen
        return bool(entries)

    def publish(self) -> None:
        """Write queue.json anew. What it tells is durable before it tells it. StorageFailed if the disk refuses."""
        self.tell_now()
        if not self._is_synced:
            append_lines(self._journal, [], durable=True, files=self._files)
            self._is_synced = True
        for _ in range(_MOST_OVERTAKEN):
            upto = self._read_to
            data = encode_rows(self.state.queue_file(), "jobs")
            guard = _GuardedRename(self._files, expected=self._known_files())
            try:
                replace_file(self.workspace.queue_file, data, files=guard)
            except Overtaken:
                self.merge_foreign()
                continue
            self._merged = None
            self.commit(Published(upto=upto, file=guard.renamed, checksum=crc32(data)), durable=False)
            return
        raise QueueyardError(
            f"{self.workspace.queue_file} is rewritten all the time by another tool",
            hint="Stop that tool, or let it write elsewhere.",
        )

    @property
    def is_long(self) -> bool:
        """Whether the journal should be folded into a new checkpoint."""
        return self._read_to > max(COMPACT_FROM_BYTES, self._sidecar[2] // 2 if self._sidecar else 0)

    def compact(self) -> None:
        """Write a new checkpoint and start a new journal. Only under the lock, and only who may: see `wake`."""
        old = self._journal
        number = int(found[1]) if (found := _JOURNAL_NUMBER.fullmatch(old.name)) else 0
        name = f"queueyard-journal-{number + 1:06d}.jsonl"
        self._write_checkpoint(self.state.checkpoint(name))
        self._use(name, self.state)
        self._sidecar = fingerprint(self.workspace.sidecar)
        with suppress(FileNotFoundError):
            self._files.unlink(str(old))

    def wake(self, message: bytes) -> bool:
        """Tell the daemon that there is something to read. False, for sure, if none runs.

        A daemon opens the pipe under the lock; so who holds the lock and hears that nobody reads is alone.
        """
        try:
            descriptor = os.open(self.workspace.wake, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            return fault.errno not in {errno.ENXIO, errno.ENOENT}
        try:
            # A full pipe is a daemon that will wake anyway.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(descriptor, message)
        finally:
            os.close(descriptor)
        return True

    def write_daemon(self, daemon: DaemonFile) -> None:
        replace_file(self.workspace.daemon_file, encode_pretty(daemon), files=self._files)

    # --- repair ------------------------------------------------------------------------------------------------------

    def rebuild(self) -> None:
        """Write queue.json from the journal, whatever it holds now; only under `repairing`."""
        self._merged = fingerprint(self.workspace.queue_file)
        self.publish()

    @contextmanager
    def repairing(self) -> Iterator[None]:
        """The lock, without a look at files that may be broken."""
        self.workspace.make_queue_folder()
        with self._lock:
            yield

    def start_over_from(self, state: QueueState) -> None:
        """Put a state in the place of a sidecar that cannot be read; the present journal is read on top of it."""
        self._write_checkpoint(state.checkpoint(self._last_journal()))
        self._is_loaded = False
        self.refresh()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _load(self, sidecar: Fingerprint | None) -> None:
        checkpoint = read_document(self.workspace.sidecar, decode_checkpoint, repair=_repair(self.workspace))
        self._sidecar = sidecar
        self._is_loaded = True
        self._merged = None
        self.bad = []
        if checkpoint is None:
            self._use(_FIRST_JOURNAL, QueueState())
        else:
            self._use(checkpoint.journal, QueueState.restore(checkpoint))

    def _use(self, journal: str, state: QueueState) -> None:
        self._read_untold = []
        self._journal = self.workspace.journal(journal)
        self._read_to = 0
        state.unsaved = dict.fromkeys(state.unsaved, 0)
        state.changed_at = 0
        if state.published:
            state.published = msgspec.structs.replace(state.published, upto=0)
        self.state = state

    def _catch_up(self, *, until: int | None = None) -> None:
        for line in read_lines(self._journal, _as_it_is, start=self._read_to, on_bad=self.bad.append):
            if until is not None and line.offset >= until:
                break
            text = line.value
            try:
                entry = decode_entry(text)
            except NOT_UNDERSTOOD as fault:
                if not text.endswith(b"\n"):
                    break  # torn: a writer died there, or still writes
                self.bad.append(BadLine(self._journal, line.number, line.offset, str(fault)))
            else:
                self._take(entry, line.offset + len(text))
            self._read_to = line.offset + len(text)

    def _take(self, entry: Entry, offset: int) -> None:
        changes = self.state.apply(entry, offset)
        self._news += changes
        if self._tells_later:
            return  # others tell what they do
        if isinstance(entry, Published):
            self._read_untold.clear()
        elif changes:
            self._read_untold.append((entry, changes))

    def _foreign_entries(self) -> list[Entry]:
        seen = fingerprint(self.workspace.queue_file)
        if seen is None or seen in self._known_files():
            return []
        queue = read_document(self.workspace.queue_file, self._decode_foreign, repair=_repair(self.workspace))
        if queue is None:
            return []
        at = local_iso(self.clock.now())
        entries = merge(self.state.jobs, self.state.live_runs, queue.jobs, at=at)
        if self.state.published is None and not self.state.jobs:
            limits = Limits(
                max_parallel=queue.max_parallel,
                gpu_slots=queue.gpu_slots,
                last_served_group=queue.last_served_group,
            )
            entries.append(limits)
        return entries

    def _decode_foreign(self, data: bytes) -> QueueFile | None:
        """What another tool wrote; None for our own last words, in a file that was copied or restored."""
        if self.state.published and self.state.published.checksum == crc32(data):
            return None
        return decode_queue(data)

    def _known_files(self) -> set[Fingerprint]:
        """The queue.json that holds nothing new: the one that we wrote, or one that we have merged already."""
        return {
            one
            for one in (self.state.published.file if self.state.published else None, self._merged)
            if one is not None
        }

    def _wait_for_publication(self) -> None:
        mark, journal = self.state.changed_at, self._journal
        deadline = self.clock.monotonic() + _PUBLISHED_WITHIN_S
        while self.clock.monotonic() < deadline:
            self.refresh()
            if self._journal != journal or self.state.is_told_to(mark):
                return
            self.clock.sleep(_LOOK_EVERY_S)
        # The daemon is busy or hangs; what it writes later is the same.
        with self.locked():
            if self.state.is_behind:
                self._publish_or_warn()

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        replace_file(self.workspace.sidecar, encode_rows(checkpoint, "jobs"), files=self._files)

    def _last_journal(self) -> str:
        with explaining("read", self.workspace.queue_folder):
            names = [path.name for path in self.workspace.queue_folder.iterdir()]
        return max((name for name in names if _JOURNAL_NUMBER.fullmatch(name)), default=_FIRST_JOURNAL)


class _GuardedRename(Files):
    """Lets a replacement happen only if the file is still one that we know; remembers what it put there."""

    def __init__(self, inner: Files, *, expected: set[Fingerprint]) -> None:
        self._inner = inner
        self._expected = expected
        self.renamed: Fingerprint = (0, 0, 0, 0)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        return self._inner.open(path, flags, mode)

    def write(self, descriptor: int, data: bytes) -> int:
        return self._inner.write(descriptor, data)

    def truncate(self, descriptor: int, length: int) -> None:
        self._inner.truncate(descriptor, length)

    def fsync(self, descriptor: int) -> None:
        self._inner.fsync(descriptor)

    def rename(self, source: str, target: str) -> None:
        there = fingerprint(target)
        if there is not None and there not in self._expected:
            self._inner.unlink(source)
            raise Overtaken
        # A rename changes neither; asking afterwards could tell of a file that came behind ours.
        self.renamed = fingerprint(source) or self.renamed
        self._inner.rename(source, target)

    def unlink(self, path: str) -> None:
        self._inner.unlink(path)

    def fsync_folder(self, path: str) -> None:
        self._inner.fsync_folder(path)

    def close(self, descriptor: int) -> None:
        self._inner.close(descriptor)


def fingerprint(path: Path | str) -> Fingerprint | None:
    """What tells a file from the one that stood there before; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116  several times a second
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


_encoder = msgspec.json.Encoder()


def _encode(entry: Entry) -> bytes:
    return _encoder.encode(entry)


def _as_it_is(line: bytes) -> bytes:
    return line


def _repair(workspace: Workspace) -> str:
    return f"Rebuild it from the journal: runforge-cli doctor --fix --workspace {workspace.root}"
