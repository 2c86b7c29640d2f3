"""Kill -9 at every call to jj of every command, before and after it: the next command puts everything in order."""

from __future__ import annotations

from itertools import cycle
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import KILLED
from jjq_scenarios import NEXT, SCENARIOS, broken_promises, die, prepare

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)
pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("name", SCENARIOS)
def test_whatever_call_a_command_dies_at_the_next_command_mends_it(
    name: str, repository_template: Path, tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    prepared = prepare(scenario, repository_template, tmp_path / "prepared").home
    follow_up = cycle(NEXT.items())
    deaths = 0
    broken: list[str] = []

    for at in range(200):
        for after in (False, True):
            verb, then = next(follow_up)
            folder = tmp_path / f"{at}-{after}"
            repository, killed = die(scenario, prepared, folder, at=at, after=after)
            if killed.code != KILLED:
                continue
            deaths += 1
            then(repository)
            told = broken_promises(scenario, repository)
            broken += [f"call {at} {'after' if after else 'before'}, then {verb}: {one}" for one in told]
            shutil.rmtree(folder)
        if deaths <= 2 * at:
            break

    assert deaths > 2
    assert broken == []
