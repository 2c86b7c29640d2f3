"""The only file that starts jj. One method per question or change; each is one call, and a call costs 15 to 50 ms.

Promises: a call never snapshots or updates the working copy of a user, except `resolve`, which must see what was just
edited; what is read comes as JSON from templates, never from texts for people; a revision is named so that a rewritten
one is refused (`pinned`) instead of being brought back. JjFailed keeps jj's own words.

Every call can be traced: with JJQ_TRACE=FILE one JSON line per call is appended to that file.
"""

from __future__ import annotations

from dataclasses import dataclass
import os
from pathlib import Path
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import JjFailed, MissingJj, StaleWorkspace, UnfitJj
from queueyard.jjq.records import METADATA, Bookmark, Commit, Made
from queueyard.kernel.atomic import append_lines
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OLDEST = (0, 35)
NEWEST_KNOWN = (0, 46)

#: string patterns of commands became expressions that need quotes
_PATTERNS_ARE_QUOTED = (0, 36)
#: `conflicted_files` in templates
_TELLS_CONFLICTS = (0, 36)
#: `workspace add --message` is known to be there; before, the description is set by a call of its own
_ADDS_WITH_MESSAGE = (0, 40)

_OURS = f"--config-file={Path(__file__).with_name('jj.toml')}"
_MARK = re.compile(r"<<jjq (\{.*?\}) jjq>>")
_VERSION = re.compile(r"\bjj (\d+)\.(\d+)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")

_COMMIT = 'json(self) ++ "\\n"'
_BOOKMARK = '"{\\"ref\\":" ++ json(self) ++ ",\\"targets\\":[" ++ added_targets.map(|c| json(c)).join(",") ++ "]}\\n"'
_FILE = '"\\0" ++ path ++ "\\0"'


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call printed."""

    stdout: bytes
    stderr: str

    def made(self) -> Made:
        """The first revision that the call speaks of: the one that it made."""
        found = _MARK.search(self.stderr)
        if found is None:
            raise JjFailed("jj did not say which revision it made", said=self.stderr)
        return msgspec.json.decode(found[1], type=Made)


class _Ref(msgspec.Struct, frozen=True):
    name: str
    remote: str | None = None


class _Listed(msgspec.Struct, frozen=True):
    ref: _Ref
    targets: tuple[Commit, ...]


class Jj:
    """jj in one repository."""

    def __init__(
        self,
        folder: Path,
        *,
        executable: str | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`folder`: where calls stand that need no working copy; every workspace of the repository will do."""
        self.folder = folder
        self._environment = dict(os.environ if environment is None else environment)
        self._executable = executable or find_jj(self._environment)
        self._clock = clock
        self._version: tuple[int, int] | None = None

    @property
    def executable(self) -> str:
        return self._executable

    # --- the version -------------------------------------------------------------------------------------------------

    def version(self) -> tuple[int, int]:
        """Asked once. UnfitJj if it is older than what jjq can work with."""
        if self._version is None:
            self._version = self.check_version(self._call(["--version"], self.folder).stdout.decode(errors="replace"))
        return self._version

    def check_version(self, text: str) -> tuple[int, int]:
        """The version in what `jj --version` says; UnfitJj if it is too old or cannot be told."""
        found = _VERSION.search(text)
        if found is None:
            raise UnfitJj(f"{self._executable} does not say which version of jj it is: {text.strip()!r}")
        version = int(found[1]), int(found[2])
        if version < OLDEST:
            raise UnfitJj(
                f"jj {version[0]}.{version[1]} is too old: jjq needs {OLDEST[0]}.{OLDEST[1]} or newer",
                hint=f"Install a newer jj, or put one before {self._executable} on the PATH.",
            )
        self._version = version
        return version

    # --- reading -----------------------------------------------------------------------------------------------------

    def resolve(self, revset: str, *, cwd: Path, limit: int = 3) -> list[Commit]:
        """What a user's revset means in the folder `cwd`, with what was edited there just now; at most `limit`."""
        # Without our configuration: this is the one call that snapshots a user's working copy, and by his rules.
        words = ["--config=ui.log-word-wrap=false", "log", "--no-graph", "-n", str(limit), "-T", _COMMIT, "-r", revset]
        return _commits(self._call(words, cwd))

    def commits(self, revset: str) -> list[Commit]:
        return _commits(self._read(["log", "--no-graph", "-T", _COMMIT, "-r", revset]))

    def bookmarks(self, *patterns: str) -> list[Bookmark]:
        """Local bookmarks that match; those that only remain on a remote are left out."""
        lines = self._read(["bookmark", "list", "-T", _BOOKMARK, *patterns]).stdout.splitlines()
        listed = [msgspec.json.decode(line, type=_Listed) for line in lines]
        return [
            Bookmark(name=one.ref.name, targets=one.targets) for one in listed if not one.ref.remote and one.targets
        ]

    def bookmarks_at(self, commit: Commit) -> list[str]:
        """The names of the local bookmarks that point to a revision."""
        words = ["bookmark", "list", "-T", _BOOKMARK, "-r", commit.commit_id]
        listed = [msgspec.json.decode(line, type=_Listed) for line in self._read(words).stdout.splitlines()]
        return [one.ref.name for one in listed if not one.ref.remote]

    def workspaces(self) -> dict[str, Commit]:
        """Every workspace that jj knows, with its working-copy revision."""
        template = 'name ++ "\\t" ++ json(target) ++ "\\n"'
        lines = self._read(["workspace", "list", "-T", template]).stdout.splitlines()
        found = (line.partition(b"\t") for line in lines)
        return {name.decode(): msgspec.json.decode(target, type=Commit) for name, _, target in found}

    def files(self, revision: str) -> dict[str, bytes]:
        """Every file of a small revision with its content."""
        raw = self._read(["file", "show", "-r", revision, "-T", _FILE, "root-glob:**"]).stdout
        parts = raw.split(b"\0")[1:]
        return {name.decode(): content for name, content in zip(parts[::2], parts[1::2], strict=True)}

    def setting(self, name: str) -> str | None:
        """A value of jj's own configuration; None if it is not set."""
        try:
            return self._change(["config", "get", name]).stdout.decode().rstrip("\n")
        except JjFailed:
            return None

    def set_setting(self, name: str, value: str) -> None:
        """Write a value into jj's configuration of this repository."""
        self._change(["config", "set", "--repo", name, quoted(value)])

    def conflicted_paths(self, commit: Commit) -> list[str]:
        if self.version() >= _TELLS_CONFLICTS:
            template = 'conflicted_files.map(|e| e.path() ++ "\\n").join("")'
            text = self._read(["log", "--no-graph", "-r", commit.commit_id, "-T", template]).stdout.decode()
            return text.splitlines()
        text = self._read(["resolve", "--list", "-r", commit.commit_id]).stdout.decode()
        return [re.split(r"\s{2,}", line)[0] for line in text.splitlines()]

    def bookmark_made_at(self, name: str) -> str | None:
        """RFC 3339, when a bookmark was last created, if that is among the latest operations."""
        template = 'self.time().end().format("%Y-%m-%dT%H:%M:%S%z") ++ " " ++ description.first_line() ++ "\\n"'
        lines = self._read(["op", "log", "--no-graph", "-n", "200", "-T", template]).stdout.decode().splitlines()
        made = (line.partition(" ")[0] for line in lines if f"create bookmark {name} " in line + " ")
        return next(made, None)

    # --- bookmarks ---------------------------------------------------------------------------------------------------

    def create_bookmark(self, name: str, revision: str) -> None:
        """JjFailed if it exists, as far as this call can see: two calls at once may both succeed."""
        self._change(["bookmark", "create", symbol(name), "-r", revision])

    def set_bookmark(self, name: str, revision: str) -> None:
        """Point it there, wherever it is now."""
        self._change(["bookmark", "set", "--allow-backwards", symbol(name), "-r", revision])

    def delete_bookmarks(self, *names: str) -> None:
        """One change for all of them. One that is missing is fine, though it was an error before 0.36."""
        try:
            self._change(["bookmark", "delete", *names])
        except JjFailed:
            there = [name for name in names if any(one.name == name for one in self.bookmarks(f"exact:{name}"))]
            if len(there) == len(names):
                raise
            if there:
                self._change(["bookmark", "delete", *there])

    def move_bookmark(self, name: str, *, since: Commit, to: str) -> None:
        """From one revision to another, if it is still at the first.

        Where it is not, newer versions do nothing and exit 0: look afterwards.
        """
        self._change(["bookmark", "move", "--from", since.commit_id, "--to", to, self.exact(name)])

    def exact(self, name: str) -> str:
        """The pattern that matches this bookmark only."""
        if _PLAIN_NAME.fullmatch(name) or self.version() < _PATTERNS_ARE_QUOTED:
            return f"exact:{name}"
        return f"exact:{quoted(name)}"

    # --- revisions and workspaces ------------------------------------------------------------------------------------

    def new(self, *parents: Commit, message: str) -> Made:
        """A revision on these parents that no workspace checks out."""
        words = ["new", "--no-edit", "-m", message, *map(pinned, parents)]
        return self._call([_OURS, "--ignore-working-copy", *words], self.folder).made()

    def add_anchor(self, name: str, folder: Path, *, cwd: Path) -> None:
        """An empty workspace, made from a user's one: which is snapshotted, by its own rules."""
        self._call(["workspace", "add", "--name", name, "--sparse-patterns", "empty", "-r", "root()", str(folder)], cwd)

    def add_workspace(self, name: str, folder: Path, *parents: str, message: str | None = None) -> Made:
        """A new workspace in a folder that does not exist yet; its working-copy revision stands on the parents.

        The workspace that the call stands in is snapshotted by jj, so it stands in one that jj has forgotten.
        """
        with_message = message is not None and self.version() >= _ADDS_WITH_MESSAGE
        words = ["workspace", "add", "--name", name, "--sparse-patterns", "full"]
        words += ["-m", message] if message is not None and with_message else []
        words += [word for parent in parents for word in ("-r", parent)]
        made = self._call([_OURS, *words, str(folder)], self.folder).made()
        if message is not None and not with_message:
            return self._call([_OURS, "describe", "-m", message], folder).made()
        return made

    def move_workspace(self, folder: Path, commit: Commit) -> Made:
        """Let a workspace stand on another revision: what lies about is taken into its old one, and gone from disk."""
        return self._call([_OURS, "new", pinned(commit)], folder).made()

    def edit(self, folder: Path, commit: Commit) -> None:
        """Let a workspace stand at a revision itself."""
        self._call([_OURS, "edit", pinned(commit)], folder)

    def rename_workspace(self, folder: Path, name: str) -> None:
        """Give the workspace in a folder another name; jj insists on looking at its files for that."""
        self._call([_OURS, "workspace", "rename", name], folder)

    def forget_workspaces(self, *names: str) -> None:
        self._change(["workspace", "forget", *names])

    def amend_parent(self, folder: Path) -> None:
        """Take what was edited in a workspace into the revision below its working copy."""
        words = ["squash", "--ignore-immutable", "--use-destination-message"]
        self._call([_OURS, *words], folder)

    def bookmark_working_copy(self, folder: Path, name: str) -> None:
        """Take in what was edited in a workspace, and point a new bookmark to it."""
        self._call([_OURS, "bookmark", "create", symbol(name), "-r", "@"], folder)

    def describe(self, commit: Commit, message: str) -> None:
        self._change(["describe", "--ignore-immutable", "-m", message, pinned(commit)])

    def abandon(self, revset: str) -> None:
        """Abandon what the revset finds; finding nothing is fine."""
        self._change(["abandon", "--ignore-immutable", revset])

    # --- calls -------------------------------------------------------------------------------------------------------

    def _read(self, words: Sequence[str]) -> Answer:
        return self._call([_OURS, "--ignore-working-copy", *words], self.folder)

    def _change(self, words: Sequence[str]) -> Answer:
        return self._call(["--ignore-working-copy", *words], self.folder)

    def _call(self, words: Sequence[str], cwd: Path) -> Answer:
        argv = [self._executable, "--color=never", "--no-pager", *words]
        started = self._clock.monotonic()
        try:
            # In a session of its own: Ctrl-C ends us, not a change that jj is in the middle of.
            done = subprocess.run(
                argv,
                cwd=cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                start_new_session=True,
                check=False,
            )
        except (FileNotFoundError, PermissionError) as fault:
            raise _missing(self._executable) from fault
        self._trace(words, started)
        said = done.stderr.decode(errors="replace")
        if done.returncode:
            raise self._failed(words, said)
        return Answer(done.stdout, said)

    def _failed(self, words: Sequence[str], said: str) -> JjFailed:
        verb = next((word for word in words if not word.startswith("-")), "jj")
        lines = [line for line in said.splitlines() if line.strip()]
        first = next((line for line in lines if line.startswith("Error:")), lines[0] if lines else "it did not say why")
        hints = [line.removeprefix("Hint:").strip() for line in lines if line.startswith("Hint:")]
        if "working copy is stale" in said or "workspace update-stale" in said:
            return StaleWorkspace(
                "this workspace is stale: another one rewrote its revision",
                said=said,
                hint="Update it, then run the same command again: jj workspace update-stale",
            )
        reason = first.removeprefix("Error:").strip()
        return JjFailed(f"jj {verb} failed: {reason}", said=said, hint=" ".join(hints) or None)

    def _trace(self, words: Sequence[str], started: float) -> None:
        trace = self._environment.get("JJQ_TRACE")
        if trace:
            told = {"call": [word for word in words if word != _OURS]}
            line = msgspec.json.encode(told | {"ms": round((self._clock.monotonic() - started) * 1000)})
            append_lines(Path(trace), [line], durable=False)


def find_jj(environment: Mapping[str, str]) -> str:
    """The jj to use: JJQ_JJ, else the first one on the PATH. MissingJj if there is none."""
    named = environment.get("JJQ_JJ")
    found = named or shutil.which("jj", path=environment.get("PATH", os.defpath))
    if found is None:
        raise _missing("jj")
    return found


def _missing(name: str) -> MissingJj:
    return MissingJj(
        f"{name} was not found, and jjq works through it",
        hint="Install jj 0.35 or newer, and see that it is on the PATH: jj --version",
    )


def pinned(commit: Commit) -> str:
    """A revset for this commit while it is visible, and for nothing once it was rewritten.

    Naming a hidden commit by its id alone would bring it back, and make the user's change divergent.
    """
    return f"change_id({commit.change_id}) & commit_id({commit.commit_id})"


def quoted(text: str) -> str:
    """A string literal of jj's languages."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def symbol(name: str) -> str:
    """A bookmark name where jj expects a symbol."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def named(bookmark: str) -> str:
    """A revset for what a bookmark points to: nothing if it is missing, several if it is conflicted."""
    return f"bookmarks(exact:{quoted(bookmark)})"


#: what the metadata branch's head is as a revset
METADATA_REVISION = named(METADATA)


def _commits(answer: Answer) -> list[Commit]:
    return [msgspec.json.decode(line, type=Commit) for line in answer.stdout.splitlines() if line]
