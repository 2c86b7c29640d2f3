"""Real jj repositories for tests: each in a folder of its own, with nothing of the caller's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import os
import shlex
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.jjq import Jjq
from scripts import Answer, clean_environment, find_script, finish

if TYPE_CHECKING:
    from pathlib import Path

#: what a user must have configured; no colocation, since that needs a newer git than some machines have
CONFIG = """
user.name = "Test"
user.email = "test@example.com"
git.colocate = false
"""
KILLED = -9
#: stands before the real jj on the PATH: kills whoever called it, before or after one of its calls
_KILLER = """#!/bin/sh
number=0
[ -e {counter} ] && read -r number < {counter}
echo $((number + 1)) > {counter}
hit=
case "$KILL_AT" in
    *[!0-9]*) case "$*" in *"$KILL_AT"*) hit=yes ;; esac ;;
    "$number") hit=yes ;;
esac
if [ "$hit$KILL_AFTER" = yes0 ]
then kill -9 $PPID; exit 1
fi
{jj} "$@"
code=$?
[ "$hit" ] && kill -9 $PPID
exit $code
"""


@dataclass
class Repository:
    """One jj repository with a trunk `main`, and whoever works in it."""

    root: Path
    home: Path
    #: more of the environment of every command
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        temporary = self.home / "tmp"
        return clean_environment(
            self.home, JJ_CONFIG=str(self.home / "jj.toml"), TMPDIR=str(temporary), **self.environment
        )

    @property
    def private(self) -> Path:
        return self.root / ".jj" / "repo" / "jjq"

    def within(self, folder: Path) -> Repository:
        """The same repository, seen from another folder."""
        return Repository(root=folder, home=self.home, environment=self.environment)

    # --- raw jj ------------------------------------------------------------------------------------------------------

    def jj(self, *words: str, cwd: Path | None = None) -> str:
        """What a jj command prints; a failing one fails the test."""
        done = self.try_jj(*words, cwd=cwd)
        assert done.code == 0, f"jj {' '.join(words)}: {done.stderr}"
        return done.stdout

    def try_jj(self, *words: str, cwd: Path | None = None) -> Answer:
        return _run([_jj(), "--color=never", "--no-pager", *words], cwd or self.root, self.variables)

    def one(self, revset: str, template: str = "commit_id") -> str:
        """One fact about the one revision that a revset means, without snapshotting anything."""
        return self.jj("log", "--ignore-working-copy", "--no-graph", "-r", revset, "-T", template)

    def many(self, revset: str, template: str = "commit_id") -> list[str]:
        text = self.jj("log", "--ignore-working-copy", "--no-graph", "-r", revset, "-T", f'{template} ++ "\\n"')
        return text.splitlines()

    def bookmarks(self, pattern: str = "glob:jjq/*/*") -> dict[str, str]:
        """Name -> commit id; `conflicted` for one with several targets."""
        template = 'name ++ " " ++ if(conflict, "conflicted", normal_target.commit_id()) ++ "\\n"'
        lines = self.jj("--ignore-working-copy", "bookmark", "list", pattern, "-T", template).splitlines()
        return dict(line.split(" ") for line in lines)

    def workspaces(self) -> list[str]:
        return self.jj("--ignore-working-copy", "workspace", "list", "-T", 'name ++ "\\n"').splitlines()

    def file(self, path: str, revision: str = "main") -> str:
        return self.jj("--ignore-working-copy", "file", "show", "-r", revision, f'root:"{path}"')

    def files(self, revision: str = "main") -> list[str]:
        return self.jj("--ignore-working-copy", "file", "list", "-r", revision).splitlines()

    def change(self, name: str, files: dict[str, str] | None = None, *, on: str = "main") -> str:
        """A new revision with these files (default: one file of its name) above another; its change id."""
        self.jj("new", "--quiet", on, "-m", name)
        for path, content in (files or {f"{name.replace(' ', '-')}.txt": f"{name}\n"}).items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(content, encoding="utf-8")
        return self.jj("log", "--no-graph", "-r", "@", "-T", "change_id")

    def add_workspace(self, name: str) -> Repository:
        folder = self.home / name
        self.jj("workspace", "add", "--quiet", "--name", name, "-r", "main", str(folder))
        return self.within(folder)

    # --- jjq ---------------------------------------------------------------------------------------------------------

    def jjq(self, *words: str, cwd: Path | None = None, **environment: str) -> Answer:
        return _run([str(find_script("jjq")), *words], cwd or self.root, self.variables | environment)

    def start_jjq(self, *words: str, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(find_script("jjq")), *words],
            cwd=cwd or self.root,
            env=self.variables | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ok(self, *words: str, cwd: Path | None = None, **environment: str) -> str:
        """What a jjq command prints; a failing one fails the test."""
        done = self.jjq(*words, cwd=cwd, **environment)
        assert done.code == 0, f"jjq {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def push(self, name: str, files: dict[str, str] | None = None, *, on: str = "main") -> str:
        """A new revision, queued; its change id."""
        change = self.change(name, files, on=on)
        self.queue(change)
        return change

    def queue(self, change: str) -> None:
        """Push it through the library: an interpreter less to start for what is only prepared."""
        Jjq.open(self.root, environment=self.variables, note=pytest.fail).push(change)

    def calls(self, *words: str, **environment: str) -> list[list[str]]:
        """The calls to jj that a jjq command makes."""
        trace = self.home / "trace.jsonl"
        trace.unlink(missing_ok=True)
        self.jjq(*words, cwd=None, JJQ_TRACE=str(trace), **environment)
        return [json.loads(line)["call"] for line in trace.read_text(encoding="utf-8").splitlines()]

    def kill(self, *words: str, at: int | str, after: bool) -> Answer:
        """Run a jjq command that is killed at a call to jj: by its number, or the first that holds a text.

        Its exit code is KILLED unless it made no such call.
        """
        folder = self.home / "killer"
        folder.mkdir(exist_ok=True)
        counter = folder / "calls"
        counter.unlink(missing_ok=True)
        script = folder / "jj"
        if not script.exists():
            paths = {"counter": shlex.quote(str(counter)), "jj": shlex.quote(_jj())}
            script.write_text(_KILLER.format(**paths), encoding="utf-8")
            script.chmod(0o755)
        path = f"{folder}{os.pathsep}{self.variables['PATH']}"
        return self.jjq(*words, PATH=path, KILL_AT=str(at), KILL_AFTER=str(int(after)))

    # --- what must hold ----------------------------------------------------------------------------------------------

    def violations(self) -> list[str]:
        """What is wrong with the jjq state, asked with raw jj; empty in a repository where nothing runs."""
        found = [f"{name} is conflicted" for name, target in self.bookmarks().items() if target == "conflicted"]
        found += [f"lock {name} is left" for name in self.bookmarks("glob:jjq/lock/*")]
        divergent = self.many("all()", 'if(divergent, change_id.short() ++ " " ++ description.first_line(), "")')
        found += [f"divergent: {line}" for line in divergent if line]
        notes = [json.loads(path.read_text()) for path in (self.private / "workspaces").glob("*.json")]
        found += [f"note of {note['name']} is left" for note in notes if not note["preserved"]]
        kept = {note["name"] for note in notes if note["preserved"]}
        found += [
            f"workspace {name} is left" for name in self.workspaces() if name.startswith("jjq") and name not in kept
        ]
        queued = {name.rpartition("/")[2] for name in self.bookmarks("glob:jjq/queue/*")}
        found += [f"{name} is kept for an item that is queued" for name in kept if name.rpartition("/")[2] in queued]
        both = queued & {name.rpartition("/")[2] for name in self.bookmarks("glob:jjq/failed/*")}
        found += [f"{name} is queued and failed" for name in both]
        orphans = 'description(substring:"jjq-sequence: ") ~ ::(bookmarks() | working_copies())'
        found += [f"orphan {line}" for line in self.many(orphans, "description.first_line()")]
        found += [
            f"{name} is left" for name in ("run.json", "landing.json", "requeue.json") if (self.private / name).exists()
        ]
        return found


def copy_of(template: Path, home: Path) -> Repository:
    """A prepared repository in another place; notes that name a path name the new one."""
    shutil.copytree(template, home, symlinks=True)
    copied = Repository(root=home / "repo", home=home)
    for note in [*copied.private.glob("workspaces/*.json"), *copied.private.glob("failures/*.json")]:
        note.write_text(note.read_text(encoding="utf-8").replace(str(template), str(home)), encoding="utf-8")
    return copied


def _jj() -> str:
    found = shutil.which("jj")
    assert found is not None
    return found


def _run(argv: list[str], cwd: Path, variables: dict[str, str]) -> Answer:
    running = subprocess.Popen(
        argv,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return finish(running)
