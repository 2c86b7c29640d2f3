"""Which repository: from any folder of any workspace, and however its link is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.jjq.errors import NotARepository
from queueyard.jjq.home import find_home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def main(tmp_path: Path) -> Path:
    (tmp_path / "main" / ".jj" / "repo" / "store").mkdir(parents=True)
    (tmp_path / "main" / "src" / "deep").mkdir(parents=True)
    return tmp_path / "main"


def test_the_first_workspace_holds_the_repository_itself(main: Path) -> None:
    home = find_home(main / "src" / "deep")

    assert home.workspace == main
    assert home.repo == main / ".jj" / "repo"
    assert home.source == str(main)


@pytest.mark.parametrize("link", ["../../main/.jj/repo", "{main}/.jj/repo", "../../main/.jj/repo\n"])
def test_another_workspace_leads_to_it_by_a_relative_or_an_absolute_path(main: Path, tmp_path: Path, link: str) -> None:
    agent = tmp_path / "agent"
    (agent / ".jj").mkdir(parents=True)
    (agent / ".jj" / "repo").write_text(link.format(main=main), encoding="utf-8")

    home = find_home(agent)

    assert home.workspace == agent
    assert home.repo == main / ".jj" / "repo"
    assert home.public_locks == main / ".jj" / "jjq-locks"
    assert home.private == find_home(main).private


def test_outside_and_with_a_link_to_nowhere_it_is_refused(main: Path, tmp_path: Path) -> None:
    (tmp_path / "broken" / ".jj").mkdir(parents=True)
    (tmp_path / "broken" / ".jj" / "repo").write_text("../gone", encoding="utf-8")

    with pytest.raises(NotARepository, match=r"no \.jj"):
        find_home(tmp_path)
    with pytest.raises(NotARepository, match="leads to"):
        find_home(tmp_path / "broken")
