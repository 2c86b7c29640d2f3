"""All kinds of items, all kinds of meddling, all ways of running: what lands is exactly what was checked.

Every kind of items meets every meddling at every place, in one of the ways of running; the ways take turns, so that
every meddling at every place also meets every way of running, several times.
"""

from __future__ import annotations

from itertools import cycle, islice, product
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of
from jjq_interleavings import KINDS, MEDDLING, MODES, broken_promises, meddle, prepare, run_to_the_end

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)
pytestmark = pytest.mark.chaos


ALL_KINDS = list(product(KINDS, repeat=3))


@pytest.mark.parametrize("kinds", ALL_KINDS, ids="-".join)
def test_trunk_is_always_what_was_checked(kinds: tuple[str, ...], repository_template: Path, tmp_path: Path) -> None:
    modes = islice(cycle(MODES), ALL_KINDS.index(kinds), None)
    prepared = prepare(repository_template, tmp_path / "prepared", kinds).home
    broken: list[str] = []

    for (what, at), mode in zip(product(MEDDLING, (1, 2, 3)), modes, strict=False):
        folder = tmp_path / "copy"
        repository = copy_of(prepared, folder)
        meddle(repository, what, at=at)
        run_to_the_end(repository, mode)
        broken += [f"{what} at {at}, {mode}: {one}" for one in broken_promises(repository)]
        shutil.rmtree(folder)

    assert broken == []
