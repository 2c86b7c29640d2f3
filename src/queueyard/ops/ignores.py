"""Which files of a folder a scan leaves out: the patterns of `.jolliignore`, written as in a `.gitignore`. Pure.

The last pattern that matches decides; `!` takes a file back in; a `/` at the end means folders; a `/` elsewhere ties
the pattern to the root. What lies in a folder that is left out stays out.
"""

from __future__ import annotations

from functools import lru_cache
import re
from typing import TYPE_CHECKING

from queueyard.ops.names import RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

IGNORE_NAME = ".jolliignore"

#: made by `pull` beside a file that was changed on both sides; not for the server
_CONFLICT_COPY = re.compile(r".* \(conflict \d{4}-\d\d-\d\d-\d\d-\d\d(?:-\d+)?\)(?:\.[^./]*)?")

#: what a pull that was killed leaves beside the file it was writing; the next one that writes that file removes it
_UNFINISHED = re.compile(r"\..+\.queueyard-[0-9a-f]{12}")


class Ignores:
    """The rules of one folder."""

    def __init__(self, *, include: Sequence[str] = (), exclude: Iterable[str] = ()) -> None:
        """`include`: only what matches one of these, unless empty. `exclude`: lines of an ignore file, in order."""
        self._include = [_Pattern(line) for line in include]
        self._exclude = [_Pattern(line) for line in exclude if line.strip() and not line.startswith("#")]

    def leaves_out_folder(self, path: str) -> bool:
        """Whether a scan need not look into a folder; `path` is relative, with `/` between names."""
        return path.rpartition("/")[2].casefold() in RESERVED or self._excludes(path, is_folder=True)

    def leaves_out_file(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        # A file too: `.git` of a linked worktree is one.
        if name.casefold() in RESERVED or name == IGNORE_NAME or _is_ours(name):
            return True
        if self._include and not any(pattern.matches(path, is_folder=False) for pattern in self._include):
            return True
        return self._excludes(path, is_folder=False)

    def _excludes(self, path: str, *, is_folder: bool) -> bool:
        matching = [pattern for pattern in self._exclude if pattern.matches(path, is_folder=is_folder)]
        return bool(matching) and not matching[-1].takes_back


def _is_ours(name: str) -> bool:
    return bool(_CONFLICT_COPY.fullmatch(name) or _UNFINISHED.fullmatch(name))


class _Pattern:
    def __init__(self, line: str) -> None:
        text = line.rstrip()
        self.takes_back = text.startswith("!")
        text = text.removeprefix("!").removeprefix("\\")
        self._folders_only = text.endswith("/")
        text = text.rstrip("/")
        # Without a slash inside, a name is meant wherever it stands.
        self._expression = _translated(text.removeprefix("/") if "/" in text else f"**/{text}")

    def matches(self, path: str, *, is_folder: bool) -> bool:
        return (is_folder or not self._folders_only) and self._expression.fullmatch(path) is not None


@lru_cache(maxsize=1024)
def _translated(glob: str) -> re.Pattern[str]:
    out: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            negated = glob[at + 1] in "!^"
            inside = re.escape(glob[at + 1 + negated : end]).replace(r"\-", "-")
            out.append(f"(?!/)[{'^' if negated else ''}{inside}]")
            at = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(glob[at], re.escape(glob[at])))
            at += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error:
        # A range that runs backwards: no name can be meant by it.
        return re.compile(r"(?!)")


def conflict_copy_name(path: str, moment: str, number: int = 1) -> str:
    """`notes/a.md` as `notes/a (conflict 2026-01-31-14-05).md`, with a number if there is one of that minute."""
    folder, slash, name = path.rpartition("/")
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    more = "" if number == 1 else f"-{number}"
    return f"{folder}{slash}{stem} (conflict {moment}{more}){dot}{suffix}"
