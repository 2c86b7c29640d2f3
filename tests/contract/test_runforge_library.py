"""The queue from Python: what a program, a notebook or a test of somebody else does with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.errors import QueueyardError
from queueyard.runforge import RunForge
from queueyard.runforge.errors import DaemonRunning, InvalidPlan
from runforge_scenarios import PATIENCE_S, Yard
from scripts import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.runforge.records import Raw


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


@pytest.fixture
def forge(yard: Yard) -> RunForge:
    return RunForge.open(yard.root, environment=clean_environment(yard.root))


def plan(name: str, *command: str, values: list[int]) -> Raw:
    return {
        "group": {"name": name},
        "base_request": {"version": 1, "command": list(command)},
        "strategy": {"type": "grid", "parameters": [{"path": "env.X", "values": values}]},
    }


def test_two_sweeps_run_fail_and_are_retried_in_a_few_lines(yard: Yard, forge: RunForge) -> None:
    groups = [
        forge.enqueue_sweep(plan(name, "sh", "-c", "[ $X -lt 5 ] || [ -e fixed ]", values=list(range(6))))[0].group_id
        or ""
        for name in ("first", "second")
    ]

    with forge.daemon(max_parallel=2):
        ended = [forge.wait(group, timeout_s=PATIENCE_S) for group in groups]
        (yard.root / "fixed").touch()
        again = [job.attempt for group in groups for job in forge.retry_failed(group)]
        mended = [forge.wait(group, timeout_s=PATIENCE_S) for group in groups]

    assert ended == [{"succeeded": 5, "failed": 1, "canceled": 0}] * 2
    assert again == [2, 2]
    assert mended == [{"succeeded": 6, "failed": 0, "canceled": 0}] * 2
    assert forge.status().daemon.state == "stopped"


def test_a_plan_that_makes_no_sense_is_refused_with_its_field(forge: RunForge) -> None:
    with pytest.raises(InvalidPlan, match=r"strategy\.parameters\[0\]\.values"):
        forge.enqueue_sweep(plan("empty", "true", values=[]))


def test_a_plan_runs_in_the_workspace_that_was_opened(yard: Yard, forge: RunForge, tmp_path: Path) -> None:
    elsewhere = plan("mine", "true", values=[1]) | {"workspace": str(tmp_path / "elsewhere")}

    [job] = forge.enqueue_sweep(elsewhere)

    assert (yard.runs / job.run_id / "request.json").is_file()


def test_a_second_daemon_is_refused_with_the_pid_of_the_first(yard: Yard, forge: RunForge) -> None:
    with yard.daemon() as daemon:
        with pytest.raises(DaemonRunning, match=str(daemon.process.pid)), forge.daemon():
            pytest.fail("there are two")

        assert yard.daemon_json()["pid"] == daemon.process.pid


def test_a_daemon_that_cannot_start_says_where_it_told_why(yard: Yard, forge: RunForge) -> None:
    yard.queue_folder.mkdir(parents=True)
    (yard.queue_folder / "queue.json").write_text("{")

    with pytest.raises(QueueyardError, match="exit code 1") as refused, forge.daemon():
        pytest.fail("it started")

    log = yard.queue_folder / "queueyard-daemon.log"
    assert refused.value.hint == f"See: {log}"
    assert "doctor --fix" in log.read_text()
