"""Ten thousand worlds, each played from its seed (see promises/test_ops_simulator.py)."""

from __future__ import annotations

import os
from pathlib import Path
import tempfile

import pytest

from unit.ops.support.simulator import simulated

pytestmark = pytest.mark.chaos

#: the first two hundred belong to the ordinary tests
FIRST = int(os.environ.get("OPS_FIRST_SEED", "1000"))
SEEDS = int(os.environ.get("OPS_SEEDS", "10000"))
AT_ONCE = 250


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, AT_ONCE))
def test_every_op_arrives_once_whatever_fails(first: int, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        for seed in range(first, first + AT_ONCE):
            with simulated(seed, Path(folder)) as world:
                assert world.violations() == [], f"seed {seed}"
