"""Files of the contract and of the public tool load, survive a rewrite, and may be written under our hands."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from runforge_scenarios import DATA, Raw, Yard, read, until

if TYPE_CHECKING:
    from pathlib import Path

GROUP = "grp_20261115_061203_tiny_C_sweep_"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


def lay_out(yard: Yard, source: str) -> None:
    """Put the frozen files where they belong."""
    yard.queue_folder.mkdir(parents=True)
    for name in ("queue.json", "daemon.json"):
        shutil.copy(DATA / source / name, yard.queue_folder / name)
    if (DATA / source / "group.json").exists():
        folder = yard.root / ".runforge" / "groups" / GROUP
        folder.mkdir(parents=True)
        shutil.copy(DATA / source / "group.json", folder / "group.json")


@pytest.mark.parametrize("source", ["contract", "public_tool"])
def test_a_frozen_queue_loads_and_every_job_survives_a_rewrite(yard: Yard, source: str) -> None:
    lay_out(yard, source)
    before = yard.queue()
    yard.make_run("new")

    yard.ok("enqueue-run", "--run-id", "new")

    after = yard.queue()
    kept = {job["job_id"]: job for job in after["jobs"]}
    for job in before["jobs"]:
        assert kept[job["job_id"]] == {"requires_gpu": False} | job
    assert after["max_parallel"] == before["max_parallel"]
    assert after["last_served_group"] == before["last_served_group"]
    assert len(after["jobs"]) == len(before["jobs"]) + 1


def test_a_status_of_frozen_files_writes_nothing(yard: Yard) -> None:
    lay_out(yard, "public_tool")
    before = {path: path.read_bytes() for path in yard.root.rglob("*") if path.is_file()}

    told = yard.ok("queue-status", "--json").json

    assert told["jobs"] == {"queued": 2, "running": 0, "succeeded": 1, "failed": 1, "canceled": 0}
    assert told["daemon"]["state"] in {"dead", "running"}
    assert {path: path.read_bytes() for path in yard.root.rglob("*") if path.is_file()} == before


def without_ours(group: Raw) -> Raw:
    """What a pause and a cancellation may change is taken out."""
    told = json.loads(json.dumps(group))
    for key in ("paused", "status"):
        told.pop(key, None)
    for key in ("finished_at", "cancelled"):
        told["execution"].pop(key, None)
    for key in ("succeeded", "failed", "canceled"):
        told["summary"].pop(key, None)
    for run in told["runs"]:
        run.pop("status")
    result: Raw = told
    return result


def test_unknown_keys_of_a_group_survive_every_rewrite(yard: Yard) -> None:
    lay_out(yard, "public_tool")
    before = yard.group(GROUP)

    yard.ok("pause-group", "--group-id", GROUP)
    yard.ok("cancel-group", "--group-id", GROUP)

    after = yard.group(GROUP)
    assert without_ours(after) == without_ours(before)
    assert (after["paused"], after["x_owner"], after["summary"]["x_cost"]) == (True, "ana", 1.5)
    assert [run["status"] for run in after["runs"]] == ["succeeded", "failed", "canceled"]


def test_failed_runs_of_the_public_tool_can_be_retried(yard: Yard) -> None:
    lay_out(yard, "public_tool")

    answer = yard.ok("retry-failed", "--group-id", GROUP)

    assert answer.stdout.startswith("Re-enqueued 1 failed runs")
    assert (yard.jobs()[-1]["run_id"], yard.jobs()[-1]["attempt"]) == ("20261115-061203-sweep-0001", 2)


@pytest.mark.parametrize("name", ["result_succeeded.json", "result_minimal.json"])
def test_results_of_the_public_tool_are_understood(yard: Yard, name: str) -> None:
    """A run that writes its own result: the group takes over what it says."""
    told = read(DATA / "public_tool" / name)
    path = DATA / "public_tool" / name
    group = yard.enqueue_sweep("sh", "-c", f'cp "{path}" "$RUNFORGE_RUN_DIR/result.json"', values=[1])

    with yard.daemon() as daemon:
        daemon.wait_for("JOB_DONE")
        daemon.stop()

    [run] = yard.group(group)["runs"]
    expected: Any = (told["summary"] or {}).get("primary_metric")
    assert (run["status"], run["primary_metric"]) == ("succeeded", expected)


def test_a_job_that_another_tool_adds_while_the_daemon_runs_is_run(yard: Yard) -> None:
    yard.make_run("first", "true")
    yard.make_run("theirs", "true")
    yard.ok("enqueue-run", "--run-id", "first")

    with yard.daemon() as daemon:
        daemon.wait_for("run_id=first status=succeeded")
        yard.write_queue({"job_id": "job_theirs", "run_id": "theirs"})
        daemon.wait_for("JOB_DONE job_theirs run_id=theirs status=succeeded")
        daemon.stop()

    assert yard.states() == {"first": "succeeded", "theirs": "succeeded"}


def test_a_cancellation_by_another_tool_is_heeded_by_the_daemon(yard: Yard) -> None:
    yard.make_run("blocker", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")
    yard.make_run("unwanted", "true")
    yard.write_queue({"run_id": "blocker"}, {"run_id": "unwanted"})

    with yard.daemon("--max-parallel", "1") as daemon:
        daemon.wait_for("JOB_STARTED job_0")
        yard.write_queue({"run_id": "blocker"}, {"run_id": "unwanted", "state": "canceled"})
        until(lambda: yard.states().get("blocker") == "running")
        (yard.root / "go").touch()
        daemon.wait_for("JOB_DONE")
        daemon.stop()

    assert yard.states() == {"blocker": "succeeded", "unwanted": "canceled"}
    assert "unwanted" not in daemon.rest()


def test_a_pause_by_another_tool_is_heeded_by_the_daemon(yard: Yard) -> None:
    group = yard.enqueue_sweep("true", values=[1])
    path = yard.root / ".runforge" / "groups" / group / "group.json"
    path.write_text(json.dumps(yard.group(group) | {"paused": True}))
    yard.make_run("other", "true")

    with yard.daemon() as daemon:
        yard.ok("enqueue-run", "--run-id", "other")
        daemon.wait_for("run_id=other status=succeeded")
        assert [run["status"] for run in yard.group(group)["runs"]] == ["queued"]
        path.write_text(json.dumps(yard.group(group) | {"paused": False}))
        daemon.wait_for("status=succeeded")
        daemon.stop()


class TestBrokenFiles:
    @pytest.mark.parametrize("content", ["", "{", '{"version": 7}', '{"version": 1, "jobs": [{"job_id": "x"}]}'])
    def test_a_broken_queue_is_refused_and_rebuilt_from_the_journal(self, yard: Yard, content: str) -> None:
        for run in ("a", "b"):
            yard.make_run(run)
        yard.ok("enqueue-run", "--run-id", "a")
        before = yard.queue()
        (yard.queue_folder / "queue.json").write_text(content)

        refused = [
            yard.cli(*words)
            for words in (
                ("enqueue-run", "--run-id", "b"),
                ("queue-status",),
                ("daemon", "--workspace", str(yard.root)),
            )
        ]
        found = yard.cli("doctor")
        fixed = yard.ok("doctor", "--fix")

        assert [answer.code for answer in refused] == [1, 1, 1]
        assert all("doctor --fix" in answer.stderr for answer in refused)
        assert (found.code, "queue.json" in found.stdout) == (1, True)
        assert "fixed  queue.json" in fixed.stdout
        assert yard.queue() == before
        assert (yard.queue_folder / "queue.json.damaged").read_text() == content
        assert yard.ok("enqueue-run", "--run-id", "b").code == 0

    def test_a_broken_sidecar_is_rebuilt_from_the_queue_and_the_journal(self, yard: Yard) -> None:
        yard.make_run("a")
        yard.ok("enqueue-run", "--run-id", "a")
        (yard.queue_folder / "queueyard.json").write_text("{")

        assert yard.cli("queue-status").code == 1
        yard.ok("doctor", "--fix")

        assert yard.states() == {"a": "queued"}
        assert yard.ok("doctor").stderr == "Everything is well.\n"

    def test_a_broken_group_stops_nothing_and_is_rebuilt(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1, 2])
        path = yard.root / ".runforge" / "groups" / group / "group.json"
        path.write_text("{")

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()
        yard.ok("doctor", "--fix")

        assert yard.group(group)["status"] == "completed"
        assert [run["request_overrides"] for run in yard.group(group)["runs"]] == [{"env.X": 1}, {"env.X": 2}]

    def test_the_daemon_survives_rubbish_in_queue_json(self, yard: Yard) -> None:
        yard.make_run("a", "true")
        yard.make_run("b", "true")
        yard.ok("enqueue-run", "--run-id", "a")

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE")
            (yard.queue_folder / "queue.json").write_text("rubbish")
            daemon.wait_for("queue.json.damaged")
            yard.ok("enqueue-run", "--run-id", "b")
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        assert yard.states() == {"a": "succeeded", "b": "succeeded"}

    def test_doctor_does_not_mend_under_the_hands_of_a_daemon(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1])
        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE")
            yard.ok("pause-group", "--group-id", group)
            (yard.root / ".runforge" / "groups" / group / "group.json").write_text("{")

            answer = yard.cli("doctor", "--fix")

            assert answer.code == 1
            assert f"kill {daemon.process.pid}" in answer.stderr


def test_a_workspace_that_cannot_be_written_is_told(yard: Yard, small_disk: Path) -> None:
    other = Yard(small_disk / "ws")
    other.make_run("r")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    for words in (("enqueue-run", "--run-id", "r"), ("daemon",)):
        answer = yard.cli(*words, "--workspace", str(other.root))

        assert answer.code == 1
        assert "ERROR: cannot make" in answer.stderr
        assert "Read-only file system" in answer.stderr
