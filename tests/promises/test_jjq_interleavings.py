"""Whatever users do while a check runs: what lands is exactly what was checked. A sample; the whole is in chaos."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of
from jjq_interleavings import broken_promises, meddle, prepare, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)


@pytest.fixture(scope="session")
def prepared(repository_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Path]:
    """Three queued items of these kinds; made once."""

    @cache
    def prepare_once(kinds: tuple[str, ...]) -> Path:
        return prepare(repository_template, tmp_path_factory.mktemp("prepared") / "home", kinds).home

    return prepare_once


@pytest.mark.parametrize(
    ("kinds", "what", "at", "mode"),
    [
        (("passes", "passes", "passes"), "amend the item", 1, "run"),
        (("passes", "passes", "passes"), "amend the item", 2, "run --jobs"),
        (("passes", "fails", "passes"), "amend the item", 2, "run --all"),
        (("passes", "passes", "passes"), "amend the item", 3, "run --batch"),
        (("passes", "passes", "passes"), "amend the first item", 3, "run --jobs"),
        (("passes", "passes", "passes"), "amend the last item", 1, "run --jobs"),
        (("passes", "passes", "passes"), "move trunk", 1, "run"),
        (("passes", "conflicts", "passes"), "move trunk", 3, "run --jobs"),
        (("fails", "passes", "passes"), "move trunk", 1, "run --all"),
        (("passes", "passes", "fails"), "move trunk", 3, "run --batch"),
        (("passes", "passes", "passes"), "delete the item", 1, "run"),
        (("passes", "passes", "passes"), "delete the item", 2, "run --jobs"),
        (("passes", "passes", "passes"), "reword the item", 2, "run --jobs"),
        (("conflicts", "conflicts", "fails"), "look around", 1, "run --jobs"),
    ],
)
def test_trunk_is_always_what_was_checked(
    kinds: tuple[str, ...],
    what: str,
    at: int,
    mode: str,
    prepared: Callable[[tuple[str, ...]], Path],
    tmp_path: Path,
) -> None:
    repository = copy_of(prepared(kinds), tmp_path / "home")
    meddle(repository, what, at=at)

    run_to_the_end(repository, mode)

    assert broken_promises(repository) == []
