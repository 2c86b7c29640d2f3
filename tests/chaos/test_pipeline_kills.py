"""kill -9 of a driver and its JVM at random places of ingest, fold and commit: the tables are those of a quiet run.

QUEUEYARD_KILLS sets how often (50), and QUEUEYARD_KILLS_SEED (8) where. A place is "so many files more than before,
anywhere in the home": files that Spark is about to write and commits of every table alike. When a run comes to its end
between two kills, its tables are held against the quiet ones, and the next home is begun.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pipeline.histories import seen_in, undisturbed_run
from pipeline.killing import Driver
from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

KILLS = int(os.environ.get("QUEUEYARD_KILLS", "50"))
SEED = int(os.environ.get("QUEUEYARD_KILLS_SEED", "8"))
#: a run makes about 2**9 files; small numbers and large ones are equally likely
_MOST_DOUBLINGS = 8.5

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


def test_fifty_deaths_leave_the_same_tables(tmp_path: Path) -> None:
    session = start(Spark(master="local[2]"))
    quiet = undisturbed_run(session, tmp_path / "quiet")
    chance = random.Random(SEED)
    deaths, homes = 0, 1
    while deaths < KILLS:
        home = tmp_path / f"home-{homes}"
        driver = Driver(quiet.folder, home, "local[2]", log=tmp_path / "driver.log")
        if driver.is_killed_at("*", more=int(2 ** chance.uniform(0, _MOST_DOUBLINGS))):
            deaths += 1
        else:
            assert seen_in(Warehouse(session, str(home))) == quiet.seen
            homes += 1
    last = tmp_path / f"home-{homes}"
    Driver(quiet.folder, last, "local[2]", log=tmp_path / "driver.log").finish()

    assert seen_in(Warehouse(session, str(last))) == quiet.seen
    print(f"{deaths} deaths, {homes} homes, {quiet.batches} batches each")  # noqa: T201
