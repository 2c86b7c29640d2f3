"""A short storm of kill -9 over a running queue; `tests/chaos` has the long one."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from runforge_scenarios import Yard
from runforge_storm import Storm

if TYPE_CHECKING:
    from pathlib import Path

KILLS = 30

# The children use nothing that another thread could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


@pytest.mark.parametrize("seed", [1])
def test_after_a_storm_every_job_has_ended_and_all_files_agree(tmp_path: Path, seed: int) -> None:
    storm = Storm(Yard(tmp_path / "ws"), random.Random(seed))

    storm.rage(KILLS)
    storm.calm()

    storm.check()
    assert storm.accepted
