"""Where things stand in a workspace: the contract's files, ours beside them, and the folders of groups and runs.

Every id that becomes a folder goes through `kernel.paths` here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.errors import explaining
from queueyard.kernel.paths import safe_join, safe_segment
from queueyard.runforge.errors import NoWorkspace

if TYPE_CHECKING:
    from collections.abc import Mapping

_MARKS = (".runforge", ".ml")
_MOST_REMEMBERED = 1000


class Workspace:
    """One folder with runs and a queue."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root_text = str(root)
        # spec: File Locations
        self.queue_folder = root / ".runforge" / "queue"
        self.queue_file = self.queue_folder / "queue.json"
        self.daemon_file = self.queue_folder / "daemon.json"
        self.daemon_lock = self.queue_folder / "daemon.lock"
        self.groups_folder = root / ".runforge" / "groups"
        self.runs_folder = root / ".ml" / "runs"
        #: ours: the checkpoint that the journal goes on from
        self.sidecar = self.queue_folder / "queueyard.json"
        #: ours: what the pipeline reads
        self.events = self.queue_folder / "events.jsonl"
        #: ours: held around every read-modify-write of the queue, except by the daemon (see README.md)
        self.lock = self.queue_folder / "queueyard.lock"
        #: ours: held around every read-modify-write of a group.json
        self.groups_lock = self.queue_folder / "queueyard-groups.lock"
        #: ours: a named pipe that the daemon reads
        self.wake = self.queue_folder / "queueyard.wake"
        #: ours: what a daemon says that a program started as its child
        self.daemon_log = self.queue_folder / "queueyard-daemon.log"
        #: asked for at the start and at the end of each run
        self._run_folders: dict[str, Path] = {}
        self.settings_file = root / ".runforge" / "queueyard.toml"

    def group_folder(self, group_id: str) -> Path:
        """UnsafePath for an id that would lead elsewhere."""
        return self.groups_folder / safe_segment(group_id)

    def group_file(self, group_id: str) -> Path:
        return self.group_folder(group_id) / "group.json"

    def run_folder(self, run_id: str) -> Path:
        """UnsafePath for an id that would lead elsewhere."""
        found = self._run_folders.get(run_id)
        if found is None:
            if len(self._run_folders) >= _MOST_REMEMBERED:
                self._run_folders.clear()
            found = self._run_folders[run_id] = self.runs_folder / safe_segment(run_id)
        return found

    def run_folder_followed(self, run_id: str) -> Path:
        """The same, with symbolic links followed and refused if they lead out of the folder of runs."""
        return safe_join(self.runs_folder, safe_segment(run_id))

    def journal(self, name: str) -> Path:
        return self.queue_folder / safe_segment(name)

    def make_queue_folder(self) -> None:
        with explaining("make", self.queue_folder):
            self.queue_folder.mkdir(parents=True, exist_ok=True)


def find_workspace(named: Path | None, environment: Mapping[str, str], start: Path) -> Workspace:
    """`--workspace`, else RUNFORGE_WORKSPACE, else the first folder upwards with .runforge or .ml. NoWorkspace."""
    if named is None and environment.get("RUNFORGE_WORKSPACE"):
        named = Path(environment["RUNFORGE_WORKSPACE"])
    if named is not None:
        # Symbolic links stay in the text that people see; only the current folder is put before it.
        root = Path(os.path.abspath(named))  # noqa: PTH100
        if not root.is_dir():
            raise NoWorkspace(f"Workspace not found: {root}", hint=f"Make it: mkdir -p {root}")
        return Workspace(root)
    for folder in (start, *start.parents):
        if any((folder / mark).is_dir() for mark in _MARKS):
            return Workspace(folder)
    raise NoWorkspace(
        f"no workspace in {start} or above: neither .runforge nor .ml is there",
        hint="Name one: --workspace PATH    or make this one: mkdir .runforge",
    )
