"""kill -9 of the driver at exact places of a run: the next runs go on, and in the end every table is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.histories import seen_in
from pipeline.killing import Driver
from queueyard.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

#: the driver dies as soon as one more of these files is there
_POINTS = (
    # read and written, not committed
    "bronze/lines/write=*.parquet",
    # committed, nothing built from it
    "bronze/lines/_delta_log/*.json",
    # in the middle of the fold
    "silver/events/write=*.parquet",
    # between two tables that belong together
    "silver/items/_delta_log/*.json",
    # half of gold is new, the other half is old
    "gold/durations/_delta_log/*.json",
)


@pytest.mark.timeout(900)
def test_a_driver_that_is_killed_at_five_places_leaves_the_same_tables(
    spark: SparkSession, undisturbed: Undisturbed, connect: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    for point in _POINTS:
        Driver(undisturbed.folder, home, connect, log=tmp_path / "driver.log").kill_at(point)

    Driver(undisturbed.folder, home, connect, log=tmp_path / "driver.log").finish()

    assert undisturbed.batches > 1
    assert seen_in(Warehouse(spark, str(home))) == undisturbed.seen
