"""Where jjq lives: the workspace that the caller stands in, and the repository that all its workspaces share.

In the first workspace `.jj/repo` is a folder; in every other one it is a file that holds a path to that folder,
relative to `.jj` since jj 0.39 and absolute before. Everything that must be one for all workspaces (locks, journal,
logs) therefore stands below that folder, in `jjq/`, where no working copy reaches.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path

from queueyard.jjq.errors import NotARepository
from queueyard.kernel.errors import explaining


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The folders of one repository, seen from one workspace."""

    #: where the caller stands
    cwd: Path
    #: the root of the workspace around it
    workspace: Path
    #: the folder that all workspaces share
    repo: Path

    @property
    def source(self) -> str:
        """The repository's name in events: the root of its first workspace."""
        return str(self.repo.parent.parent)

    @property
    def private(self) -> Path:
        return self.repo / "jjq"

    @property
    def anchor(self) -> Path:
        """A workspace that jj has forgotten: commands that stand in it snapshot nobody's files."""
        return self.private / "anchor"

    @property
    def locks(self) -> Path:
        return self.private / "locks"

    @property
    def public_locks(self) -> Path:
        """Where the public tool of this format keeps its lock files, in the first workspace."""
        return self.repo.parent / "jjq-locks"

    @property
    def workspaces(self) -> Path:
        return self.private / "workspaces"

    @property
    def failures(self) -> Path:
        return self.private / "failures"

    @property
    def logs(self) -> Path:
        return self.private / "logs"

    @property
    def journal(self) -> Path:
        return self.private / "journal.jsonl"

    @property
    def operations(self) -> Path:
        """Changes whenever anybody changes anything in the repository."""
        return self.repo / "op_heads" / "heads"


def find_home(start: Path) -> Home:
    """The home for a caller in `start`. NotARepository if there is no `.jj` there or above."""
    workspace = next((folder for folder in (start, *start.parents) if (folder / ".jj").is_dir()), None)
    if workspace is None:
        raise NotARepository(
            f"not in a jj repository: no .jj in {start} or above", hint="Make one: jj git init    or go to one: cd ..."
        )
    return Home(cwd=start, workspace=workspace, repo=shared_repo(workspace))


def shared_repo(workspace: Path) -> Path:
    """The folder behind `.jj/repo`. NotARepository if it leads nowhere."""
    link = workspace / ".jj" / "repo"
    repo = link
    if link.is_file():
        with explaining("read", link):
            text = link.read_text(encoding="utf-8").strip()
        repo = Path(os.path.normpath(link.parent / text))
    if not repo.is_dir():
        raise NotARepository(f"{link} leads to {repo}, which is no folder", hint=f"Look at it: cat {link}")
    return repo.resolve()
