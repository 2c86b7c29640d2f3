"""Where queen lives: finds the `.beads` folder, and the root that patterns and paths are relative to.

Order: `BEADS_DIR`; else upwards from the current folder; in a linked git worktree, beside the common git folder, even
where the worktree has a checked-out copy of its own. A `.beads/redirect` file leads on to another folder. The droids
stand in `.factory/droids/` beside `.beads`.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import FILES, replace_file
from queueyard.kernel.errors import explaining
from queueyard.queen.errors import InvalidValue, NoBeads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MOST_REDIRECTS = 4


class Home(msgspec.Struct, frozen=True, kw_only=True):
    """The folders of one repository."""

    #: the `.beads` folder
    beads: Path
    #: the root of the work tree that the caller stands in
    root: Path

    @property
    def droids(self) -> Path:
        return self.beads.parent / ".factory" / "droids"

    @property
    def private(self) -> Path:
        """What belongs to this machine alone: index and locks; it keeps itself out of git."""
        return self.beads / ".queen"


def make_private(folder: Path) -> None:
    """Make the private folder, with a .gitignore of its own."""
    with explaining("make", folder):
        folder.mkdir(mode=0o755, exist_ok=True)
    if not (folder / ".gitignore").exists():
        replace_file(folder / ".gitignore", b"*\n")
        with explaining("make", folder):
            FILES.fsync_folder(str(folder.parent))


def find_home(start: Path, environment: Mapping[str, str], *, beads: Path | None = None) -> Home:
    """The home for a caller in `start`. NoBeads says where it looked and how to make one."""
    named = beads or (Path(environment["BEADS_DIR"]) if environment.get("BEADS_DIR") else None)
    found = named if named is not None else _search(start)
    if found is None:
        raise NoBeads(f"no .beads folder in {start} or above", hint="Make one: mkdir .beads    (or: bd init)")
    found = _follow_redirects(found)
    if not found.is_dir():
        raise NoBeads(f"{found} is not a folder", hint=f"Make it: mkdir -p {found}")
    return Home(beads=found, root=_work_tree(start) or found.parent)


def relative_path(text: str, home: Home, cwd: Path) -> str:
    """A path or pattern as seen from the root, with `/`.

    What starts with `/`, `./` or `../` is resolved from the current folder; everything else is relative to the root
    already. InvalidValue if it lies outside.
    """
    if not text.startswith(("/", "./", "../")):
        return text
    absolute = Path(os.path.normpath(cwd / text))
    for root in (home.root, home.root.resolve()):
        if absolute.is_relative_to(root):
            # A slash at the end means the folder with all that is in it.
            return str(PurePosixPath(absolute.relative_to(root))) + ("/" if text.endswith("/") else "")
    raise InvalidValue(f"{text} is outside the repository {home.root}", hint="Name a path below it.")


def _search(start: Path) -> Path | None:
    common = _common_git_folder(start)
    shared = common.parent / ".beads" if common and (common.parent / ".beads").is_dir() else None
    own = next((folder / ".beads" for folder in (start, *start.parents) if (folder / ".beads").is_dir()), None)
    if own is None:
        return shared
    # What git checked out into a linked worktree is a copy; all share the repository's own (spec: File Locations).
    is_copy = own.parent == _work_tree(start) and not (own / "redirect").is_file()
    return shared if shared and is_copy else own


def _follow_redirects(beads: Path) -> Path:
    for target in _redirects(beads):
        beads = target
    return beads


def _redirects(beads: Path) -> Iterator[Path]:
    for _ in range(_MOST_REDIRECTS):
        note = beads / "redirect"
        if not note.is_file():
            return
        with explaining("read", note):
            text = note.read_text(encoding="utf-8").strip()
        # Relative to the folder that holds the redirecting .beads, as Beads writes it.
        beads = Path(os.path.normpath(beads.parent / text))
        yield beads
    raise NoBeads(f"{beads / 'redirect'} leads in a circle", hint=f"Look at it: cat {beads / 'redirect'}")


def _work_tree(start: Path) -> Path | None:
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)


def _common_git_folder(start: Path) -> Path | None:
    """The shared `.git` folder of a linked worktree, read from its files; asking git would cost a process."""
    tree = _work_tree(start)
    if tree is None or (tree / ".git").is_dir():
        return None
    with explaining("read", tree / ".git"):
        link = (tree / ".git").read_text(encoding="utf-8").strip().removeprefix("gitdir:").strip()
    git_folder = Path(os.path.normpath(tree / link))
    note = git_folder / "commondir"
    if not note.is_file():
        return None
    with explaining("read", note):
        return Path(os.path.normpath(git_folder / note.read_text(encoding="utf-8").strip()))
