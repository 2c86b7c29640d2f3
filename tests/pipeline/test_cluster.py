"""The real command on a standalone master with two workers, each a process of its own: the tables of a local run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.clusters import assert_all_worked, standalone
from pipeline.histories import seen_in
from queueyard.pipeline.warehouse import Warehouse
from scripts import run_script

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed


def test_a_run_on_two_workers_makes_the_same_tables(
    spark: SparkSession, undisturbed: Undisturbed, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")

    with standalone(tmp_path / "cluster", workers=2) as master:
        command = ("pipeline", "run", "--yard", str(undisturbed.folder), "--home", home, "--master", master)
        done = run_script("queueyard", *command, cwd=tmp_path)

    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(spark, home)) == undisturbed.seen
    assert_all_worked(tmp_path / "cluster", workers=2)
