from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from queueyard.queen import guard
from queueyard.queen.errors import CannotTell
from queueyard.queen.guard import GitFailed
from queueyard.queen.rules import owner_of
from queueyard.queen.store import RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.queen import Queen
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

FOREIGN_HOOK = "#!/bin/sh\necho theirs\n"


@pytest.fixture
def repo(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with two committed files."""
    monkeypatch.delenv(guard.BYPASS, raising=False)
    git(home.root, "init", "--quiet")
    for name in ("src/a.py", "docs/b.md"):
        path = home.root / name
        path.parent.mkdir()
        path.write_text(f"the content of {name}, long enough to be known again\n" * 5)
    git(home.root, "add", "src", "docs")
    git(home.root, "commit", "--quiet", "--message", "start")
    return home.root


def git(where: Path, *arguments: str | bytes) -> None:
    identity = ["-c", "user.name=ui", "-c", "user.email=ui@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=where, check=True, capture_output=True)


def judged(queen: Queen) -> dict[str, bool]:
    return {verdict.path: verdict.allowed for verdict in guard.verdicts(queen)}


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_nothing_staged_is_nothing_to_judge(repo: Path, queen_of: Callable[[str], Queen]) -> None:
    queen_of("api").reserve(["**"])

    assert judged(queen_of("ui")) == {}


def test_every_staged_file_is_judged_and_no_other(repo: Path, queen_of: Callable[[str], Queen]) -> None:
    queen_of("api").reserve(["src/**"])
    for name in ("src/a.py", "src/new.py", "docs/b.md"):
        (repo / name).write_text("changed\n")
    git(repo, "add", "src", "docs")
    (repo / "src/unstaged.py").touch()

    assert judged(queen_of("ui")) == {"src/a.py": False, "src/new.py": False, "docs/b.md": True}
    assert all(judged(queen_of("api")).values())


def test_both_names_of_a_renamed_file_are_judged(repo: Path, queen_of: Callable[[str], Queen]) -> None:
    queen_of("api").reserve(["docs/**"])

    git(repo, "mv", "docs/b.md", "src/b.md")

    assert judged(queen_of("ui")) == {"docs/b.md": False, "src/b.md": True}


def test_a_file_that_is_to_be_deleted_is_judged(repo: Path, queen_of: Callable[[str], Queen]) -> None:
    queen_of("api").reserve(["docs/**"])

    git(repo, "rm", "--quiet", "docs/b.md")

    assert judged(queen_of("ui")) == {"docs/b.md": False}


@pytest.mark.parametrize(
    "name", [b"src/with space", "src/ünïcödé".encode(), b'src/"quoted"', b"src/new\nline", b"src/\xff"]
)
def test_a_file_of_any_name_is_judged(repo: Path, queen_of: Callable[[str], Queen], name: bytes) -> None:
    queen_of("api").reserve(["src/**"])
    with open(os.path.join(os.fsencode(repo), name), "wb"):  # noqa: PTH118, PTH123  pathlib knows no bytes
        pass

    git(repo, "add", name)

    assert list(judged(queen_of("ui")).values()) == [False]


def test_the_first_commit_of_a_repository_is_judged_too(home: Home, queen_of: Callable[[str], Queen]) -> None:
    git(home.root, "init", "--quiet")
    (home.root / "a").touch()
    queen_of("api").reserve(["a"])

    git(home.root, "add", "a")

    assert judged(queen_of("ui")) == {"a": False}


def test_who_does_not_say_who_commits_is_a_human(repo: Path, queen_of: Callable[[str], Queen]) -> None:
    (repo / "src/a.py").write_text("changed\n")
    git(repo, "add", "src")

    queen_of("human").reserve(["src/**"])
    anonymous = queen_of("")
    [verdict] = guard.verdicts(anonymous)

    assert verdict.allowed
    [refused] = guard.verdicts(queen_of("ui"))
    assert [owner_of(one) for one in refused.held_by] == ["human"]


def test_the_bypass_judges_nothing(
    repo: Path, queen_of: Callable[[str], Queen], monkeypatch: pytest.MonkeyPatch
) -> None:
    queen_of("api").reserve(["**"])
    (repo / "src/a.py").write_text("changed\n")
    git(repo, "add", "src")

    monkeypatch.setenv(guard.BYPASS, "off")

    assert judged(queen_of("ui")) == {}


def test_what_cannot_be_told_is_not_allowed(repo: Path, queen_of: Callable[[str], Queen], write: Writer) -> None:
    write(RESERVATIONS, b'{"id":"qr-1" "pattern":"src/**"}\n')
    (repo / "src/a.py").write_text("changed\n")
    git(repo, "add", "src")

    with pytest.raises(CannotTell):
        judged(queen_of("ui"))


def test_outside_of_git_the_guard_says_so(queen_of: Callable[[str], Queen]) -> None:
    with pytest.raises(GitFailed, match="git diff failed"):
        guard.verdicts(queen_of("ui"))


# --- the hook --------------------------------------------------------------------------------------------------------


def test_the_hook_is_installed_once_and_can_be_run(repo: Path) -> None:
    hook = guard.install(repo)
    first = hook.read_bytes()

    assert guard.install(repo) == hook == repo / ".git" / "hooks" / "pre-commit"
    assert hook.read_bytes() == first
    assert os.access(hook, os.X_OK)
    assert not (hook.parent / "pre-commit.before-queen").exists()


def test_a_hook_that_was_there_is_kept_and_comes_back(repo: Path) -> None:
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(FOREIGN_HOOK)
    hook.chmod(0o755)

    guard.install(repo)
    kept = hook.with_name("pre-commit.before-queen").read_text()
    guard.uninstall(repo)

    assert kept == hook.read_text() == FOREIGN_HOOK
    assert os.access(hook, os.X_OK)
    assert [path.name for path in hook.parent.iterdir() if "queen" in path.name] == []


def test_a_second_foreign_hook_does_not_destroy_the_one_that_is_kept(repo: Path) -> None:
    hook = repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(FOREIGN_HOOK)
    guard.install(repo)
    hook.write_text("#!/bin/sh\necho another\n")

    with pytest.raises(GitFailed, match="in the way"):
        guard.install(repo)

    assert hook.with_name("pre-commit.before-queen").read_text() == FOREIGN_HOOK


def test_only_our_own_hook_is_removed(repo: Path) -> None:
    with pytest.raises(GitFailed, match="not queen's"):
        guard.uninstall(repo)
    hook = guard.install(repo)

    assert guard.uninstall(repo) == hook
    assert not hook.exists()


def test_the_hook_goes_where_git_looks_for_it(repo: Path) -> None:
    git(repo, "config", "core.hooksPath", "team/hooks")

    assert guard.install(repo) == repo / "team" / "hooks" / "pre-commit"


def test_a_linked_worktree_shares_the_hook(repo: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "../linked")

    assert guard.install(repo.parent / "linked").read_bytes() == (repo / ".git" / "hooks" / "pre-commit").read_bytes()


def test_the_hook_refuses_where_queen_cannot_be_found(repo: Path, tmp_path: Path) -> None:
    hook = guard.install(repo)
    hook.write_text(hook.read_text().replace("[ -x ", "[ -x /nowhere"))
    tools = tmp_path / "tools"
    tools.mkdir()

    refused = subprocess.run(
        ["/bin/sh", str(hook)], cwd=repo, env={"PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    passed = subprocess.run(
        ["/bin/sh", str(hook)], cwd=repo, env={"PATH": str(tools), guard.BYPASS: "off"}, check=False
    )

    assert refused.returncode == 1
    assert "QUEEN_GUARD=off" in refused.stderr
    assert passed.returncode == 0
