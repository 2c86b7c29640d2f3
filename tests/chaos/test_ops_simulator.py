"""Ten thousand worlds, each played from its seed, and two thousand with folders (see promises/test_ops_simulator.py).

OPS_FIRST_SEED (1000), OPS_SEEDS (10000) and OPS_FOLDER_SEEDS (2000) set which.
"""

from __future__ import annotations

import os
from pathlib import Path
import tempfile

import pytest

from unit.ops.support.folder_world import FolderWorld
from unit.ops.support.simulator import World, simulated

pytestmark = pytest.mark.chaos

#: the first two hundred belong to the ordinary tests
FIRST = int(os.environ.get("OPS_FIRST_SEED", "1000"))
SEEDS = int(os.environ.get("OPS_SEEDS", "10000"))
FOLDER_SEEDS = int(os.environ.get("OPS_FOLDER_SEEDS", "2000"))
AT_ONCE = 250


def play(kind: type[World], seeds: range, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        for seed in seeds:
            with simulated(seed, Path(folder), kind) as world:
                assert world.violations() == [], f"seed {seed}"


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, AT_ONCE))
def test_every_op_arrives_once_whatever_fails(first: int, tmp_path: Path) -> None:
    play(World, range(first, min(first + AT_ONCE, FIRST + SEEDS)), tmp_path)


@pytest.mark.parametrize("first", range(FIRST, FIRST + FOLDER_SEEDS, AT_ONCE))
def test_folders_and_server_agree_in_the_end_whatever_fails(first: int, tmp_path: Path) -> None:
    play(FolderWorld, range(first, min(first + AT_ONCE, FIRST + FOLDER_SEEDS)), tmp_path)
