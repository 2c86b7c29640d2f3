"""Kill -9 at every call to jj of every command, before and after it: the next command puts everything in order."""

from __future__ import annotations

from itertools import cycle
import shutil
from typing import TYPE_CHECKING

import pytest

from jj_repositories import KILLED
from jjq_scenarios import NEXT, SCENARIOS, broken_promises, die

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest_plugins = ("jj_fixtures",)
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

MOST_CALLS = 200


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whatever_call_a_command_dies_at_the_next_command_mends_it(
    name: str, after: bool, prepared_scenario: Callable[[str], Path], tmp_path: Path
) -> None:
    scenario = SCENARIOS[name]
    follow_up = cycle(NEXT.items())
    broken: list[str] = []

    for at in range(MOST_CALLS):
        repository, killed = die(scenario, prepared_scenario(name), tmp_path / "home", at=at, after=after)
        if killed.code != KILLED:
            break
        verb, then = next(follow_up)
        then(repository)
        broken += [f"call {at}, then {verb}: {one}" for one in broken_promises(scenario, repository)]
        shutil.rmtree(repository.home)

    assert 1 < at < MOST_CALLS - 1
    assert broken == []
