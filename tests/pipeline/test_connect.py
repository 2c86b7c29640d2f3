"""The real command through a Spark Connect server: the tables of a local run, and one run at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from pipeline.histories import seen_in
from queueyard.pipeline.session import take_turns
from queueyard.pipeline.warehouse import Warehouse
from scripts import finish, run_script, start_script

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pipeline.histories import Undisturbed

_LONGEST_WAIT_S = 200.0
_POOL = "spark.scheduler.pool"
_REMOTE = """
import sys
from queueyard.pipeline.session import Spark, start, take_turns

session = start(Spark(remote=sys.argv[1]))
take_turns(session, pool="small")
print(session.range(3).count())
"""


def test_a_run_through_connect_makes_the_same_tables_while_a_second_one_is_refused(
    spark: SparkSession, undisturbed: Undisturbed, connect: str, tmp_path: Path
) -> None:
    command = ("pipeline", "run", "--yard", str(undisturbed.folder), "--home", str(tmp_path / "home"))
    first = start_script("queueyard", *command, "--remote", connect, cwd=tmp_path)
    _wait_for_lock(tmp_path / "home" / "lock", first)
    # It holds the lock, and stands still, for as long as the second one needs.
    first.send_signal(signal.SIGSTOP)
    try:
        refused = finish(start_script("queueyard", *command, "--remote", connect, "--json", cwd=tmp_path))
    finally:
        first.send_signal(signal.SIGCONT)
    done = finish(first)

    assert refused.code != 0
    assert f"pid {first.pid}" in refused.fault["error"]
    assert refused.stdout == ""
    assert done.code == 0, done.stderr
    assert seen_in(Warehouse(spark, str(tmp_path / "home"))) == undisturbed.seen


def test_turns_are_taken_where_the_session_is_ours_and_left_to_the_server_where_it_is_not(
    spark: SparkSession, connect: str
) -> None:
    take_turns(spark, pool="small")
    pool = spark.sparkContext.getLocalProperty(_POOL)
    spark.sparkContext.setLocalProperty(_POOL, None)  # type: ignore[arg-type]
    remote = subprocess.run([sys.executable, "-c", _REMOTE, connect], capture_output=True, text=True, check=False)

    assert pool == "small"
    assert (remote.returncode, remote.stdout) == (0, "3\n"), remote.stderr


def test_a_server_that_is_kept_answers_the_next_call_too(undisturbed: Undisturbed, tmp_path: Path) -> None:
    known = tmp_path / "server" / "known.json"
    found: list[tuple[Any, int]] = []
    try:
        for _ in range(2):
            asked = run_script(
                "queueyard",
                *("pipeline", "query", "SELECT count(*) AS n FROM summary", "--json", "--remote", "local"),
                *("--yard", str(undisturbed.folder), "--home", str(undisturbed.home)),
                cwd=tmp_path,
                SPARK_LOCAL_CONNECT_DISCOVERY=str(known),
            )
            assert (asked.code, asked.stderr.splitlines()[1:]) == (0, [])
            found.append((asked.json, json.loads(known.read_text())["pid"]))
    finally:
        subprocess.run(
            [sys.executable, "-m", "pyspark.sql.connect.local_server", "--stop"],
            env={**os.environ, "SPARK_LOCAL_CONNECT_DISCOVERY": str(known)},
            check=False,
        )

    assert found[0] == found[1]


def _wait_for_lock(path: Path, run: subprocess.Popen[str]) -> None:
    end = time.monotonic() + _LONGEST_WAIT_S
    while not path.exists() or not path.read_text():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)
