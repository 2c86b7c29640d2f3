"""A daemon dies, and the next one goes on: it adopts what still runs and settles what ended meanwhile."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel import proc
from runforge_scenarios import PATIENCE_S, Yard, until

if TYPE_CHECKING:
    from pathlib import Path

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


def journal(yard: Yard) -> str:
    return "".join(path.read_text() for path in yard.queue_folder.glob("queueyard-journal-*"))


def kill_while_running(yard: Yard, *words: str) -> proc.Identity:
    """Start a daemon, wait until its run says which process it is, and kill the daemon."""
    with yard.daemon(*words) as daemon:
        until(lambda: (yard.root / "pid").exists() and (yard.root / "pid").read_text().strip())
        until(lambda: '"op":"spawn"' in journal(yard))
        daemon.kill()
    identity = proc.identity_of(int((yard.root / "pid").read_text()))
    assert identity is not None
    (yard.root / "pid").unlink()
    return identity


def test_a_run_that_still_lives_is_adopted_and_its_own_result_counts(yard: Yard) -> None:
    told = '{"version": 1, "status": "succeeded", "duration_ms": 1}'
    command = f"echo $$ > pid; echo start >> history; {WAIT_FOR_GO}; echo '{told}' > \"$RUNFORGE_RUN_DIR/result.json\""
    yard.make_run("r", "sh", "-c", command)
    yard.ok("enqueue-run", "--run-id", "r", "--group-id", "g")
    process = kill_while_running(yard)

    with yard.daemon() as daemon:
        daemon.wait_for("adopted")
        assert yard.states() == {"r": "running"}
        (yard.root / "go").touch()
        daemon.wait_for("run_id=r status=succeeded")
        daemon.stop()

    assert not proc.is_alive(process)
    assert (yard.root / "history").read_text() == "start\n"
    assert yard.group("g")["status"] == "completed"


def test_an_adopted_command_that_tells_nothing_is_done_again_after_it_has_ended(yard: Yard) -> None:
    """Nobody can ask for the exit code of somebody else's child."""
    command = f"echo $$ > pid; mkdir busy || exit 9; echo start >> history; {WAIT_FOR_GO}; rmdir busy"
    yard.make_run("r", "sh", "-c", command)
    yard.ok("enqueue-run", "--run-id", "r")
    kill_while_running(yard)

    with yard.daemon() as daemon:
        daemon.wait_for("adopted")
        (yard.root / "go").touch()
        daemon.wait_for("is queued again")
        daemon.wait_for("run_id=r status=succeeded")
        daemon.stop()

    assert (yard.root / "history").read_text() == "start\nstart\n"
    [job] = yard.jobs()
    assert (job["state"], job["attempt"]) == ("succeeded", 1)
    assert "stalled" in [event["kind"] for event in yard.events()]


def test_a_run_that_ended_while_no_daemon_looked_is_settled_by_its_result(yard: Yard) -> None:
    told = '{"version": 1, "status": "failed", "duration_ms": 1, "error": {"message": "boom", "type": "X"}}'
    command = f"echo $$ > pid; {WAIT_FOR_GO}; echo '{told}' > \"$RUNFORGE_RUN_DIR/result.json\""
    yard.make_run("r", "sh", "-c", command)
    yard.ok("enqueue-run", "--run-id", "r")
    process = kill_while_running(yard)
    (yard.root / "go").touch()
    assert proc.wait_for_exit(process, PATIENCE_S)

    with yard.daemon() as daemon:
        until(lambda: yard.states()["r"] != "running")
        daemon.stop()

    assert (yard.jobs()[0]["state"], yard.jobs()[0]["error"]) == ("failed", "boom")


def test_a_run_whose_process_nobody_wrote_down_is_found_by_its_log(yard: Yard) -> None:
    """The daemon died between the start of the process and the line that names it."""
    yard.make_run("r", "sh", "-c", f"echo $$ > pid; mkdir busy || exit 9; {WAIT_FOR_GO}; rmdir busy")
    yard.ok("enqueue-run", "--run-id", "r")
    process = kill_while_running(yard)
    [path] = yard.queue_folder.glob("queueyard-journal-*")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"op":"spawn"' not in line))

    with yard.daemon() as daemon:
        daemon.wait_for("adopted")
        until(lambda: str(process.pid) in journal(yard))
        (yard.root / "go").touch()
        daemon.wait_for("run_id=r status=succeeded")
        daemon.stop()

    assert not proc.is_alive(process)


def test_what_a_run_left_behind_while_no_daemon_looked_is_ended_before_it_is_done_again(yard: Yard) -> None:
    left = "sh -c 'echo $$ > child; sleep 60'"
    yard.make_run("r", "sh", "-c", f"{left} & while [ ! -s child ]; do sleep 0.02; done; echo $$ > pid; {WAIT_FOR_GO}")
    yard.ok("enqueue-run", "--run-id", "r")
    process = kill_while_running(yard)
    child = proc.identity_of(int((yard.root / "child").read_text()))
    (yard.root / "go").touch()
    assert proc.wait_for_exit(process, PATIENCE_S)
    assert child is not None
    assert proc.is_alive(child)

    with yard.daemon() as daemon:
        daemon.wait_for("JOB_STARTED")
        assert not proc.is_alive(child)
        daemon.wait_for("run_id=r status=succeeded")
        daemon.stop()


def test_an_adopted_run_keeps_its_time_limit(yard: Yard) -> None:
    yard.make_run("r", "sh", "-c", "echo $$ > pid; sleep 60", timeout_s=4)
    yard.ok("enqueue-run", "--run-id", "r")
    process = kill_while_running(yard)

    with yard.daemon() as daemon:
        daemon.wait_for("run_id=r status=failed")
        daemon.stop()

    assert yard.jobs()[0]["error"] == "timed out after 4 s"
    assert proc.wait_for_exit(process, PATIENCE_S)


def test_an_adopted_run_can_be_canceled_and_handed_back(yard: Yard) -> None:
    yard.make_run("r", "sh", "-c", "echo $$ > pid; sleep 60")
    yard.ok("enqueue-run", "--run-id", "r", "--group-id", "g")
    process = kill_while_running(yard)

    with yard.daemon("--grace", "0s") as daemon:
        daemon.wait_for("adopted")
        daemon.stop()
    assert yard.states() == {"r": "queued"}
    assert proc.wait_for_exit(process, PATIENCE_S)

    process = kill_while_running(yard)
    with yard.daemon() as daemon:
        daemon.wait_for("adopted")
        yard.ok("cancel-group", "--group-id", "g", "--running")
        daemon.wait_for("run_id=r status=canceled")
        daemon.stop()
    assert yard.group("g")["status"] == "canceled"
    assert proc.wait_for_exit(process, PATIENCE_S)


def test_a_job_that_kills_its_daemon_each_time_fails_in_the_end(yard: Yard) -> None:
    yard.make_run("deadly", "sh", "-c", "echo x >> tries; kill -9 $PPID")
    yard.make_run("good", "true")
    for run in ("deadly", "good"):
        yard.ok("enqueue-run", "--run-id", run, "--group-id", "g")

    for _ in range(3):
        with yard.daemon("--max-parallel", "1") as daemon:
            assert daemon.wait() == -signal.SIGKILL
    with yard.daemon("--max-parallel", "1") as daemon:
        daemon.wait_for("run_id=good status=succeeded")
        daemon.stop()

    assert yard.states() == {"deadly": "failed", "good": "succeeded"}
    assert (yard.root / "tries").read_text().split() == ["x"] * 3
    assert "3 daemons died while it ran" in yard.jobs()[0]["error"]


def test_a_foreign_job_that_is_called_running_is_settled(yard: Yard) -> None:
    """The public tool leaves its jobs running for ever when its daemon dies."""
    yard.make_run("orphan", "true")
    yard.write_queue({"run_id": "orphan", "state": "running", "started_at": "2026-02-01T15:00:00"})

    with yard.daemon() as daemon:
        daemon.wait_for("run_id=orphan status=succeeded")
        daemon.stop()

    assert yard.states() == {"orphan": "succeeded"}


def test_a_group_that_a_killed_command_did_not_write_is_made_by_the_next_daemon(yard: Yard) -> None:
    group = yard.enqueue_sweep("true", values=[1, 2])
    (yard.root / ".runforge" / "groups" / group / "group.json").unlink()
    [path] = yard.queue_folder.glob("queueyard-journal-*")
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"op":"saved"' not in line))

    with yard.daemon() as daemon:
        daemon.wait_for("JOB_DONE", 2)
        daemon.stop()

    told = yard.group(group)
    assert (told["status"], told["name"]) == ("completed", "tiny sweep!")
    assert [run["request_overrides"] for run in told["runs"]] == [{"env.X": 1}, {"env.X": 2}]
