"""Runs as RunForge Desktop and the daemon start them: requests, results, logs, exit codes; and sweeps at once."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from runforge_scenarios import Yard, python_m
from scripts import clean_environment, find_script, finish

if TYPE_CHECKING:
    from pathlib import Path

    from scripts import Answer

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


def start(yard: Yard, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [find_script("runforge-cli"), *words],
        cwd=yard.root,
        env=clean_environment(yard.root),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def needs_sklearn() -> None:
    if importlib.util.find_spec("sklearn") is None:
        reason = "scikit-learn is not installed: pip install 'queueyard[ml]'"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def training(yard: Yard, **more: Any) -> dict[str, Any]:
    lines = ["x,y,kind"] + [f"{n % 7},{n % 5},{'big' if n % 7 > 3 else 'small'}" for n in range(60)]
    (yard.root / "data.csv").write_text("\n".join(lines) + "\n")
    return {
        "version": 1,
        "preset": "fast",
        "dataset": {"path": "data.csv", "label_column": "kind"},
        "model": {"family": "logistic_regression", "hyperparameters": {"C": 0.5}},
        "device": {"type": "cpu"},
        "created_at": "2026-02-01T12:00:00",
        "created_by": "tests",
        **more,
    }


class TestCommandRuns:
    def run(self, yard: Yard, *command: str, **more: Any) -> Answer:
        folder = yard.make_run("r", *command, **more)
        return yard.cli("run", "--run-dir", str(folder))

    def test_its_output_is_on_stdout_and_in_its_log(self, yard: Yard) -> None:
        answer = self.run(yard, "sh", "-c", "echo out; echo err >&2")

        assert (answer.code, answer.stderr) == (0, "")
        assert answer.stdout == yard.log("r") == "[RF:STAGE=STARTING]\nout\nerr\n[RF:STAGE=COMPLETED]\n"
        result = yard.result("r")
        assert (result["version"], result["status"], result["error"]) == (1, "succeeded", None)
        assert isinstance(result["duration_ms"], int)
        assert result["started_at"].endswith("Z")

    def test_a_failure_exits_1(self, yard: Yard) -> None:
        answer = self.run(yard, "sh", "-c", "echo no more disk >&2; exit 7")

        assert answer.code == 1
        assert "ERROR: r failed: no more disk" in answer.stderr
        assert yard.result("r")["status"] == "failed"
        assert yard.log("r").endswith("[RF:STAGE=FAILED]\n")

    def test_a_program_that_is_not_there_exits_1(self, yard: Yard) -> None:
        answer = self.run(yard, "no-such-program-anywhere")

        assert answer.code == 1
        assert "ERROR: cannot start no-such-program-anywhere" in yard.log("r")

    def test_a_time_out_ends_it(self, yard: Yard) -> None:
        answer = self.run(yard, "sh", "-c", "sleep 60", timeout_s=0.2)

        assert answer.code == 1
        assert yard.result("r")["error"]["message"] == "timed out after 0.2 s"

    def test_a_signal_cancels_it(self, yard: Yard) -> None:
        folder = yard.make_run("r", "sh", "-c", "echo here; sleep 60")
        running = start(yard, "run", "--run-dir", str(folder))
        assert running.stdout is not None
        while running.stdout.readline() != "here\n":
            pass

        running.send_signal(signal.SIGTERM)
        answer = finish(running)

        assert answer.code == 5
        assert yard.result("r")["status"] == "cancelled"


class TestExitCodes:
    def test_missing_files_exit_3(self, yard: Yard) -> None:
        (yard.runs / "empty").mkdir()

        assert yard.cli("run", "--run-dir", "nowhere").code == 3
        assert yard.cli("run", "--run-dir", str(yard.runs / "empty")).code == 3

    @pytest.mark.parametrize("content", ["{", '{"version": 0}', '{"version": 1, "model": {}}'])
    def test_an_invalid_request_exits_2_with_a_log_and_without_a_result(self, yard: Yard, content: str) -> None:
        folder = yard.runs / "r"
        folder.mkdir()
        (folder / "request.json").write_text(content)

        answer = yard.cli("run", "--run-dir", str(folder))

        assert answer.code == 2
        assert sorted(path.name for path in folder.iterdir()) == ["logs.txt", "request.json"]
        assert yard.log("r").splitlines()[-1] == "[RF:STAGE=FAILED]"

    def test_a_missing_dataset_exits_1(self, yard: Yard) -> None:
        folder = yard.make_request("r", training(yard, dataset={"path": "none.csv", "label_column": "kind"}))

        answer = yard.cli("run", "--run-dir", str(folder))

        assert answer.code == 1
        assert "Dataset not found" in yard.result("r")["error"]["message"]

    def test_an_option_that_is_none_exits_2(self, yard: Yard) -> None:
        assert yard.cli("run", "--no-such-option").code == 2


class TestTrainingRuns:
    def test_a_training_writes_all_that_the_contract_names(self, yard: Yard) -> None:
        needs_sklearn()
        folder = yard.make_request("r", training(yard))

        answer = python_m(yard, "run", "--run-dir", str(folder), "--workspace", str(yard.root))

        assert answer.code == 0, answer.stderr
        tokens = re.findall(r"^\[RF:.*\]$", answer.stdout, re.MULTILINE)
        assert tokens == re.findall(r"^\[RF:.*\]$", yard.log("r"), re.MULTILINE)
        assert tokens == [
            "[RF:STAGE=STARTING]",
            "[RF:DEVICE=CPU]",
            "[RF:STAGE=LOADING_DATASET]",
            "[RF:STAGE=TRAINING]",
            "[RF:EPOCH=1/1]",
            "[RF:STAGE=EVALUATING]",
            "[RF:STAGE=WRITING_ARTIFACTS]",
            "[RF:STAGE=COMPLETED]",
        ]
        result = yard.result("r")
        assert result["effective_config"] == {
            "preset": "fast",
            "model": {
                "family": "logistic_regression",
                "hyperparameters": {"max_iter": 200, "random_state": 42, "C": 0.5},
            },
            "device": {"type": "cpu"},
            "dataset": {"path": "data.csv", "label_column": "kind"},
        }
        assert result["summary"]["primary_metric"]["name"] == "accuracy"
        for artifact in result["artifacts"]:
            assert (folder / artifact["path"]).stat().st_size == artifact["bytes"]
        assert set(json.loads((folder / "artifacts" / "metrics.json").read_bytes())) == {
            "accuracy",
            "precision",
            "recall",
            "f1_score",
        }

    def test_a_sweep_of_trainings_through_the_daemon_finds_the_best(self, yard: Yard) -> None:
        needs_sklearn()
        plan = yard.plan(values=[0.001, 100.0], path="model.hyperparameters.C") | {"base_request": training(yard)}
        path = yard.write_plan(plan)
        group = yard.ok("enqueue-sweep", "--plan", str(path), "--json").json["group_id"]

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()

        told = yard.group(group)
        assert (told["status"], told["summary"]["succeeded"]) == ("completed", 2)
        values = {run["run_id"]: run["primary_metric"]["value"] for run in told["runs"]}
        assert told["summary"]["best_primary_metric"]["value"] == max(values.values())
        assert told["runs"][0]["result_ref"] == f".ml/runs/{told['runs'][0]['run_id']}/result.json"
        log = yard.log(told["runs"][0]["run_id"])
        assert log.count("[RF:STAGE=STARTING]") == log.count("[RF:STAGE=COMPLETED]") == 1

    def test_a_dry_run_checks_without_training(self, yard: Yard) -> None:
        folder = yard.make_request("r", training(yard))

        answer = yard.ok("run", "--run-dir", str(folder), "--dry-run", "--max-rows", "9")

        assert "9 rows and 2 features" in answer.stdout
        assert not (folder / "artifacts").exists()
        assert yard.result("r")["status"] == "succeeded"

    def test_a_failed_training_says_why_in_queue_and_result(self, yard: Yard) -> None:
        yard.make_request("r", training(yard, model={"family": "magic"}))
        yard.ok("enqueue-run", "--run-id", "r")

        with yard.daemon() as daemon:
            daemon.wait_for("status=failed")
            daemon.stop()

        assert "Unsupported model family: magic" in yard.jobs()[0]["error"]
        assert "Unsupported model family: magic" in yard.result("r")["error"]["message"]


class TestSweepAtOnce:
    def sweep(self, yard: Yard, plan: dict[str, Any]) -> Answer:
        return yard.cli("sweep", "--plan", str(yard.write_plan(plan)))

    def group_of(self, yard: Yard) -> dict[str, Any]:
        [folder] = (yard.root / ".runforge" / "groups").iterdir()
        return yard.group(folder.name)

    def test_all_succeed(self, yard: Yard) -> None:
        answer = self.sweep(yard, yard.plan("true", values=[1, 2, 3]))

        group = self.group_of(yard)
        runs = [run["run_id"] for run in group["runs"]]
        assert answer.code == 0
        lines = answer.stdout.splitlines()
        assert lines[0] == f"[RF:GROUP=START {group['group_id']} runs=3]"
        assert lines[1] == f"[RF:GROUP=RUN {runs[0]} 1/3]"
        assert f"[RF:GROUP=RUN_DONE {runs[0]} status=succeeded]" in lines
        assert lines[-1] == f"[RF:GROUP=COMPLETE {group['group_id']} succeeded=3 failed=0 canceled=0]"
        assert (group["status"], group["summary"]["succeeded"]) == ("completed", 3)
        assert not yard.queue_folder.joinpath("queue.json").exists()

    def test_one_fails_and_the_others_go_on(self, yard: Yard) -> None:
        answer = self.sweep(yard, yard.plan("sh", "-c", "exit $X", values=[0, 1, 0]))

        group = self.group_of(yard)
        assert answer.code == 1
        assert [run["status"] for run in group["runs"]] == ["succeeded", "failed", "succeeded"]
        assert group["status"] == "failed"

    def test_as_many_run_at_once_as_the_plan_says(self, yard: Yard) -> None:
        """Each waits for the other: with one at a time neither would ever end."""
        meet = 'touch "met-$X"; while [ ! -e met-1 ] || [ ! -e met-2 ]; do sleep 0.02; done'
        plan = yard.plan("sh", "-c", meet, values=[1, 2])

        assert self.sweep(yard, plan).code == 0

    def test_fail_fast_really_stops_what_runs_and_what_waits(self, yard: Yard) -> None:
        command = (
            '[ $X = 1 ] && { while [ ! -e up ]; do sleep 0.02; done; exit 1; }; touch up; sleep 60; touch "end-$X"'
        )
        plan = yard.plan("sh", "-c", command, values=[1, 2, 3], execution={"max_parallel": 2, "fail_fast": True})

        answer = self.sweep(yard, plan)

        group = self.group_of(yard)
        assert answer.code == 1
        assert [run["status"] for run in group["runs"]] == ["failed", "canceled", "canceled"]
        assert list(yard.root.glob("end-*")) == []
        assert yard.result(group["runs"][1]["run_id"])["status"] == "cancelled"
        assert not (yard.runs / group["runs"][2]["run_id"] / "result.json").exists()

    @pytest.mark.parametrize("stop", [True, False])
    def test_a_signal_cancels_and_stop_on_cancel_says_whether_running_runs_may_end(
        self, yard: Yard, stop: bool
    ) -> None:
        plan = yard.plan("sh", "-c", WAIT_FOR_GO, values=[1, 2], execution={"max_parallel": 1, "stop_on_cancel": stop})
        running = start(yard, "sweep", "--plan", str(yard.write_plan(plan)))
        assert running.stdout is not None
        while not running.stdout.readline().startswith("[RF:GROUP=RUN "):
            pass

        running.send_signal(signal.SIGINT)
        if not stop:
            group = None
            while group is None or group["runs"][1]["status"] != "canceled":
                group = self.group_of(yard)
            (yard.root / "go").touch()
        answer = finish(running)

        group = self.group_of(yard)
        assert answer.code == 5
        assert answer.stdout.splitlines()[-1] == f"[RF:GROUP=CANCELED {group['group_id']}]"
        assert [run["status"] for run in group["runs"]] == ["canceled" if stop else "succeeded", "canceled"]
        assert (group["status"], group["execution"]["cancelled"]) == ("canceled", True)
