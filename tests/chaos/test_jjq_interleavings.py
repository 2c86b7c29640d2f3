"""All kinds of items, all kinds of meddling, all ways of running: what lands is exactly what was checked.

Every kind of items meets every meddling at every place, in one of the ways of running; the ways take turns, so that
every meddling at every place also meets every way of running, several times.
"""

from __future__ import annotations

from itertools import product
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import copy_of
from jjq_interleavings import KINDS, MEDDLING, MODES, broken_promises, meddle, run_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

ALL_KINDS = list(product(KINDS, repeat=3))
PLACES = (1, 2, 3)


@pytest.mark.parametrize("kinds", ALL_KINDS, ids="-".join)
@pytest.mark.parametrize("what", MEDDLING)
def test_trunk_is_always_what_was_checked(
    what: str, kinds: tuple[str, ...], prepared_items: Callable[[tuple[str, ...]], Path], tmp_path: Path
) -> None:
    turn = ALL_KINDS.index(kinds) + len(PLACES) * list(MEDDLING).index(what)
    broken: list[str] = []

    for at in PLACES:
        mode = list(MODES)[(turn + at) % len(MODES)]
        repository = copy_of(prepared_items(kinds), tmp_path / "home")
        meddle(repository, what, at=at)
        run_to_the_end(repository, mode)
        broken += [f"{what} at {at}, {mode}: {one}" for one in broken_promises(repository)]
        shutil.rmtree(repository.home)

    assert broken == []
