"""The files in `.beads/`: the only place in queen that reads or writes them.

Writers hold `locked()` around check-then-append, so that two agents can never both pass the check; each append is one
durable write, and records that belong together are all there or none, whoever dies when. Readers need no lock.
Archived records stay readable (`archived`).
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

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
from queueyard.kernel.errors import LockTimeout, StorageFailed, explaining
from queueyard.kernel.locks import FileLock
from queueyard.queen.errors import InvalidValue
from queueyard.queen.home import Home, make_private
from queueyard.queen.index import MessageIndex, StaleIndex
from queueyard.queen.records import (
    LONGEST_LINE_BYTES,
    Assignment,
    Issue,
    Message,
    Raw,
    Reservation,
    decode,
    decode_record,
    encode,
    is_migration,
    view,
)
from queueyard.queen.rules import check_line, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MESSAGES = "queen_messages.jsonl"
ASSIGNMENTS: Final = "queen_assignments.jsonl"
RESERVATIONS: Final = "queen_reservations.jsonl"
ARCHIVE = "queen_archive"
_UNFINISHED = "unfinished.json"
#: why a line cannot be read whose writer died; nobody was told that it was written
TORN = "torn line"

_Ledgers = Literal["queen_assignments.jsonl", "queen_reservations.jsonl"]
_Record = TypeVar("_Record", Assignment, Reservation)
_R = TypeVar("_R")


class Ledger(Generic[_Record]):
    """All records of one file, folded in memory and kept up to date by reading only what was added."""

    def __init__(self, path: Path, kind: type[_Record]) -> None:
        self.path = path
        self._kind: type[_Record] = kind
        self._raws: dict[str, Raw] = {}
        self._views: dict[str, _Record] = {}
        self._read_to = 0
        self._lines_read = 0
        self._last_line = b""
        self._state: tuple[int, ...] | None = None
        #: whether the last line that was taken had no newline, so that it may still become another one
        self._ends_open = False
        #: lines that nobody can read
        self.bad: list[BadLine] = []
        #: a last line without its end: a writer died there, or still writes
        self.torn: BadLine | None = None

    def refresh(self) -> list[str] | None:
        """See the file as it is now: the ids that changed, or None if it was read anew from its start."""
        with explaining("read", self.path):
            state = _state_of(self.path)
        if state == self._state:
            return []
        grown = self._state is not None and self._has_only_grown(state)
        if not grown:
            self._raws, self._views, self.bad = {}, {}, []
            self._read_to, self._lines_read, self._last_line, self._ends_open = 0, 0, b"", False
        # Should the reading fail, nobody learns what it changed so far: the next one starts anew.
        self._state = None
        changed = self._read_new_lines()
        self._state = state
        return changed if grown else None

    def all(self) -> list[_Record]:
        """Every record that is not deleted, in the order of the file."""
        return list(self._views.values())

    def get(self, identifier: str) -> _Record | None:
        return self._views.get(identifier)

    def raw(self, identifier: str) -> Raw:
        """The folded record with all its keys, for a rewrite. KeyError if there is none."""
        return dict(self._raws[identifier])

    def _has_only_grown(self, state: tuple[int, ...]) -> bool:
        if self._state is None or self._ends_open or state[:2] != self._state[:2] or state[2] <= self._state[2]:
            return False
        with explaining("read", self.path), self.path.open("rb") as stream:
            stream.seek(self._read_to - len(self._last_line))
            return stream.read(len(self._last_line)) == self._last_line

    def _read_new_lines(self) -> list[str]:
        changed = []
        self.torn = None
        new = read_lines(
            self.path, _keep_text, start=self._read_to, first_number=self._lines_read + 1, on_bad=self.bad.append
        )
        for line in new:
            text = line.value
            try:
                identifier = self._take(decode(text))
            except NOT_UNDERSTOOD as fault:
                if not text.endswith(b"\n"):
                    self.torn = BadLine(self.path, line.number, line.offset, "torn last line")
                    break
                # A record ends with a brace: without it, this is what a dying writer left and the next one closed.
                reason = str(fault) if text.rstrip().endswith(b"}") else TORN
                self.bad.append(BadLine(self.path, line.number, line.offset, reason))
            else:
                changed += [identifier] if identifier else []
            self._read_to, self._lines_read = line.offset + len(text), line.number
            self._last_line, self._ends_open = text, not text.endswith(b"\n")
        return changed

    def _take(self, raw: Raw) -> str | None:
        if is_migration(raw):
            return None
        identifier: str = raw["id"]
        folded = fold(self._raws.get(identifier), raw)
        record = view(folded, self._kind)
        self._raws[identifier] = folded
        if folded.get("deleted"):
            self._views.pop(identifier, None)
        else:
            self._views[identifier] = record
        return identifier


class Store:
    """One repository's files."""

    def __init__(
        self, home: Home, *, clock: Clock = SYSTEM_CLOCK, lock_timeout_s: float = 10.0, files: Files = FILES
    ) -> None:
        self.home = home
        self._files = files
        self._lock = FileLock(home.private / "lock", timeout_s=lock_timeout_s, clock=clock)
        self._note = home.private / _UNFINISHED
        self._index = MessageIndex(home.beads / MESSAGES, home.private)
        self.assignments = Ledger(home.beads / ASSIGNMENTS, Assignment)
        self.reservations = Ledger(home.beads / RESERVATIONS, Reservation)
        self._droids_folder = home.droids
        self._files_by_name = {name: home.beads / name for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS)}
        self._droids_state: tuple[int, ...] = ()
        self._droids: set[str] = set()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else who locks writes meanwhile. LockTimeout says who does, StorageFailed why nobody can."""
        make_private(self.home.private)
        with self._lock:
            self._finish_note()
            yield

    def append(self, name: str, raws: Iterable[Raw], *, what: str, is_update: bool = False) -> None:
        """Add records to one of the three files; when this returns they survive a power cut.

        An update that fits no line goes without its body, which the file holds already.
        """
        append_lines(
            self._files_by_name[name],
            [check_line(_shortened(raw) if is_update else _encoded(raw, what), what=what) for raw in raws],
            files=self._files,
        )

    def append_together(self, name: _Ledgers, raws: Iterable[Raw], *, what: str) -> None:
        """Add records that belong together: all of them, or none if this fails. The caller holds the lock.

        A kill or a power cut may leave any part of a write. So a note of several records is made durable first, and
        whoever locks next adds what is missing.
        """
        lines = [check_line(_encoded(raw, what), what=what) for raw in raws]
        if len(lines) < 2:
            append_lines(self._files_by_name[name], lines, files=self._files)
            return
        note = _Note(file=name, lines=[line.decode() for line in lines])
        replace_file(self._note, msgspec.json.encode(note), files=self._files)
        try:
            append_lines(self._files_by_name[name], lines, files=self._files)
        except StorageFailed:
            self._strike_note()
            raise
        self._strike_note()

    def finish_interrupted(self) -> None:
        """Complete what a process that died has left half written, as far as we may write at all."""
        if self._note.exists():
            with suppress(StorageFailed, LockTimeout), self.locked():
                pass

    def _finish_note(self) -> None:
        repair = f"Look at it, then remove it: rm {self._note}"
        note = read_document(self._note, msgspec.json.Decoder(_Note).decode, repair=repair)
        if note is None:
            return
        path = self.home.beads / note.file
        with explaining("read", path):
            there = set(path.read_bytes().split(b"\n")) if path.exists() else set()
        missing = [line.encode() for line in note.lines if line.encode() not in there]
        if missing:
            append_lines(path, missing, files=self._files)
        self._strike_note()

    def _strike_note(self) -> None:
        # One that stays is struck by the next who locks; what it tells is in the file by now.
        with suppress(OSError):
            self._files.unlink(str(self._note))
            self._files.fsync_folder(str(self._note.parent))

    def messages(self, ask: Callable[[MessageIndex], _R]) -> _R:
        """Ask the message index, up to date; if the file was rewritten under it, once more with a new one."""
        self._index.refresh()
        try:
            return ask(self._index)
        except (StaleIndex, IndexError):
            # IndexError: an index file that is damaged inside leads nowhere.
            self._index.forget()
            self._index.refresh()
            return ask(self._index)

    def forget_index(self) -> None:
        """Delete the message index; the next question builds it anew."""
        self._index.forget()

    def every_message(self, on_bad: Callable[[BadLine], None]) -> dict[str, Raw]:
        """All messages folded, deleted ones too, by reading the whole file."""
        folded: dict[str, Raw] = {}
        for line in read_lines(self.home.beads / MESSAGES, _decode_message, on_bad=on_bad):
            if not is_migration(line.value):
                folded[line.value["id"]] = fold(folded.get(line.value["id"]), line.value)
        return folded

    def archived(self, name: str) -> Iterator[Raw]:
        """Every archived line of one of the three files, oldest archive first."""
        stem = Path(name).stem
        read = _decode_message if name == MESSAGES else decode
        for path in sorted((self.home.beads / ARCHIVE).glob(f"{stem}-*.jsonl")):
            for line in read_lines(path, read, on_bad=_ignore):
                if not is_migration(line.value):
                    yield line.value

    def archived_message(self, identifier: str) -> Raw | None:
        """One archived message, folded with whatever was written about it since."""
        folded: Raw | None = None
        for raw in self.archived(MESSAGES):
            if raw["id"] == identifier:
                folded = fold(folded, raw)
        since = self.messages(lambda index: index.get(identifier))
        return folded if since is None else fold(folded, since)

    def droids(self) -> set[str] | None:
        """The names in `.factory/droids/`; None where there is no such folder."""
        with explaining("read", self._droids_folder):
            # The folder's own time tells whether a name came or went since it was last read.
            state = _state_of(self._droids_folder)
            if state != self._droids_state:
                names = os.listdir(self._droids_folder) if state else []  # noqa: PTH208  before every message
                self._droids = {name[:-3] for name in names if name.endswith(".md") and name[0] != "."}
                # Times of files tick in milliseconds: what comes in the same tick does not move a time this young.
                is_settled = bool(state) and SYSTEM_CLOCK.now().timestamp() - state[3] / 1e9 > 1
                self._droids_state = state if is_settled else ()
        return self._droids if state else None

    def issues(self) -> dict[str, Issue] | None:
        """The Beads issues by id, last line wins; None where Beads has exported none."""
        names = ("issues.jsonl", "beads.jsonl")
        path = next((self.home.beads / name for name in names if (self.home.beads / name).is_file()), None)
        if path is None:
            return None
        decoder = msgspec.json.Decoder(_IssueLine)
        lines = read_lines(path, decoder.decode, on_bad=_ignore)
        return {line.value.id: line.value for line in lines if line.value.kind in {"", "issue"}}

    def bad_lines(self) -> list[BadLine]:
        """Lines that nobody can read, in the files that were looked at so far."""
        path = self.home.beads / MESSAGES
        in_messages = [BadLine(path, number, offset, why) for number, offset, why in self._index.bad_lines()]
        ledgers = (self.assignments, self.reservations)
        in_ledgers = [bad for ledger in ledgers for bad in (*ledger.bad, *filter(None, [ledger.torn]))]
        return [*in_messages, *in_ledgers]

    def close(self) -> None:
        self._index.close()


class _IssueLine(Issue, frozen=True, kw_only=True, rename={"kind": "_type"}):
    """Beads exports other things into the same file."""

    kind: str = ""


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are being added to a file together."""

    file: _Ledgers
    lines: list[str]


def _encoded(raw: Raw, what: str) -> bytes:
    try:
        return encode(raw)
    except UnicodeEncodeError:
        raise InvalidValue(f"the {what} holds what is no text", hint="Send UTF-8, without lone surrogates.") from None


def _decode_message(line: bytes) -> Raw:
    return decode_record(line, Message)


def _shortened(raw: Raw) -> bytes:
    line = encode(raw)
    if len(line) <= LONGEST_LINE_BYTES:
        return line
    return encode({key: value for key, value in raw.items() if key != "body"})


def _keep_text(line: bytes) -> bytes:
    return line


def _ignore(_: BadLine) -> None:
    """Beads' own file and old archives are not ours to complain about on every call; `queen doctor` does."""


def _state_of(path: Path) -> tuple[int, ...]:
    try:
        status = os.stat(path)  # noqa: PTH116  called before every answer
    except FileNotFoundError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
