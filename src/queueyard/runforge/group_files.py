"""The group.json files: the only place in runforge that reads or writes them.

Several may write one: commands, the daemon, and tools that do not lock. Ours hold the lock around read-modify-write;
each change reads the file as it is then, touches only what it is about, and keeps every key that it does not know.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, NOT_UNDERSTOOD, Files, read_document, replace_file
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock
from queueyard.kernel.errors import CorruptFile, StorageFailed, explaining
from queueyard.kernel.locks import FileLock
from queueyard.runforge.errors import InvalidPlan
from queueyard.runforge.groups import fault_of, is_paused, new_group, places_of, put_job, put_result, summarise
from queueyard.runforge.plans import SweepPlan, read_plan
from queueyard.runforge.records import ENDED, decode_raw, encode_rows
from queueyard.runforge.rules import latest_by_run, local_iso
from queueyard.runforge.run_files import read_result
from queueyard.runforge.store import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from queueyard.runforge.records import Fingerprint, Job, Raw
    from queueyard.runforge.workspace import Workspace

PLAN = "plan.json"

_MOST_REMEMBERED = 4


@dataclass(slots=True)
class _Seen:
    """A group as it was when we last read or wrote it."""

    file: Fingerprint | None
    raw: Raw
    places: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Pause:
    """Whether a group was paused when its file was last looked at."""

    path: str
    file: Fingerprint | None
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Saved:
    """A group as it was written."""

    raw: Raw
    #: whether it was running before, and is over now
    just_ended: bool


class GroupFiles:
    """The groups of one workspace."""

    def __init__(self, workspace: Workspace, *, clock: Clock = SYSTEM_CLOCK, files: Files = FILES) -> None:
        self._workspace = workspace
        self._clock = clock
        self._files = files
        self._lock = FileLock(workspace.groups_lock, timeout_s=30.0, clock=clock)
        #: the groups that were used last, the latest at the end
        self._seen: dict[str, _Seen] = {}
        self._paused: dict[str, _Pause] = {}

    def read(self, group_id: str) -> Raw | None:
        """The group, or None where it has no file. CorruptFile if the file makes no sense."""
        seen = self._current(group_id)
        return None if seen is None else seen.raw

    def all_ids(self) -> list[str]:
        """The groups that have a folder."""
        with explaining("read", self._workspace.groups_folder):
            try:
                return sorted(path.name for path in self._workspace.groups_folder.iterdir() if path.is_dir())
            except FileNotFoundError:
                return []

    def plan(self, group_id: str) -> SweepPlan | None:
        """The plan that a group was made from; None where there is none, or none that can be used."""
        path = self._workspace.group_folder(group_id) / PLAN
        raw = read_document(path, decode_raw, repair=f"Look at it: cat {path}")
        return None if raw is None else read_plan(raw)

    def is_paused(self, group_id: str) -> bool:
        """Whether a group is paused; asked before each start, so a file that did not change is not read.

        A file that makes no sense pauses nothing: others may be writing it.
        """
        known = self._paused.get(group_id)
        path = known.path if known else str(self._workspace.group_file(group_id))
        file = fingerprint(path)
        if known is None or known.file != file:
            known = self._paused[group_id] = _Pause(path, file, file is not None and _says_paused(path))
        return known.is_paused

    def write_new(self, group_id: str, raw: Raw) -> None:
        """The first group.json of a group."""
        with self._locked():
            self._write(group_id, _Seen(None, raw, {}))

    def change(self, group_id: str, act: Callable[[Raw], None]) -> Raw | None:
        """Let `act` change the group as it is now; None where it has no file."""
        with self._locked():
            seen = self._current(group_id)
            if seen is None:
                return None
            act(seen.raw)
            self._write(group_id, seen)
            return seen.raw

    def save_jobs(
        self,
        group_id: str,
        jobs: Callable[[], Iterable[Job]],
        *,
        all_jobs: Callable[[], Iterable[Job]] | None = None,
        cancelled: bool | None = None,
    ) -> Saved:
        """Let the group say what the queue says of these jobs.

        `jobs` is called under the lock and must look at the queue as it is then: who comes later to the lock knows at
        least as much, so that no older word ever replaces a newer one. A group without a file, because it has no plan
        or its maker died before it wrote one, is made from `all_jobs`, in the order in which they came. `cancelled`
        says whether somebody wants it canceled; None changes nothing.
        """
        with self._locked():
            at = local_iso(self._clock.now())
            known = latest_by_run(jobs()).values()
            seen = self._current(group_id)
            if seen is None:
                known = latest_by_run(all_jobs()).values() if all_jobs else known
                raw = self._made_anew(group_id, known, at)
                seen = _Seen(None, raw, places_of(raw))
            raw = seen.raw
            was = raw.get("status")
            for job in known:
                self._tell(seen, job)
            if cancelled is not None and isinstance(raw.get("execution"), dict):
                raw["execution"]["cancelled"] = cancelled
            summarise(raw, at=at)
            self._keep(group_id, seen)
            self._write(group_id, seen)
        return Saved(raw=raw, just_ended=was == "running" != raw["status"])

    def forget(self, group_id: str) -> None:
        """Give the memory of a group back; it is read again when it is needed."""
        self._seen.pop(group_id, None)

    # --- inside ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._workspace.make_queue_folder()
        with self._lock:
            yield

    def _tell(self, seen: _Seen, job: Job) -> None:
        """Let the group tell one job; an end that it tells already is not looked up again."""
        place = seen.places.get(job.run_id)
        if place is not None and job.state in ENDED and seen.raw["runs"][place].get("status") == job.state:
            return
        run = put_job(seen.raw, seen.places, job)
        if job.state in ENDED:
            put_result(run, read_result(self._workspace.run_folder(job.run_id)) if job.started_at else None)

    def _current(self, group_id: str) -> _Seen | None:
        path = self._workspace.group_file(group_id)
        with explaining("read", path):
            file = fingerprint(path)
        if file is None:
            self._seen.pop(group_id, None)
            return None
        seen = self._seen.get(group_id)
        if seen is None or seen.file != file:
            raw = read_document(path, _decode_group, repair=_repair(self._workspace, path))
            if raw is None:
                return None
            seen = _Seen(file, raw, places_of(raw))
        self._keep(group_id, seen)
        return seen

    def _keep(self, group_id: str, seen: _Seen) -> None:
        """Remember the few groups that are changed again and again; all of them would fill the memory."""
        self._seen.pop(group_id, None)
        self._seen[group_id] = seen
        while len(self._seen) > _MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _made_anew(self, group_id: str, jobs: Iterable[Job], at: str) -> Raw:
        plan: SweepPlan | None = None
        with suppress(InvalidPlan, CorruptFile):
            plan = self.plan(group_id)
        return new_group(group_id, latest_by_run(jobs), at=at, plan=plan)

    def _write(self, group_id: str, seen: _Seen) -> None:
        path = self._workspace.group_file(group_id)
        with explaining("make", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            replace_file(path, encode_rows(seen.raw, "runs"), files=self._files)
        except StorageFailed:
            # What we hold is not what the file says.
            self._seen.pop(group_id, None)
            raise
        seen.file = fingerprint(path)
        self._paused[group_id] = _Pause(str(path), seen.file, is_paused(seen.raw))


class _PausedOnly(msgspec.Struct):
    """All that the scheduler needs of a group.json, however long it is."""

    paused: bool = False


_paused_decoder = msgspec.json.Decoder(_PausedOnly)


def _says_paused(path: str) -> bool:
    try:
        return _paused_decoder.decode(Path(path).read_bytes()).paused
    except (OSError, *NOT_UNDERSTOOD):
        return False


def _decode_group(data: bytes) -> Raw:
    raw: Raw = decode_raw(data)
    fault = fault_of(raw)
    if fault:
        raise ValueError(fault)
    return raw


def _repair(workspace: Workspace, path: Path) -> str:
    return f"Rebuild it from the queue: runforge-cli doctor --fix --workspace {workspace.root}    ({path})"
