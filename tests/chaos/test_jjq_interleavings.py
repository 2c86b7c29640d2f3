"""All kinds of items, all kinds of meddling, all ways of running: what lands is exactly what was checked."""

from __future__ import annotations

from itertools import product
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import Repository
from jjq_interleavings import KINDS, MEDDLING, MODES, broken_promises, meddle, prepare, run_to_the_end

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)
pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("kinds", list(product(KINDS, repeat=3)), ids="-".join)
def test_trunk_is_always_what_was_checked(kinds: tuple[str, ...], repository_template: Path, tmp_path: Path) -> None:
    prepared = prepare(repository_template, tmp_path / "prepared", kinds).home
    broken: list[str] = []

    for what, at, mode in product(MEDDLING, (1, 2, 3), MODES):
        folder = tmp_path / "copy"
        shutil.copytree(prepared, folder, symlinks=True)
        repository = Repository(root=folder / "repo", home=folder)
        repository.ok("config", "check_command", f"sh {folder / 'check.sh'}")
        meddle(repository, what, at=at)
        run_to_the_end(repository, mode)
        broken += [f"{what} at {at}, {mode}: {one}" for one in broken_promises(repository)]
        shutil.rmtree(folder)

    assert broken == []
