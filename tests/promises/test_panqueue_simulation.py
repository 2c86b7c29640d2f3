"""A thousand schedules of whole workers: nothing lost, nothing finished twice, never over a limit.

QUEUEYARD_SEEDS sets how many (1,000). A seed that fails is named and can be run alone.
"""

from __future__ import annotations

import os

import pytest

from unit.panqueue.simulation import Simulation

SEEDS = int(os.environ.get("QUEUEYARD_SEEDS", "1000"))
PER_TEST = 50


@pytest.mark.parametrize("start", range(0, SEEDS, PER_TEST))
def test_whatever_happens_every_job_is_finished_once_and_no_limit_is_passed(start: int) -> None:
    broken = {}
    for seed in range(start, min(start + PER_TEST, SEEDS)):
        problems = Simulation(seed).run()
        if problems:
            broken[seed] = problems

    assert broken == {}


def test_the_same_seed_is_the_same_schedule() -> None:
    def moves(seed: int) -> list[tuple[str, str, str]]:
        simulation = Simulation(seed)
        simulation.run()
        # Tokens begin with a word that is random on purpose.
        return [(what, item, token.rpartition("-")[2]) for what, item, token in simulation.history._moves]

    assert moves(7) == moves(7)
    assert moves(7) != moves(8)


def test_a_worker_without_fencing_would_be_noticed() -> None:
    """The checker itself: a server that takes every finish finishes some jobs twice."""
    broken = 0
    for seed in range(60):
        simulation = Simulation(seed)
        model = simulation.world.model
        drop = model._drop_lock
        # A lease that was taken back stays good for its old holder.
        model._drop_lock = lambda key, drop=drop: None  # type: ignore[method-assign,misc]
        broken += bool(simulation.run())

    assert broken
