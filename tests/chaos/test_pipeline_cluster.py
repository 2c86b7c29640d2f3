"""A standalone master with two workers, each a process of its own: the same tables in the rarer ways to use it.

The usual way is among the ordinary tests (`tests/pipeline/test_cluster.py`). Each takes most of a minute of two cores.
"""

from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pipeline.clusters import HOME, assert_all_worked, connect_server, spark_environment, standalone
from pipeline.histories import seen_in, undisturbed_run
from queueyard.pipeline.session import Spark, start
from queueyard.pipeline.warehouse import Warehouse
from scripts import finish, run_script, start_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

_LONGEST_RUN_S = 1800
_SUBMITTED = """\
from queueyard.cli import main

main(["pipeline", "run", "--yard", {yard!r}, "--home", {home!r}, "--master", {master!r}])
"""


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    session = start(Spark(master="local[2]"))
    yield session
    session.stop()


@pytest.fixture(scope="module")
def local(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """What all runs of a cluster are held against."""
    return undisturbed_run(session, tmp_path_factory.mktemp("local"))


@pytest.fixture(autouse=True)
def _much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.LONGEST_RUN_S", _LONGEST_RUN_S)


def test_a_connect_server_of_the_cluster_makes_the_same_tables(
    session: SparkSession, local: Undisturbed, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")

    with standalone(tmp_path / "cluster", workers=2) as master, connect_server(tmp_path, master=master) as address:
        command = ("pipeline", "run", "--yard", str(local.folder), "--home", home, "--remote", address)
        done = run_script("queueyard", *command, cwd=tmp_path)

    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(session, home)) == local.seen
    assert_all_worked(tmp_path / "cluster", workers=2)


def test_what_is_submitted_makes_the_same_tables(session: SparkSession, local: Undisturbed, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    program = tmp_path / "run.py"

    with standalone(tmp_path / "cluster", workers=2) as master:
        program.write_text(_SUBMITTED.format(yard=str(local.folder), home=home, master=master))
        done = subprocess.run(
            [HOME / "bin" / "spark-submit", "--master", master, program],
            env=spark_environment(),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=_LONGEST_RUN_S,
            check=False,
        )

    assert done.returncode == 0, done.stderr[-4000:]
    assert seen_in(Warehouse(session, home)) == local.seen
    assert_all_worked(tmp_path / "cluster", workers=2)


def test_an_executor_that_dies_leaves_the_same_tables(
    session: SparkSession, local: Undisturbed, tmp_path: Path
) -> None:
    home = str(tmp_path / "home")
    work = tmp_path / "cluster" / "work-0"

    with standalone(tmp_path / "cluster", workers=2) as master:
        command = ("pipeline", "run", "--yard", str(local.folder), "--home", home, "--master", master)
        run = start_script("queueyard", *command, cwd=tmp_path)
        _kill_executor(work, run)
        done = finish(run)

    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(session, home)) == local.seen
    assert len(list(work.glob("app-*/*"))) > 1, "no other executor took its place"


def _kill_executor(work: Path, run: subprocess.Popen[str]) -> None:
    """SIGKILL as soon as it has done something."""
    end = time.monotonic() + _LONGEST_RUN_S
    while not (logs := [log for log in work.glob("app-*/*/stderr") if "Finished task" in log.read_text()]):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end, "no task came to its end"
        time.sleep(0.01)
    [executor] = [pid for pid in _processes_in(logs[0].parent) if b"ExecutorBackend" in _command_of(pid)]
    os.kill(executor, signal.SIGKILL)


def _processes_in(folder: Path) -> list[int]:
    return [int(one.name) for one in Path("/proc").glob("[0-9]*") if _folder_of(one) == folder]


def _folder_of(process: Path) -> Path | None:
    try:
        return (process / "cwd").readlink()
    except OSError:
        return None


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
