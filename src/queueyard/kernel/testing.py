"""Test doubles and checkers, shipped for the tests of those who build on Queueyard.

- `FakeClock`: time that moves only when told.
- `FaultyFiles`: a file layer that dies at a chosen step and then forgets what was not fsynced.
- `ClaimHistory`: records who accepted, started and finished what, and says which promise was broken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
import os
from pathlib import Path
import threading
from typing import TYPE_CHECKING, TypeVar

from queueyard.kernel.atomic import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_R = TypeVar("_R")
_Inode = tuple[int, int]


class FakeClock:
    """A clock that stands still until `advance` or `sleep` moves it."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._monotonic = 0.0
        self._guard = threading.Lock()

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        with self._guard:
            self._now += timedelta(seconds=seconds)
            self._monotonic += max(0.0, seconds)


class Died(BaseException):
    """The simulated death of the process; no `except Exception` may survive it."""


class Loss(Enum):
    """What a power cut takes of the bytes that were written but not fsynced."""

    NOTHING = "nothing"
    HALF = "half"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Step:
    """One call to the file layer: the n-th, its name and its file."""

    number: int
    call: str
    path: str


class FaultyFiles(Files):
    """Real files below `root`, with a death at a chosen step and a power cut that keeps only what is durable.

    The model is the strict one of POSIX: content is durable after fsync of the file, a name (created, renamed or
    removed) after fsync of its folder. Run the code once with `FaultyFiles(root)` and look at `steps`; then, for each
    step, run it again with `die_at=n` and `after=` False and True, call `power_cut`, and check what is left.
    """

    def __init__(self, root: Path, *, die_at: int | None = None, after: bool = False) -> None:
        self.steps: list[Step] = []
        self._root = root
        self._die_at = die_at
        self._after = after
        self._dead = False
        self._path_of: dict[int, str] = {}
        self._kept: list[int] = []
        self._durable_content: dict[_Inode, bytes] = {}
        self._durable_names: dict[str, _Inode] = {}
        for path in _files_below(root):
            self._durable_names[str(path)] = _inode(path)
            self._durable_content[_inode(path)] = path.read_bytes()

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        def act() -> int:
            descriptor = super(FaultyFiles, self).open(path, flags, mode)
            self._path_of[descriptor] = path
            return descriptor

        return self._step("open", path, act)

    def write(self, descriptor: int, data: bytes) -> int:
        return self._step("write", self._path_of[descriptor], lambda: super(FaultyFiles, self).write(descriptor, data))

    def truncate(self, descriptor: int, length: int) -> None:
        path = self._path_of[descriptor]
        self._step("truncate", path, lambda: super(FaultyFiles, self).truncate(descriptor, length))

    def fsync(self, descriptor: int) -> None:
        self._step("fsync", self._path_of[descriptor], lambda: self._make_content_durable(descriptor))

    def rename(self, source: str, target: str) -> None:
        self._keep_inode(target)
        self._step("rename", target, lambda: super(FaultyFiles, self).rename(source, target))
        self._path_of = {number: target if path == source else path for number, path in self._path_of.items()}

    def unlink(self, path: str) -> None:
        self._keep_inode(path)
        self._step("unlink", path, lambda: super(FaultyFiles, self).unlink(path))

    def fsync_folder(self, path: str) -> None:
        self._step("fsync_folder", path, lambda: self._make_names_durable(path))

    def close(self, descriptor: int) -> None:
        # A dead process closes its files too: the kernel does it.
        self._path_of.pop(descriptor, None)
        super().close(descriptor)

    def power_cut(self, *, bytes_lost: Loss, names_lost: bool) -> None:
        """Leave below `root` what a machine would find after the power came back."""
        content = {_inode(path): path.read_bytes() for path in _files_below(self._root)}
        names = {str(path): _inode(path) for path in _files_below(self._root)}
        modes = {str(path): path.stat().st_mode for path in _files_below(self._root)}
        for path in list(names):
            Path(path).unlink()
        for name, inode in (self._durable_names if names_lost else names).items():
            durable = self._durable_content.get(inode, b"")
            left = _after_loss(durable, content.get(inode, durable), bytes_lost)
            Path(name).write_bytes(left)
            Path(name).chmod(modes.get(name, 0o644) & 0o7777)
        # A process that died right after an open had no chance to close it.
        for descriptor in [*self._kept, *self._path_of]:
            os.close(descriptor)
        self._kept.clear()
        self._path_of.clear()

    def _step(self, call: str, path: str, act: Callable[[], _R]) -> _R:
        if self._dead:
            raise Died
        self.steps.append(Step(len(self.steps), call, path))
        dies_here = self.steps[-1].number == self._die_at
        if dies_here and not self._after:
            self._dead = True
            raise Died
        result = act()
        if dies_here:
            self._dead = True
            raise Died
        return result

    def _keep_inode(self, path: str) -> None:
        # A file system gives the number of a removed file to the next one, and we tell files apart by it.
        if Path(path).exists():
            self._kept.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def _make_content_durable(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._durable_content[status.st_dev, status.st_ino] = Path(self._path_of[descriptor]).read_bytes()

    def _make_names_durable(self, folder: str) -> None:
        elsewhere = {name: inode for name, inode in self._durable_names.items() if Path(name).parent != Path(folder)}
        here = {str(path): _inode(path) for path in sorted(Path(folder).iterdir()) if path.is_file()}
        self._durable_names = elsewhere | here


def _files_below(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob("*")) if path.is_file())


def _inode(path: Path) -> _Inode:
    status = path.stat()
    return status.st_dev, status.st_ino


def _after_loss(durable: bytes, current: bytes, lost: Loss) -> bytes:
    if lost is Loss.NOTHING:
        return current
    if lost is Loss.ALL:
        return durable
    kept = len(durable) if current.startswith(durable) else 0
    return current[: kept + (len(current) - kept) // 2]


@dataclass
class ClaimHistory:
    """What happened to items that are claimed under tokens; thread-safe; `violations()` says what went wrong.

    Checked: each accepted item is started at least once and finished exactly once, by the holder of a live token;
    never two live tokens for one item; nothing is started that was not accepted.
    """

    _moves: list[tuple[str, str, str]] = field(default_factory=list)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def accepted(self, item: str) -> None:
        self._add("accepted", item, "")

    def started(self, item: str, token: str) -> None:
        self._add("started", item, token)

    def finished(self, item: str, token: str) -> None:
        self._add("finished", item, token)

    def lost(self, item: str, token: str) -> None:
        """The token ended without a finish: its holder died, was told to stop, or handed the item back."""
        self._add("lost", item, token)

    def violations(self, *, all_done: bool = True) -> list[str]:
        """Every broken promise, in order; with `all_done`, items that never finished count too."""
        found: list[str] = []
        accepted: set[str] = set()
        live: dict[str, set[str]] = {}
        finishes: dict[str, int] = {}
        for move, item, token in self._moves:
            holders = live.setdefault(item, set())
            if move == "accepted":
                accepted.add(item)
            elif move == "started":
                if item not in accepted:
                    found.append(f"{item} was started but never accepted")
                if holders:
                    found.append(f"{item} was started under {token} while {', '.join(sorted(holders))} is live")
                holders.add(token)
            elif token not in holders:
                found.append(f"{item} was {move} under {token}, which is not live")
            else:
                holders.remove(token)
            if move == "finished":
                finishes[item] = finishes.get(item, 0) + 1
                if finishes[item] > 1:
                    found.append(f"{item} was finished {finishes[item]} times")
        if all_done:
            found += [f"{item} was never finished" for item in sorted(accepted) if item not in finishes]
        return found

    def _add(self, move: str, item: str, token: str) -> None:
        with self._guard:
            self._moves.append((move, item, token))
