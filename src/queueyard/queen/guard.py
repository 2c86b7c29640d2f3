"""The git pre-commit hook: what it is made of, and the staged files that it checks.

It fails closed: if queen cannot be found or cannot tell, the commit is refused, and the message names the variable
that goes past it.
"""

from __future__ import annotations

import os
from pathlib import Path
import shlex
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

from queueyard.kernel.atomic import replace_file
from queueyard.kernel.errors import QueueyardError, explaining
from queueyard.kernel.proc import without_secrets
from queueyard.queen import reservations

if TYPE_CHECKING:
    from queueyard.queen.reservations import Verdict
    from queueyard.queen.service import Queen

#: set to "off" to commit in spite of everything
BYPASS = "QUEEN_GUARD"
#: who commits where nobody said: people need no configuration
_FALLBACK_AGENT = "human"
_SIGNATURE = "# queen guard: checks reservations before a commit"
_KEPT = "pre-commit.before-queen"

_HOOK = f"""#!/bin/sh
{_SIGNATURE}
kept="$(dirname "$0")/{_KEPT}"
if [ -x "$kept" ]; then
    "$kept" "$@" || exit $?
fi
[ "${BYPASS}" = off ] && exit 0
if command -v queen >/dev/null 2>&1; then
    exec queen guard run
fi
if [ -x {{python}} ]; then
    exec {{python}} -m queueyard.queen.cli guard run
fi
echo "queen guard: cannot find queen; go past it once with {BYPASS}=off git commit ..." >&2
exit 1
"""


class GitFailed(QueueyardError):
    """git refused, or is not there."""


def install(root: Path) -> Path:
    """Write the hook; a foreign one is kept beside it and run first. The path of the hook."""
    hook = _hooks_folder(root) / "pre-commit"
    hook.parent.mkdir(parents=True, exist_ok=True)
    if hook.exists() and not _is_ours(hook):
        kept = hook.with_name(_KEPT)
        if kept.exists():
            raise GitFailed(f"{kept} is in the way", hint=f"Keep one of the two: diff {hook} {kept}")
        _copy(hook, kept)
    script = _HOOK.replace("{python}", shlex.quote(sys.executable))
    replace_file(hook, script.encode(), mode=0o755)
    return hook


def uninstall(root: Path) -> Path:
    """Remove the hook and put the kept one back. GitFailed if it is not ours."""
    hook = _hooks_folder(root) / "pre-commit"
    if not hook.exists() or not _is_ours(hook):
        raise GitFailed(f"{hook} is not queen's", hint="Install it: queen guard install")
    kept = hook.with_name(_KEPT)
    if kept.exists():
        _copy(kept, hook)
    (kept if kept.exists() else hook).unlink()
    return hook


def verdicts(queen: Queen) -> list[Verdict]:
    """May these be committed? For each staged path, both names of a rename, deletions too."""
    paths = _staged(queen.home.root)
    if not paths or os.environ.get(BYPASS) == "off":
        return []
    agent = queen.settings.agent or _FALLBACK_AGENT
    return reservations.check(queen.book, queen.clock, agent=agent, paths=paths)


def _staged(root: Path) -> list[str]:
    fields = _git(root, "diff", "--cached", "--name-status", "-z", "--find-renames").split("\0")
    paths: list[str] = []
    while len(fields) > 1:
        status = fields.pop(0)
        # A rename or copy names two paths: the old one disappears, the new one appears.
        count = 2 if status[:1] in {"R", "C"} else 1
        paths += fields[:count]
        del fields[:count]
    return paths


def _hooks_folder(root: Path) -> Path:
    return Path(os.path.normpath(root / _git(root, "rev-parse", "--git-path", "hooks").strip()))


def _copy(source: Path, target: Path) -> None:
    with explaining("read", source):
        replace_file(target, source.read_bytes(), mode=stat.S_IMODE(source.stat().st_mode))


def _is_ours(hook: Path) -> bool:
    with explaining("read", hook):
        return _SIGNATURE in hook.read_text(encoding="utf-8", errors="replace")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            env=without_secrets(os.environ),
            capture_output=True,
            check=True,
        )
    except FileNotFoundError as fault:
        raise GitFailed("git is not installed", hint="See: queueyard doctor") from fault
    except subprocess.CalledProcessError as fault:
        told = fault.stderr.decode("utf-8", "replace").strip()
        raise GitFailed(f"git {arguments[0]} failed: {told}", hint=f"Try it: git -C {root} status") from fault
    # A file name may hold any bytes; no pattern can name those that are no UTF-8, only a wildcard covers them.
    return done.stdout.decode("utf-8", "replace")
