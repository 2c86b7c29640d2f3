"""Real kill -9 of daemons and commands over a running queue: every job ends, none runs twice at the same time.

QUEUEYARD_KILLS sets how many (1,000), split over workspaces of a hundred each.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from runforge_scenarios import Yard
from runforge_storm import Storm

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("QUEUEYARD_KILLS", "1000"))
KILLS_PER_WORKSPACE = 100

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def test_a_thousand_kills_leave_nothing_undone_and_nothing_done_twice_at_once(tmp_path: Path) -> None:
    daemons = commands = accepted = 0
    for number in range(max(1, KILLS // KILLS_PER_WORKSPACE)):
        storm = Storm(Yard(tmp_path / f"ws{number}"), random.Random(number))

        storm.rage(min(KILLS, KILLS_PER_WORKSPACE))
        storm.calm()

        storm.check()
        daemons += storm.daemon_kills
        commands += storm.command_kills
        accepted += len(storm.accepted)

    assert daemons
    assert commands
    print(f"{daemons} daemons and {commands} commands killed, {accepted} runs accepted and ended")  # noqa: T201
