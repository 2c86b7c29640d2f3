from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from queueyard.queen.errors import InvalidValue, NoBeads
from queueyard.queen.home import Home, find_home, make_private, relative_path

if TYPE_CHECKING:
    from pathlib import Path


def git(where: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=ui", "-c", "user.email=ui@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=where, check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A git repository with a `.beads` and one commit."""
    root = tmp_path / "repo"
    (root / ".beads").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "src" / "a.py").touch()
    git(root, "init", "--quiet")
    git(root, "add", "src")
    git(root, "commit", "--quiet", "--message", "start")
    return root


# --- which .beads ----------------------------------------------------------------------------------------------------


def test_the_folder_is_found_from_anywhere_below(repo: Path) -> None:
    for start in (repo, repo / "src"):
        assert find_home(start, {}) == Home(beads=repo / ".beads", root=repo)


def test_the_nearest_folder_wins(repo: Path) -> None:
    inner = repo / "src" / "part"
    (inner / ".beads").mkdir(parents=True)

    assert find_home(inner, {}).beads == inner / ".beads"
    assert find_home(repo / "src", {}).beads == repo / ".beads"


def test_a_file_of_that_name_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / ".beads").mkdir()
    below = tmp_path / "below"
    below.mkdir()
    (below / ".beads").touch()

    assert find_home(below, {}).beads == tmp_path / ".beads"


def test_without_git_the_root_is_where_the_folder_stands(tmp_path: Path) -> None:
    (tmp_path / ".beads").mkdir()
    (tmp_path / "src").mkdir()

    assert find_home(tmp_path / "src", {}).root == tmp_path


def test_no_folder_at_all_is_told_with_the_way_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NoBeads, match=r"no \.beads folder") as fault:
        find_home(tmp_path, {})

    assert "mkdir .beads" in (fault.value.hint or "")


def test_the_environment_comes_before_the_search_and_the_flag_before_the_environment(
    repo: Path, tmp_path: Path
) -> None:
    named, flagged = tmp_path / "named", tmp_path / "flagged"
    named.mkdir()
    flagged.mkdir()

    assert find_home(repo, {"BEADS_DIR": str(named)}).beads == named
    assert find_home(repo, {"BEADS_DIR": str(named)}, beads=flagged).beads == flagged
    assert find_home(repo, {"BEADS_DIR": ""}).beads == repo / ".beads"


def test_a_named_folder_that_is_not_there_is_told(repo: Path, tmp_path: Path) -> None:
    with pytest.raises(NoBeads, match="nowhere"):
        find_home(repo, {"BEADS_DIR": str(tmp_path / "nowhere")})


# --- redirects -------------------------------------------------------------------------------------------------------


def test_a_redirect_leads_on_relative_to_where_its_folder_stands(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / ".beads"
    other.mkdir(parents=True)

    (repo / ".beads" / "redirect").write_text("../other/.beads\n")

    assert find_home(repo, {}) == Home(beads=other, root=repo)


def test_a_redirect_may_name_an_absolute_path_and_another_redirect(repo: Path, tmp_path: Path) -> None:
    middle, end = tmp_path / "middle", tmp_path / "end"
    middle.mkdir()
    end.mkdir()
    (repo / ".beads" / "redirect").write_text(str(middle))
    (middle / "redirect").write_text("end")

    assert find_home(repo, {}).beads == end


def test_redirects_in_a_circle_are_told(repo: Path) -> None:
    (repo / ".beads" / "redirect").write_text(".beads")

    with pytest.raises(NoBeads, match="circle"):
        find_home(repo, {})


def test_a_redirect_to_nowhere_is_told(repo: Path) -> None:
    (repo / ".beads" / "redirect").write_text("../gone")

    with pytest.raises(NoBeads, match="gone"):
        find_home(repo, {})


# --- worktrees -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["../linked", "worktrees/linked"], ids=["beside", "inside"])
def test_a_linked_worktree_shares_the_folder_of_its_repository(repo: Path, where: str) -> None:
    git(repo, "worktree", "add", "--quiet", where)
    linked = (repo / where).resolve()

    home = find_home(linked / "src", {})

    assert home == Home(beads=repo / ".beads", root=linked)


def test_a_copy_that_git_checked_out_into_a_worktree_is_not_taken_for_the_folder(repo: Path) -> None:
    (repo / ".beads" / "queen_messages.jsonl").touch()
    git(repo, "add", ".beads")
    git(repo, "commit", "--quiet", "--message", "beads")
    git(repo, "worktree", "add", "--quiet", "../linked")
    linked = repo.parent / "linked"

    home = find_home(linked, {})

    assert (linked / ".beads").is_dir()
    assert home == Home(beads=repo / ".beads", root=linked)


def test_a_worktree_with_a_redirect_of_its_own_follows_it(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "../linked")
    linked, other = tmp_path / "linked", tmp_path / "other"
    (linked / ".beads").mkdir()
    other.mkdir()
    (linked / ".beads" / "redirect").write_text("../other")

    assert find_home(linked, {}).beads == other


def test_a_worktree_of_a_repository_without_the_folder_has_none(repo: Path) -> None:
    git(repo, "worktree", "add", "--quiet", "../linked")
    (repo / ".beads").rmdir()

    with pytest.raises(NoBeads):
        find_home(repo.parent / "linked", {})


def test_a_submodule_is_no_worktree(repo: Path) -> None:
    """Its `.git` is a file too, but leads to a git folder of its own."""
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(repo), "module")
    module = repo / "module"

    assert (module / ".git").is_file()
    assert find_home(module, {}) == Home(beads=repo / ".beads", root=module)


# --- folders of a home -----------------------------------------------------------------------------------------------


def test_droids_and_private_things_have_their_places(repo: Path) -> None:
    home = find_home(repo, {})

    make_private(home.private)
    make_private(home.private)

    assert home.droids == repo / ".factory" / "droids"
    assert [path.name for path in home.private.iterdir()] == [".gitignore"]
    assert home.private.parent == home.beads


# --- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("src/a.py", "src/a.py"),
        ("*.md", "*.md"),
        ("**/x", "**/x"),
        ("./a.py", "src/a.py"),
        ("./part/../*.py", "src/*.py"),
        ("../docs/**", "docs/**"),
        ("./part/", "src/part/"),
        ("../", "./"),
        ("./", "src/"),
        ("{root}/src/a.py", "src/a.py"),
        ("{root}/src/", "src/"),
        ("{root}", "."),
        (".hidden", ".hidden"),
        ("..odd", "..odd"),
    ],
)
def test_only_what_starts_with_a_slash_or_a_dot_step_is_seen_from_the_current_folder(
    repo: Path, text: str, meant: str
) -> None:
    assert relative_path(text.format(root=repo), find_home(repo, {}), repo / "src") == meant


@pytest.mark.parametrize("text", ["../../elsewhere", "/etc/passwd", "{root}-other/a", "./../../x"])
def test_a_path_outside_the_repository_is_refused(repo: Path, text: str) -> None:
    with pytest.raises(InvalidValue, match="outside the repository"):
        relative_path(text.format(root=repo), find_home(repo, {}), repo / "src")


def test_a_repository_behind_a_link_is_known_by_both_names(repo: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repo)
    home = find_home(link / "src", {})

    assert home.root == link
    assert relative_path("./a.py", home, link / "src") == "src/a.py"
    assert relative_path(f"{repo}/src/a.py", home, link / "src") == "src/a.py"
