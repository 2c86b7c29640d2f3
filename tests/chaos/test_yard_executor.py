"""Runs on panqueue workers, while daemons and workers are killed without warning."""

from __future__ import annotations

from contextlib import ExitStack
import json
import random
import signal
from typing import TYPE_CHECKING

import pytest

from scripts import finish, start_script
from servers import own_server, wait_until
from yards import YardFolder

if TYPE_CHECKING:
    from pathlib import Path
    import subprocess

pytestmark = pytest.mark.chaos
RUNS = 30
KILLS = 6
#: a lease of 30 s, a sweep every 10 s, and a machine that does much else
PATIENCE_S = 600.0
_SCRIPT = 'sleep 0.5; echo "$RUNFORGE_RUN_ID" >> ran'


def test_every_run_succeeds_whoever_is_killed(tmp_path: Path) -> None:
    """Each run is executed at least once, and its end is recorded once."""
    dice = random.Random(7)
    yard = YardFolder(tmp_path / "yard")
    with own_server() as server, ExitStack() as stack:
        yard.add_server(server)
        group = yard.add_sweep("all", _SCRIPT, list(range(RUNS)))
        lab = yard.root / "lab"

        def started(script: str, *words: str) -> subprocess.Popen[str]:
            child = start_script(script, *words, cwd=lab)
            stack.callback(finish, child)
            stack.callback(child.send_signal, signal.SIGTERM)
            return child

        def worker() -> subprocess.Popen[str]:
            return started("panqueue", "worker", "queueyard.yard.bridges.runs:worker", "--url", server.url)

        def daemon() -> subprocess.Popen[str]:
            return started("runforge-cli", "daemon", "--executor", "panqueue", "--max-parallel", "4")

        served = {"worker": worker(), "daemon": daemon()}
        make = {"worker": worker, "daemon": daemon}
        for number in range(1, KILLS + 1):
            wait_until(lambda at_least=number * 3: ran(lab) >= at_least, "nothing goes on", PATIENCE_S)  # type: ignore[misc]
            name = dice.choice(list(served))
            served[name].send_signal(signal.SIGKILL)
            served[name].wait()
            served[name] = make[name]()
        wait_until(lambda: states(lab) == ["succeeded"] * RUNS, "not every run succeeded", PATIENCE_S)

        runs = set((lab / "ran").read_text().split())
        done = yard.runforge("wait", group, "--timeout", "60s", "--json")
        assert len(runs) == RUNS
        assert done.json["succeeded"] == RUNS


def ran(lab: Path) -> int:
    return len((lab / "ran").read_text().split()) if (lab / "ran").exists() else 0


def states(lab: Path) -> list[str]:
    jobs = json.loads((lab / ".runforge" / "queue" / "queue.json").read_bytes())["jobs"]
    return [job["state"] for job in jobs]
