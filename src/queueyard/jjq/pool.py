"""Workspaces that are used again by one check after the other, and keep what the repository ignores: build output.

A workspace of the pool stands above the merge that it checks, on a revision of its own. Whatever a check leaves there
goes into that revision when the workspace moves on, and so disappears from disk; the merge below is never touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.jjq.errors import JjFailed
from queueyard.jjq.jj import pinned
from queueyard.jjq.rules import run_workspace

if TYPE_CHECKING:
    from queueyard.jjq.records import Merge, Workspace
    from queueyard.jjq.store import Store


class Pool:
    """At most `size` workspaces, made when they are first needed."""

    def __init__(self, store: Store, size: int) -> None:
        self._store = store
        self._size = size
        self._idle: list[Workspace] = []
        self._busy: dict[str, Workspace] = {}
        self._held: dict[str, Workspace] = {}
        #: change ids of revisions that workspaces left behind
        self.left_behind: list[str] = []

    @property
    def free(self) -> int:
        return self._size - len(self._busy)

    def take(self, merge: Merge) -> Workspace:
        """A workspace that stands on this merge. JjFailed if the merge was rewritten meanwhile."""
        name = run_workspace(merge.id)
        idle = next((one for one in self._idle if one.name == name), self._idle[-1] if self._idle else None)
        workspace = self._moved(idle, name, merge) if idle else None
        if workspace is None:
            workspace, _ = self._store.workspaces.make(name, pinned(merge.commit))
        self._busy[workspace.path] = workspace
        return workspace

    def give_back(self, workspace: Workspace) -> None:
        self._busy.pop(workspace.path, None)
        self._held.pop(workspace.path, None)
        self._idle.append(workspace)

    def hold(self, workspace: Workspace) -> None:
        """Leave it as it is for now, since somebody may want to look at it; meanwhile another one may be made."""
        self._held[workspace.path] = self._busy.pop(workspace.path)

    def give_away(self, workspace: Workspace) -> None:
        """It is no longer ours."""
        self._busy.pop(workspace.path, None)
        self._held.pop(workspace.path, None)

    def free_name(self, name: str) -> None:
        """No idle workspace has this name any more."""
        for one in [one for one in self._idle if one.name == name]:
            self._idle.remove(one)
            self._drop(one)

    def close(self) -> None:
        """Remove all workspaces."""
        self._drop(*self._idle, *self._busy.values(), *self._held.values())
        self._idle.clear()
        self._busy.clear()
        self._held.clear()

    def _drop(self, *workspaces: Workspace) -> None:
        self.left_behind += [one.change_id for one in workspaces if one.change_id]
        self._store.workspaces.drop(*workspaces)

    def _moved(self, idle: Workspace, name: str, merge: Merge) -> Workspace | None:
        self._idle.remove(idle)
        workspaces = self._store.workspaces
        left = idle.change_id
        try:
            if idle.name != name:
                idle = workspaces.rename(idle, name)
            made = self._store.jj.move_workspace(Path(idle.path), merge.commit)
        except JjFailed:
            # Stale, because a candidate below it was rewritten, or broken by its check: a new one is simpler.
            self._drop(idle)
            return None
        self.left_behind += [left] if left else []
        return workspaces.now_at(idle, made)
