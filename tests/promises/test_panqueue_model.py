"""The Lua scripts and the Python model of them are one: the same calls give the same replies and leave the same data.

Everything that the simulation shows about the model therefore holds for the scripts.
"""

from __future__ import annotations

import random

import pytest

from queueyard.panqueue import scripts
from queueyard.panqueue.records import Mode
from servers import Server, server
from unit.panqueue.model_schedules import WholeModel
from unit.panqueue.twins import Twin

__all__ = ["server"]

SEEDS = 15
STEPS = 60


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_calls_give_the_same_replies_and_leave_the_same_data(server: Server, mode: Mode, seed: int) -> None:
    twin = Twin(server, random.Random(f"{mode}-{seed}"), mode)

    for _ in range(STEPS):
        twin.step()
    twin.line.close()

    assert twin.ids


def test_the_model_knows_every_script_that_moves_jobs() -> None:
    looking_after = {"counts", "page", "retry", "remove", "drain", "obliterate", "mend", "switch_events", "trim"}
    about_running_jobs = {"report", "step", "forwarded", "child_ended", "ended_children"}
    left_out = looking_after | about_running_jobs

    missing = [one.name for one in scripts.ALL if one.name not in left_out and not hasattr(WholeModel, f"_{one.name}")]

    assert missing == []
