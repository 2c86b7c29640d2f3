"""A repository for queen, and the two ways to talk about it: through the real script, and by its files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import json
from pathlib import Path
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from scripts import Answer, clean_environment, run_script, start_script

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parents[1] / "data" / "queen"
MESSAGES = "queen_messages.jsonl"
RESERVATIONS = "queen_reservations.jsonl"

Record = dict[str, Any]


class Repo:
    """A folder with `.beads` in it. Files are prepared and read back without any code of queen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.beads = root / ".beads"
        self.beads.mkdir(parents=True)

    # --- through the script ------------------------------------------------------------------------------------------

    def queen(
        self,
        *words: str | bytes,
        agent: str | None = None,
        stdin: str | bytes = b"",
        cwd: Path | None = None,
        **environment: str,
    ) -> Answer:
        who = ("--agent", agent) if agent else ()
        return run_script("queen", *words, *who, cwd=cwd or self.root, stdin=stdin, **environment)

    def json(self, *words: str | bytes, agent: str | None = None, stdin: str | bytes = b"", **environment: str) -> Any:
        """What the command answers with `--json`; it must succeed."""
        answer = self.queen(*words, "--json", agent=agent, stdin=stdin, cwd=None, **environment)
        assert answer.code == 0, answer.stderr
        return answer.json

    def refused(
        self, *words: str | bytes, agent: str | None = None, stdin: str | bytes = b"", **environment: str
    ) -> dict[str, Any]:
        """The error object of a command that must fail with exit code 1 and print no data."""
        answer = self.queen(*words, "--json", agent=agent, stdin=stdin, cwd=None, **environment)
        assert (answer.code, answer.stdout) == (1, ""), answer
        return answer.fault

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return start_script("queen", *words, cwd=self.root, **environment)

    # --- by its files ------------------------------------------------------------------------------------------------

    def write(self, name: str, *records: Record | bytes) -> Path:
        """Append records, or lines that are given byte by byte."""
        path = self.beads / name
        with path.open("ab") as stream:
            for record in records:
                stream.write(record if isinstance(record, bytes) else json.dumps(record).encode() + b"\n")
        return path

    def copy(self, frozen: str, name: str) -> None:
        """Put one of the frozen files into the repository."""
        (self.beads / name).write_bytes((DATA / frozen).read_bytes())

    def lines(self, name: str) -> list[bytes]:
        path = self.beads / name
        return path.read_bytes().splitlines() if path.exists() else []

    def records(self, name: str) -> list[Record]:
        return [json.loads(line) for line in self.lines(name)]

    def contents(self) -> dict[str, bytes]:
        """Every file of the repository, to tell that a command wrote nothing."""
        found = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def droids(self, *names: str) -> None:
        folder = self.root / ".factory" / "droids"
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / f"{name}.md").write_text("# a droid\n")

    def issues(self, *issues: Record | str) -> None:
        self.write("issues.jsonl", *({"id": one, "status": "open"} if isinstance(one, str) else one for one in issues))

    def message(self, identifier: str, **fields: Any) -> Record:
        """A message as it stands in the file, from a to b unless the fields say otherwise."""
        return {
            "id": identifier,
            "created_at": "2024-12-14T10:30:00Z",
            "from": "a",
            "to": "b",
            "subject": f"about {identifier}",
            "body": f"text of {identifier}",
            "importance": "normal",
            "read": False,
        } | fields

    def assignment(self, identifier: str, issue: str, agent: str, **fields: Any) -> Record:
        return {
            "id": identifier,
            "created_at": "2024-12-14T10:30:00Z",
            "updated_at": "2024-12-14T10:30:00Z",
            "issue_id": issue,
            "agent": agent,
            "droid": agent,
            "assigned_by": agent,
            "status": "active",
        } | fields

    def reservation(self, identifier: str, pattern: str, agent: str, **fields: Any) -> Record:
        """An exclusive reservation that holds for another hour."""
        return {
            "id": identifier,
            "created_at": self.moment(hours=-1),
            "expires_at": self.moment(hours=1),
            "pattern": pattern,
            "agent": agent,
            "droid": agent,
            "status": "active",
            "exclusive": True,
        } | fields

    def moment(self, **distance: float) -> str:
        """RFC 3339, so far from now."""
        return (datetime.now(UTC) + timedelta(**distance)).strftime("%Y-%m-%dT%H:%M:%SZ")

    # --- git ---------------------------------------------------------------------------------------------------------

    def git(self, *words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        identity = {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_AUTHOR_NAME": "t",
            "GIT_AUTHOR_EMAIL": "t@example.org",
            "GIT_COMMITTER_NAME": "t",
            "GIT_COMMITTER_EMAIL": "t@example.org",
        }
        return subprocess.run(
            ["git", *words],
            cwd=cwd or self.root,
            env=clean_environment(self.root, **identity, **environment),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def repo_on_small_disk(small_disk: Path) -> Repo:
    return Repo(small_disk / "repo")


@pytest.fixture
def read_only_repo(repo_on_small_disk: Repo, small_disk: Path) -> Iterator[Repo]:
    """A repository with one message and one reservation, on a file system that takes no more writes."""
    repo = repo_on_small_disk
    repo.write(MESSAGES, repo.message("qm-1"))
    repo.write(RESERVATIONS, repo.reservation("qr-1", "src/**", "a"))
    repo.issues("qb-1")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    yield repo
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
