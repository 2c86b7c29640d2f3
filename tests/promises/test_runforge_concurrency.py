"""Several processes at once: nothing that was acknowledged is lost, nothing runs twice."""

from __future__ import annotations

from collections import Counter
import itertools
import re
from typing import TYPE_CHECKING

from runforge_scenarios import Yard, own_process
from scripts import finish

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES = 2
ENQUEUES = 200

_ENQUEUER = """
import sys
from pathlib import Path
from queueyard.runforge import RunForge

forge = RunForge.open(Path(sys.argv[1]))
for run in sys.argv[2:]:
    print(forge.enqueue_run(run).job_id)
"""


def enqueue_all(yard: Yard, *, processes: int = PROCESSES, each: int = ENQUEUES) -> list[str]:
    """Enqueue from several processes at once; the job ids that were acknowledged."""
    names = [[f"p{process}-{number}" for number in range(each)] for process in range(processes)]
    for run in itertools.chain(*names):
        yard.make_run(run, "sh", "-c", 'echo "$RUNFORGE_RUN_ID" >> ran')
    running = [own_process(["-c", _ENQUEUER, str(yard.root), *runs], yard.root) for runs in names]
    answers = [finish(one) for one in running]
    assert [answer.code for answer in answers] == [0] * processes, answers
    return [line for answer in answers for line in answer.stdout.split()]


def test_two_processes_with_200_enqueues_each_beside_a_daemon_are_400_jobs_and_400_runs(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "ws")

    with yard.daemon() as daemon:
        acknowledged = enqueue_all(yard)
        done = len(re.findall("JOB_DONE", "".join(daemon.said)))
        daemon.wait_for("JOB_DONE", PROCESSES * ENQUEUES - done)
        daemon.stop()

    assert len(set(acknowledged)) == PROCESSES * ENQUEUES
    assert sorted(job["job_id"] for job in yard.jobs()) == sorted(acknowledged)
    assert set(yard.states().values()) == {"succeeded"}
    ran = Counter((yard.root / "ran").read_text().split())
    assert (len(ran), set(ran.values())) == (PROCESSES * ENQUEUES, {1})


def test_without_a_daemon_the_queue_is_whole_too(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "ws")

    acknowledged = enqueue_all(yard, processes=3, each=30)

    assert sorted(job["job_id"] for job in yard.jobs()) == sorted(acknowledged)
    assert len(set(acknowledged)) == 90


def test_of_many_daemons_that_start_at_once_one_serves(tmp_path: Path) -> None:
    yard = Yard(tmp_path / "ws")
    words = ["-m", "runforge_cli", "daemon", "--workspace", str(yard.root)]

    starting = [own_process(words, yard.root) for _ in range(4)]
    lines = [one.stdout.readline() if one.stdout else "" for one in starting]

    serving = [one for one, line in zip(starting, lines, strict=True) if "STARTED" in line]
    assert len(serving) == 1
    assert yard.daemon_json()["pid"] == serving[0].pid
    serving[0].terminate()
    answers = [finish(one) for one in starting]
    assert sorted(answer.code for answer in answers) == [0, 1, 1, 1]
