"""Fixtures with a real jj. A test module asks for them with `pytest_plugins = ("jj_fixtures",)`."""

from __future__ import annotations

from functools import cache
import os
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import CONFIG, Repository, copy_of
import jjq_interleavings
import jjq_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def jj() -> str:
    """The real jj. Without it a test is skipped, saying so; in CI it fails."""
    found = shutil.which("jj")
    if found is None:
        reason = "jj is not on the PATH: python tools/fetch_parts.py jj"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def repository_template(jj: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one revision on `main`, to be copied."""
    home = tmp_path_factory.mktemp("template")
    (home / "jj.toml").write_text(CONFIG, encoding="utf-8")
    (home / "tmp").mkdir()
    made = Repository(root=home / "repo", home=home)
    made.jj("git", "init", "--quiet", str(made.root), cwd=home)
    (made.root / "base.txt").write_text("base\n", encoding="utf-8")
    made.jj("commit", "--quiet", "-m", "base")
    made.jj("bookmark", "create", "--quiet", "main", "-r", "@-")
    return home


@pytest.fixture
def fresh(repository_template: Path, tmp_path: Path) -> Repository:
    """A repository that jjq has never seen."""
    return copy_of(repository_template, tmp_path / "home")


@pytest.fixture(scope="session")
def ready_template(repository_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, initialized, with a check that passes unless there is a file named `bad`."""
    repository = copy_of(repository_template, tmp_path_factory.mktemp("ready") / "home")
    repository.ok("config", "check_command", "test ! -e bad")
    return repository.home


@pytest.fixture
def repository(ready_template: Path, tmp_path: Path) -> Repository:
    """A repository that is ready to queue and to run."""
    return copy_of(ready_template, tmp_path / "home")


@pytest.fixture(scope="session")
def failed_template(ready_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with item 1, a revision named `broken`, that has failed; it also has the file work.txt."""
    repository = copy_of(ready_template, tmp_path_factory.mktemp("failed") / "home")
    repository.push("broken", {"bad": "x\n", "work.txt": "work\n"})
    assert repository.jjq("run").code == 1
    return repository.home


@pytest.fixture(scope="session")
def prepared_scenario(repository_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The repository of a scenario, before the command that dies in it; made once."""

    @cache
    def prepare_once(name: str) -> Path:
        home = tmp_path_factory.mktemp("scenario") / "home"
        return jjq_scenarios.prepare(jjq_scenarios.SCENARIOS[name], repository_template, home).home

    return prepare_once


@pytest.fixture(scope="session")
def prepared_items(
    repository_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[tuple[str, ...]], Path]:
    """A repository with three queued items of these kinds; made once."""

    @cache
    def prepare_once(kinds: tuple[str, ...]) -> Path:
        home = tmp_path_factory.mktemp("items") / "home"
        return jjq_interleavings.prepare(repository_template, home, kinds).home

    return prepare_once
