"""Temporary workspaces: made outside every working copy, noted before jj hears of them, gone when their time is over.

The note is what lets the next command clean up after one that died. A workspace that is kept for somebody to look at is
noted as preserved, and stays until `jjq clean`.
"""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import BadTemporary, JjFailed
from queueyard.jjq.records import Made, Workspace
from queueyard.kernel import proc
from queueyard.kernel.atomic import NOT_UNDERSTOOD, replace_file
from queueyard.kernel.errors import explaining
from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from queueyard.jjq.home import Home
    from queueyard.jjq.jj import Jj

_ANCHOR_NAME = "jjq-anchor"


class Workspaces:
    """The temporary workspaces of one repository."""

    def __init__(self, home: Home, jj: Jj, *, note: Callable[[str], None]) -> None:
        self._home = home
        self._jj = jj
        self._note = note

    def make(self, name: str, *parents: str, message: str | None = None) -> tuple[Workspace, Made]:
        """A new one whose working copy stands on these revisions. BadTemporary if there is no place for it."""
        self.stand_on_anchor()
        me = proc.own_identity()
        folder = self._temporary(name) / "work"
        workspace = Workspace(name=name, path=str(folder), pid=me.pid, started=me.started)
        self._write(workspace)
        try:
            made = self._jj.add_workspace(name, folder, *parents, message=message)
        except JjFailed:
            self.drop(workspace)
            raise
        workspace = msgspec.structs.replace(workspace, change_id=made.commit.change_id)
        self._write(workspace)
        return workspace, made

    def rename(self, workspace: Workspace, name: str) -> Workspace:
        """Give a workspace to another item."""
        renamed = msgspec.structs.replace(workspace, name=name)
        self._write(renamed)
        self._jj.rename_workspace(Path(workspace.path), name)
        self._unnote(workspace)
        return renamed

    def now_at(self, workspace: Workspace, made: Made) -> Workspace:
        moved = msgspec.structs.replace(workspace, change_id=made.commit.change_id)
        self._write(moved)
        return moved

    def preserve(self, workspace: Workspace) -> Workspace:
        """Keep it for somebody to look at."""
        kept = msgspec.structs.replace(workspace, preserved=True)
        self._write(kept)
        return kept

    def drop(self, *workspaces: Workspace) -> None:
        """Forget them, remove their folders and their notes. A folder that cannot be removed is told, no more."""
        if workspaces:
            self.forget(*(one.name for one in workspaces))
        for one in workspaces:
            self.remove_folder(one.path)
            self._unnote(one)

    def forget(self, *names: str) -> None:
        """Tell jj that they are gone. One that jj does not know is fine, in every version."""
        try:
            self._jj.forget_workspaces(*names)
        except JjFailed:
            known = [name for name in self._jj.workspaces() if name in names]
            if known:
                self._jj.forget_workspaces(*known)

    def remove_folder(self, path: str) -> None:
        """Remove the temporary folder around a workspace."""
        folder = Path(path).parent
        if folder.name.startswith("jjq-"):
            remove_tree(folder, self._note)

    def unnote(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(OSError):
                self._note_path(name).unlink()

    def all(self) -> list[Workspace]:
        """Every one that is noted. A note that cannot be read is as good as none: `doctor` finds its workspace."""
        found: list[Workspace] = []
        try:
            paths = sorted(self._home.workspaces.iterdir())
        except FileNotFoundError:
            return []
        for path in paths:
            if path.suffix == ".json":
                with suppress(OSError, *NOT_UNDERSTOOD):
                    found.append(msgspec.json.decode(path.read_bytes(), type=Workspace))
        return found

    def abandoned(self) -> list[Workspace]:
        """Those whose maker is dead and that nobody wanted to keep."""
        return [
            one for one in self.all() if not one.preserved and not proc.is_alive(proc.Identity(one.pid, one.started))
        ]

    def of(self, name: str) -> Workspace | None:
        return next((one for one in self.all() if one.name == name), None)

    # --- the anchor --------------------------------------------------------------------------------------------------

    def use_anchor(self) -> bool:
        """Stand on the anchor if there is one that leads here; without a call."""
        ready = self._anchor_is_ready()
        if ready:
            self._jj.folder = self._home.anchor
        return ready

    def stand_on_anchor(self) -> None:
        """From now on jj is called in a workspace that it has forgotten.

        Adding a workspace snapshots the one that the call stands in, and fails if that one is stale. A forgotten one
        has nothing to snapshot. It is made once per repository.
        """
        if self._jj.folder == self._home.anchor or self.use_anchor():
            return
        with explaining("make", self._home.locks):
            self._home.locks.mkdir(parents=True, exist_ok=True)
        with FileLock(self._home.locks / "anchor.lock"):
            if not self._anchor_is_ready():
                self._make_anchor()
        self.use_anchor()

    def _anchor_is_ready(self) -> bool:
        # Before 0.39 the link is absolute: a repository that was moved has an anchor that leads nowhere.
        link = self._home.anchor / ".jj" / "repo"
        if not (self._home.private / "anchor.ready").exists() or not link.is_file():
            return False
        target = Path(os.path.normpath(link.parent / link.read_text(encoding="utf-8").strip()))
        return target.is_dir() and target.samefile(self._home.repo)

    def _make_anchor(self) -> None:
        ready = self._home.private / "anchor.ready"
        with explaining("make", self._home.anchor):
            ready.unlink(missing_ok=True)
            if self._home.anchor.exists():
                shutil.rmtree(self._home.anchor)
        # One that died halfway may still be registered.
        self.forget(_ANCHOR_NAME)
        me = proc.own_identity()
        self._write(Workspace(name=_ANCHOR_NAME, path=str(self._home.anchor), pid=me.pid, started=me.started))
        self._jj.add_anchor(_ANCHOR_NAME, self._home.anchor, cwd=self._home.cwd)
        self.forget(_ANCHOR_NAME)
        self.unnote([_ANCHOR_NAME])
        with explaining("write", ready):
            ready.touch()

    # --- folders and notes -------------------------------------------------------------------------------------------

    def _temporary(self, name: str) -> Path:
        root = self._temporary_root()
        for workspace in {self._home.workspace.resolve(), self._home.repo.parent.parent}:
            if root == workspace or workspace in root.parents:
                raise BadTemporary(
                    f"the temporary folder {root} lies inside the repository {workspace}",
                    hint="Name one outside: TMPDIR=/tmp jjq ...",
                )
        try:
            return Path(tempfile.mkdtemp(prefix=f"jjq-{name.rpartition('/')[2]}-", dir=root))
        except OSError as fault:
            raise BadTemporary(
                f"no workspace can be made in {root}: {fault.strerror}",
                hint=f"Look at it: ls -ld {root}    or name another: TMPDIR=/somewhere jjq ...",
            ) from fault

    def _temporary_root(self) -> Path:
        # Where TMPDIR is wrong the standard library silently takes another folder, at worst the current one.
        try:
            return Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).resolve()
        except FileNotFoundError as fault:
            raise BadTemporary(
                str(fault), hint="Name a folder that can be written: TMPDIR=/somewhere jjq ..."
            ) from fault

    def _note_path(self, name: str) -> Path:
        return self._home.workspaces / f"{name.replace('/', '--')}.json"

    def _write(self, workspace: Workspace) -> None:
        with explaining("make", self._home.workspaces):
            self._home.workspaces.mkdir(parents=True, exist_ok=True)
        replace_file(self._note_path(workspace.name), msgspec.json.encode(workspace))

    def _unnote(self, workspace: Workspace) -> None:
        self.unnote([workspace.name])


def remove_tree(folder: Path, note: Callable[[str], None]) -> None:
    """Remove a folder with all that is in it, also what a build tool made read-only; what stays is told."""
    with suppress(FileNotFoundError):
        for root, folders, _ in os.walk(folder):
            for name in (".", *folders):
                path = Path(root, name)
                if not path.is_symlink() and not os.access(path, os.W_OK | os.X_OK):
                    with suppress(OSError):
                        path.chmod(stat.S_IRWXU)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as fault:
            note(f"{folder} could not be removed: {fault.strerror}")
