"""The only door to the medium: bookmarks and metadata branch in jj, and the files beside the shared repository.

Whoever changes something holds the lock that the spec names for it (`lock`). Readers of configuration hold the config
lock without making its bookmark: they read one immutable revision, and a bookmark would cost two operations in the
user's operation log for every look.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
import zlib

import msgspec

from queueyard.jjq.errors import ConflictedBookmark, JjFailed
from queueyard.jjq.events import Teller
from queueyard.jjq.jj import METADATA_REVISION, Jj
from queueyard.jjq.locking import QueueLock
from queueyard.jjq.records import (
    METADATA,
    Commit,
    Failure,
    Landing,
    LockName,
    Passed,
    Queue,
    Requeue,
)
from queueyard.jjq.rules import OUR_BOOKMARKS, SEQUENCE, next_id, parse_last_id, read_queue
from queueyard.jjq.settings import TRUNK_BOOKMARK, Config, Settings, read_config
from queueyard.jjq.workspaces import Workspaces
from queueyard.kernel import proc
from queueyard.kernel.atomic import NOT_UNDERSTOOD, append_lines, read_document, read_lines, replace_file
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.kernel.errors import explaining
from queueyard.kernel.events import Journal
from queueyard.kernel.ids import sequence_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from queueyard.jjq.home import Home

_R = TypeVar("_R")
_S = TypeVar("_S", bound=msgspec.Struct)

LAST_ID = "last_id"
_CONFIG = "config"
_METADATA_MESSAGE = "jjq: metadata (ids and configuration)"
_KEPT_RESULTS = 1000
_VERSION_TRUSTED_S = 86_400.0


class Store:
    """One repository's queue."""

    def __init__(
        self,
        home: Home,
        jj: Jj,
        *,
        settings: Settings,
        note: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
        wait: bool = True,
    ) -> None:
        """`note` gets what the user should know beside the answer. Without `wait` a held lock refuses at once."""
        self.home = home
        self.jj = jj
        self.clock = clock
        self.settings = settings
        self.note = note
        self.workspaces = Workspaces(home, jj, note=note)
        self.journal = Journal(home.journal, complain=note)
        self._lock_timeout_s = settings.lock_timeout_s if wait else 0.0
        self.workspaces.use_anchor()

    # --- locks -------------------------------------------------------------------------------------------------------

    def lock(self, name: LockName, *, wait: bool = True) -> QueueLock:
        """A second run is refused at once; for the other locks one waits, if wanted."""
        timeout_s = self._lock_timeout_s if wait and name is not LockName.RUN else 0.0
        return QueueLock(name, self.home, self.jj, clock=self.clock, timeout_s=timeout_s, note=self.note)

    @contextmanager
    def holding(self, name: LockName) -> Iterator[None]:
        """Hold a lock with its bookmark; the metadata branch is made first where it is missing."""
        initialize = self._make_metadata if name is LockName.ID else self.initialize
        with self.lock(name).held(initialize=initialize):
            yield

    # --- reading -----------------------------------------------------------------------------------------------------

    def check_jj(self) -> None:
        """UnfitJj if this jj is too old; asked once a day for each jj."""
        path = self.home.private / "jj-version.json"
        try:
            state = os.stat(self.jj.executable)  # noqa: PTH116  a path, or a name for the shell to find
        except OSError:
            self.jj.version()
            return
        key: list[str | int] = [str(self.jj.executable), state.st_ino, state.st_size, state.st_mtime_ns]
        with suppress(OSError, *NOT_UNDERSTOOD):
            known = msgspec.json.decode(path.read_bytes(), type=_KnownVersion)
            age_s = self.clock.now().timestamp() - known.at
            if known.key == key and 0 <= age_s < _VERSION_TRUSTED_S:
                self.jj.check_version(known.version)
                return
        major, minor = self.jj.version()
        if self.home.private.is_dir():
            told = _KnownVersion(key=key, version=f"jj {major}.{minor}", at=self.clock.now().timestamp())
            with suppress(OSError):
                path.write_bytes(msgspec.json.encode(told))

    def queue(self, trunk: str | None = None) -> Queue:
        """What the bookmarks say now; with the trunk bookmark, if it is named. One call."""
        names = [OUR_BOOKMARKS, *([self.jj.exact(trunk)] if trunk else [])]
        return read_queue(self.jj.bookmarks(*names), trunk=trunk)

    def look(self) -> tuple[Config, Queue]:
        """Configuration and queue with trunk. LockHeld if another tool is writing configuration. Two calls."""
        with self._reading_config():
            config = read_config(self.stored_config())
            deadline = self.clock.monotonic() + self._lock_timeout_s
            lock = self.lock(LockName.CONFIG)
            while True:
                queue = self.queue(config.trunk_bookmark)
                if not lock.respect(queue):
                    self._remember_trunk(config.trunk_bookmark)
                    return config, queue
                if self.clock.monotonic() >= deadline:
                    raise lock.refusal()
                self.clock.sleep(0.1)
                config = read_config(self.stored_config())

    def stored_config(self) -> dict[str, str]:
        """What is stored, as text; empty before the first use."""
        files = self.metadata() or {}
        prefix = f"{_CONFIG}/"
        return {
            name.removeprefix(prefix): content.decode(errors="replace").strip()
            for name, content in files.items()
            if name.startswith(prefix)
        }

    def metadata(self) -> dict[str, bytes] | None:
        """Every file of the metadata branch; None before the first use. ConflictedBookmark if nobody can say which."""
        try:
            return self.jj.files(METADATA_REVISION)
        except JjFailed:
            head = self.queue().metadata
            if head is None:
                return None
            if head.conflicted:
                raise ConflictedBookmark(
                    f"{METADATA} points to {len(head.targets)} revisions", hint="Mend it: jjq doctor --fix"
                ) from None
            raise

    @contextmanager
    def _reading_config(self) -> Iterator[None]:
        # Where nothing of ours was ever written there is nobody to wait for, and nothing is to be left behind.
        if not self.home.private.is_dir():
            yield
            return
        with self.lock(LockName.CONFIG).held(signed=False):
            yield

    # --- the metadata branch -----------------------------------------------------------------------------------------

    def initialize(self) -> bool:
        """Make the metadata branch if there is none; whether it was made. spec: Initialization."""
        with self.lock(LockName.ID).held(signed=False):
            if self.queue().metadata is not None:
                return False
            self._make_metadata()
            return True

    def _make_metadata(self) -> None:
        workspace, _ = self.workspaces.make(self.own_workspace(), "root()", message=_METADATA_MESSAGE)
        try:
            _write_file(Path(workspace.path) / LAST_ID, b"0")
            self.jj.bookmark_working_copy(Path(workspace.path), METADATA)
        finally:
            self.workspaces.drop(workspace)

    def take_id(self, floor: int = 0) -> tuple[int, Callable[[], None]]:
        """The next sequence id, counted up on the metadata branch, and what is to be cleaned up outside the lock.

        Call it under the id lock. `floor`: an id that is known to be in use.
        """

        def count(folder: Path) -> int:
            path = folder / LAST_ID
            number = next_id(max(parse_last_id(path.read_bytes() if path.exists() else None), floor))
            _write_file(path, str(number).encode())
            return number

        return self._edit_metadata(count)

    def write_config(self, key: str, value: str) -> None:
        """Store one value. Call it under the config lock."""
        self.write_metadata({f"{_CONFIG}/{key}": value.encode()})
        if key == TRUNK_BOOKMARK:
            self._remember_trunk(value)

    def write_metadata(self, files: dict[str, bytes]) -> None:
        """Put files on the metadata branch. Call it under the lock that they belong to."""

        def write(folder: Path) -> None:
            for name, content in files.items():
                _write_file(folder / name, content)

        _, clean_up = self._edit_metadata(write)
        clean_up()

    def _edit_metadata(self, edit: Callable[[Path], _R]) -> tuple[_R, Callable[[], None]]:
        """Change files of the metadata branch in place: its head stays one revision, whatever is counted on it."""
        workspace, _ = self.workspaces.make(self.own_workspace(), METADATA_REVISION)
        try:
            result = edit(Path(workspace.path))
            self.jj.amend_parent(Path(workspace.path))
        except BaseException:
            self.workspaces.drop(workspace)
            raise
        return result, lambda: self.workspaces.drop(workspace)

    def own_workspace(self) -> str:
        # spec: Workspace Naming; the time tells apart two of one process
        return f"jjq-{os.getpid()}-{int(self.clock.monotonic() * 1e6) % 10**9}"

    # --- sweeping ----------------------------------------------------------------------------------------------------

    def sweep(self, changes: Sequence[str] = ()) -> None:
        """Abandon merge revisions of ours, and these changes, wherever nothing of anybody else stands on or at them.

        What a bookmark, a tag, a remote or a workspace holds, and what has descendants that are not ours, stays.
        """
        self.jj.abandon(_unneeded(changes))

    def leftover_merges(self) -> list[Commit]:
        """What `sweep` would abandon."""
        return self.jj.commits(_unneeded(()))

    # --- files beside the shared repository --------------------------------------------------------------------------

    def log_path(self, number: int) -> Path:
        """The output of an item's checks."""
        return self.home.logs / f"{sequence_id(number)}.log"

    def tell(self, trunk: str) -> Teller:
        return Teller(source=self.home.source, queue=trunk, now=self.clock.now, actor=f"jjq/{os.getpid()}")

    def known_trunk(self) -> str:
        """The name of the trunk bookmark as it was last read, for the journal."""
        with suppress(OSError):
            return (self.home.private / "trunk").read_text(encoding="utf-8")
        return self.look()[0].trunk_bookmark

    def _remember_trunk(self, name: str) -> None:
        path = self.home.private / "trunk"
        with suppress(OSError):
            if self.home.private.is_dir() and (not path.exists() or path.read_text(encoding="utf-8") != name):
                path.write_text(name, encoding="utf-8")

    def write_failure(self, failure: Failure) -> None:
        self._write(self.home.failures / f"{sequence_id(failure.id)}.json", failure)

    def failure(self, number: int) -> Failure | None:
        """What is known about a failed item; None if another tool failed it, or the note was lost."""
        with suppress(OSError, *NOT_UNDERSTOOD):
            return msgspec.json.decode((self.home.failures / f"{sequence_id(number)}.json").read_bytes(), type=Failure)
        return None

    def drop_failure(self, number: int) -> None:
        with suppress(OSError):
            (self.home.failures / f"{sequence_id(number)}.json").unlink()

    @property
    def _landing(self) -> Path:
        return self.home.private / "landing.json"

    @property
    def _requeue(self) -> Path:
        return self.home.private / "requeue.json"

    @property
    def run_mark(self) -> Path:
        """There while a run is under way; still there afterwards if it died."""
        return self.home.private / "run.json"

    def landing(self) -> Landing | None:
        return _read(self._landing, Landing)

    def begin_landing(self, landing: Landing) -> None:
        self._write(self._landing, landing)

    def end_landing(self) -> None:
        self._landing.unlink(missing_ok=True)

    def requeue(self) -> Requeue | None:
        return _read(self._requeue, Requeue)

    def begin_requeue(self, requeue: Requeue) -> None:
        self._write(self._requeue, requeue)

    def end_requeue(self) -> None:
        self._requeue.unlink(missing_ok=True)

    def begin_run(self) -> None:
        me = proc.own_identity()
        self._write(self.run_mark, _Runner(pid=me.pid, started=me.started))

    def end_run(self) -> None:
        self.run_mark.unlink(missing_ok=True)

    def run_died(self) -> bool:
        """Whether a run began and its process is gone."""
        try:
            runner = msgspec.json.decode(self.run_mark.read_bytes(), type=_Runner)
        except FileNotFoundError:
            return False
        except (OSError, *NOT_UNDERSTOOD):
            return True
        return not proc.is_alive(proc.Identity(runner.pid, runner.started))

    def _write(self, path: Path, value: msgspec.Struct) -> None:
        with explaining("make", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, msgspec.json.encode(value))

    # --- check results -----------------------------------------------------------------------------------------------

    def has_passed(self, tree: str | None, command: str) -> bool:
        """Whether this very tree passed this very command before."""
        wanted = _digest(command)
        return tree is not None and any(one.tree == tree and one.command == wanted for one in self._passed())

    def remember_pass(self, tree: str | None, command: str) -> None:
        if tree is None:
            return
        one = Passed(tree=tree, command=_digest(command), at=to_rfc3339(self.clock.now()))
        with explaining("make", self.home.private):
            self.home.private.mkdir(parents=True, exist_ok=True)
        append_lines(self._results, [msgspec.json.encode(one)], durable=False)
        known = self._passed()
        if len(known) > 2 * _KEPT_RESULTS:
            replace_file(self._results, b"".join(msgspec.json.encode(old) + b"\n" for old in known[-_KEPT_RESULTS:]))

    @property
    def _results(self) -> Path:
        return self.home.private / "passed.jsonl"

    def _passed(self) -> list[Passed]:
        decoder = msgspec.json.Decoder(Passed)
        return [line.value for line in read_lines(self._results, decoder.decode, on_bad=lambda _: None)]

    def tree_of(self, commit: Commit) -> str | None:
        """The git tree of a revision that jj made just now; None where it cannot be told.

        Read from the loose object that jj wrote: asking jj which trees are equal would cost a call for each.
        """
        store = self.home.repo / "store"
        with suppress(OSError, ValueError, zlib.error):
            git = Path(os.path.normpath(store / (store / "git_target").read_text(encoding="utf-8").strip()))
            raw = zlib.decompress((git / "objects" / commit.commit_id[:2] / commit.commit_id[2:]).read_bytes())
            header, _, rest = raw.partition(b"\0tree ")
            if header.startswith(b"commit "):
                return rest[: rest.index(b"\n")].decode("ascii")
        return None


class _Runner(msgspec.Struct, frozen=True):
    pid: int
    started: str


class _KnownVersion(msgspec.Struct, frozen=True):
    key: list[str | int]
    version: str
    at: float


def _unneeded(changes: Sequence[str]) -> str:
    message = f'description(regex:"(?m)^{SEQUENCE}: [0-9]+$")'
    ours = " | ".join([f"(ancestors(visible_heads(), 50) & {message})", *(f"change_id({one})" for one in changes)])
    kept = f"::((visible_heads() ~ ({ours})) | bookmarks() | remote_bookmarks() | tags() | working_copies())"
    return f"({ours}) ~ {kept}"


def _read(path: Path, kind: type[_S]) -> _S | None:
    decoder = msgspec.json.Decoder(kind)
    return read_document(path, decoder.decode, repair=f"It only helps to finish what died: rm {path}")


def _write_file(path: Path, content: bytes) -> None:
    with explaining("write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _digest(command: str) -> str:
    return hashlib.sha256(command.encode("utf-8", "surrogatepass")).hexdigest()
