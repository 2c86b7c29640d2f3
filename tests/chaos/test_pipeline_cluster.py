"""A standalone master with two workers, each a process of its own: the same tables, and both of them worked.

Not among the ordinary tests because of its seven Java processes, which want minutes of two cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pipeline.clusters import standalone
from pipeline.histories import seen_in, undisturbed_run
from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.warehouse import Warehouse
from scripts import run_script

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]


def test_a_run_on_two_workers_makes_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.LONGEST_RUN_S", 1800)
    session = start(Spark(master="local[2]"))
    local = undisturbed_run(session, tmp_path / "local")
    home = str(tmp_path / "home")

    with standalone(tmp_path / "cluster", workers=2) as master:
        command = ("pipeline", "run", "--yard", str(local.folder), "--home", home, "--master", master)
        done = run_script("queueyard", *command, cwd=tmp_path)

    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(session, home)) == local.seen
    for number in range(2):
        [log] = (tmp_path / "cluster" / f"work-{number}").glob("app-*/*/stderr")
        assert "Finished task" in log.read_text(), f"worker {number} did nothing"
