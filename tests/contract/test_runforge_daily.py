"""What users expect beyond the contract: retries, dependencies, time-outs, GPUs, logs, waiting, hooks."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel import proc
from runforge_scenarios import PATIENCE_S, Yard, until
from scripts import clean_environment, find_script, finish

if TYPE_CHECKING:
    from pathlib import Path

WAIT_FOR_GO = "while [ ! -e go ]; do sleep 0.02; done"


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


def process_of(yard: Yard, name: str) -> proc.Identity:
    """The process that wrote its number to a file."""
    path = yard.root / name
    until(lambda: path.exists() and path.read_text().strip())
    identity = proc.identity_of(int(path.read_text()))
    assert identity is not None
    return identity


class TestRetries:
    def test_a_failed_job_is_tried_again_under_its_own_id(self, yard: Yard) -> None:
        yard.make_run("flaky", "sh", "-c", 'echo "$RUNFORGE_ATTEMPT" >> tries; [ "$RUNFORGE_ATTEMPT" = 3 ]')
        yard.ok("enqueue-run", "--run-id", "flaky", "--retries", "2", "--backoff", "10ms")

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        [job] = yard.jobs()
        assert (job["state"], job["attempt"], job["error"]) == ("succeeded", 3, None)
        assert (yard.root / "tries").read_text().split() == ["1", "2", "3"]
        assert [event["kind"] for event in yard.events()] == [
            "queued",
            *["started", "retried"] * 2,
            "started",
            "succeeded",
        ]

    def test_when_the_retries_are_used_up_it_has_failed(self, yard: Yard) -> None:
        yard.make_run("bad", "false")
        yard.ok("enqueue-run", "--run-id", "bad", "--retries", "1")

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        assert (yard.jobs()[0]["state"], yard.jobs()[0]["attempt"]) == ("failed", 2)


class TestDependencies:
    def test_a_job_starts_after_the_one_that_it_waits_for(self, yard: Yard) -> None:
        yard.make_run("second", "test", "-e", "made-by-first")
        yard.make_run("first", "sh", "-c", "sleep 0.1; touch made-by-first")
        first = yard.ok("enqueue-run", "--run-id", "first", "--json").json["job_id"]
        yard.ok("enqueue-run", "--run-id", "second", "--after", first)

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()

        assert yard.states() == {"first": "succeeded", "second": "succeeded"}

    def test_a_failure_fails_what_waits_for_it_and_both_can_be_retried_in_order(self, yard: Yard) -> None:
        yard.make_run("first", "test", "-e", "ok")
        yard.make_run("second", "true")
        yard.ok("enqueue-run", "--run-id", "first", "--group-id", "g")
        yard.ok("enqueue-run", "--run-id", "second", "--group-id", "g", "--after", "first")

        with yard.daemon("--max-parallel", "2") as daemon:
            daemon.wait_for("run_id=first status=failed")
            until(lambda: yard.states()["second"] == "failed")
            assert "first" not in yard.jobs()[1]["run_id"]
            assert "which it waits for, failed" in yard.jobs()[1]["error"]
            (yard.root / "ok").touch()
            yard.ok("retry-failed", "--group-id", "g")
            daemon.wait_for("run_id=first status=succeeded")
            daemon.wait_for("run_id=second status=succeeded")
            daemon.stop()

        assert yard.group("g")["status"] == "completed"

    def test_a_job_that_is_not_there_cannot_be_waited_for(self, yard: Yard) -> None:
        yard.make_run("r")

        answer = yard.cli("enqueue-run", "--run-id", "r", "--after", "nobody")

        assert answer.code == 1
        assert "no job or run nobody" in answer.stderr


class TestEndingRuns:
    def test_a_time_out_ends_the_whole_family(self, yard: Yard) -> None:
        yard.make_run("slow", "sh", "-c", "sh -c 'echo $$ > child; sleep 60' & wait")
        yard.ok("enqueue-run", "--run-id", "slow", "--timeout", "2s")

        with yard.daemon() as daemon:
            child = process_of(yard, "child")
            daemon.wait_for("status=failed")
            daemon.stop()

        assert yard.jobs()[0]["error"] == "timed out after 2 s"
        assert proc.wait_for_exit(child, PATIENCE_S)

    def test_a_run_that_ignores_term_is_killed(self, yard: Yard) -> None:
        yard.make_run("stubborn", "sh", "-c", "trap '' TERM; echo $$ > pid; while :; do sleep 0.1; done")
        yard.ok("enqueue-run", "--run-id", "stubborn", "--group-id", "g")

        with yard.daemon(RUNFORGE_KILL_GRACE_S="0.2") as daemon:
            process = process_of(yard, "pid")
            answer = yard.ok("cancel-group", "--group-id", "g", "--running")
            daemon.wait_for("status=canceled")
            daemon.stop()

        assert answer.stdout == "Canceled 1 queued and running runs in group g\n"
        assert proc.wait_for_exit(process, PATIENCE_S)
        assert (yard.states()["stubborn"], yard.group("g")["status"]) == ("canceled", "canceled")
        assert yard.result("stubborn")["status"] == "cancelled"

    def test_a_run_that_outlived_its_daemon_can_be_canceled_without_one(self, yard: Yard) -> None:
        yard.make_run("orphan", "sh", "-c", "echo $$ > pid; sleep 60")
        yard.ok("enqueue-run", "--run-id", "orphan", "--group-id", "g")
        with yard.daemon() as daemon:
            process = process_of(yard, "pid")
            until(lambda: "spawn" in next(yard.queue_folder.glob("*journal*")).read_text())
            daemon.kill()

        yard.ok("cancel-group", "--group-id", "g", "--running")

        assert proc.wait_for_exit(process, PATIENCE_S)
        assert (yard.states()["orphan"], yard.group("g")["status"]) == ("canceled", "canceled")

    def test_what_a_run_leaves_behind_ends_with_it(self, yard: Yard) -> None:
        yard.make_run("messy", "sh", "-c", f"sh -c 'echo $$ > child; sleep 60' & {WAIT_FOR_GO}")
        yard.ok("enqueue-run", "--run-id", "messy")

        with yard.daemon() as daemon:
            child = process_of(yard, "child")
            (yard.root / "go").touch()
            daemon.wait_for("status=succeeded")
            assert proc.wait_for_exit(child, PATIENCE_S)

    def test_a_second_signal_hands_running_jobs_back(self, yard: Yard) -> None:
        yard.make_run("long", "sh", "-c", "echo $$ > pid; sleep 60")
        yard.ok("enqueue-run", "--run-id", "long", "--group-id", "g")

        with yard.daemon() as daemon:
            process = process_of(yard, "pid")
            daemon.process.send_signal(signal.SIGTERM)
            until(lambda: yard.daemon_json()["state"] == "stopping")
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.wait() == 0

        [job] = yard.jobs()
        assert (job["state"], job["attempt"], job["started_at"]) == ("queued", 1, None)
        assert job["error"] == "handed back: the daemon was shut down while it ran"
        assert proc.wait_for_exit(process, PATIENCE_S)
        assert [run["status"] for run in yard.group("g")["runs"]] == ["queued"]
        assert yard.events()[-1]["kind"] == "released"

    def test_the_end_of_the_grace_hands_running_jobs_back(self, yard: Yard) -> None:
        yard.make_run("long", "sleep", "60")
        yard.ok("enqueue-run", "--run-id", "long")

        with yard.daemon("--grace", "0.1s") as daemon:
            daemon.wait_for("JOB_STARTED")
            assert daemon.stop() == 0

        assert yard.states() == {"long": "queued"}


class TestGpus:
    def test_runs_that_need_one_take_turns_and_are_told_which(self, yard: Yard) -> None:
        guarded = 'mkdir busy-$CUDA_VISIBLE_DEVICES || exit 9; echo "$CUDA_VISIBLE_DEVICES"; sleep 0.05; rmdir busy-*'
        for number in range(3):
            yard.make_run(f"gpu{number}", "sh", "-c", guarded, requires_gpu=True)
            yard.ok("enqueue-run", "--run-id", f"gpu{number}")
        assert all(job["requires_gpu"] for job in yard.jobs())

        with yard.daemon("--max-parallel", "3", "--gpu-slots", "1", CUDA_VISIBLE_DEVICES="5") as daemon:
            daemon.wait_for("JOB_DONE", 3)
            daemon.stop()

        assert set(yard.states().values()) == {"succeeded"}
        assert yard.log("gpu0").splitlines()[1] == "5"

    def test_a_run_without_gpu_goes_past_those_that_wait_for_one(self, yard: Yard) -> None:
        yard.make_run("first", "sh", "-c", WAIT_FOR_GO, requires_gpu=True)
        yard.make_run("second", "true", requires_gpu=True)
        yard.make_run("cpu", "touch", "go")
        for run in ("first", "second", "cpu"):
            yard.ok("enqueue-run", "--run-id", run)

        with yard.daemon("--max-parallel", "2") as daemon:
            daemon.wait_for("JOB_DONE", 3)
            daemon.stop()

        started = re.findall(r"JOB_STARTED \S+ run_id=(\w+)", daemon.rest())
        assert started == ["first", "cpu", "second"]


class TestLooking:
    def test_logs_shows_the_log_of_a_run_or_a_job(self, yard: Yard) -> None:
        yard.make_run("r", "echo", "hello")
        job = yard.ok("enqueue-run", "--run-id", "r", "--json").json["job_id"]
        assert "Nothing was logged" in yard.ok("logs", "r").stderr

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        assert yard.ok("logs", "r").stdout == yard.ok("logs", job).stdout == yard.log("r")
        assert yard.cli("logs", "nobody").code == 1
        assert yard.cli("logs", "../../etc").code == 1

    def test_logs_follows_a_run_to_its_end(self, yard: Yard) -> None:
        yard.make_run("r", "sh", "-c", f"echo before; {WAIT_FOR_GO}; echo after")
        yard.ok("enqueue-run", "--run-id", "r")
        following = subprocess.Popen(
            [find_script("runforge-cli"), "logs", "r", "--follow"],
            cwd=yard.root,
            env=clean_environment(yard.root),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

        with yard.daemon() as daemon:
            assert following.stdout is not None
            assert [following.stdout.readline() for _ in range(2)] == ["[RF:STAGE=STARTING]\n", "before\n"]
            (yard.root / "go").touch()
            daemon.wait_for("JOB_DONE")
            answer = finish(following)
            daemon.stop()

        assert (answer.code, answer.stdout) == (0, "after\n[RF:STAGE=COMPLETED]\n")

    @pytest.mark.parametrize(("values", "code"), [([0, 0], 0), ([0, 1], 1)])
    def test_wait_tells_the_outcome_by_its_exit_code(self, yard: Yard, values: list[int], code: int) -> None:
        group = yard.enqueue_sweep("sh", "-c", "sleep 0.1; exit $X", values=values)

        with yard.daemon():
            answer = yard.cli("wait", group, "--timeout", f"{PATIENCE_S}")

        assert answer.code == code
        assert answer.stdout.startswith(f"{group}: ")

    def test_after_a_wait_the_files_say_how_it_ended(self, yard: Yard) -> None:
        """Scripts read group.json next."""
        group = yard.enqueue_sweep("true", values=[1, 2, 3, 4])

        with yard.daemon():
            yard.ok("wait", group)
            told, states = yard.group(group), yard.states()

        assert (told["status"], told["summary"]["succeeded"]) == ("completed", 4)
        assert set(states.values()) == {"succeeded"}

    def test_wait_for_a_canceled_group_exits_5_and_for_one_that_does_not_end_124(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1])
        late = yard.cli("wait", group, "--timeout", "0.1")
        yard.ok("cancel-group", "--group-id", group)

        assert (late.code, "no daemon is running" in late.stderr) == (124, True)
        assert yard.cli("wait", group).code == 5
        assert yard.cli("wait", "nobody").code == 1

    def test_watching_shows_each_change_until_it_is_stopped(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1, 2])
        watching = subprocess.Popen(
            [find_script("runforge-cli"), "queue-status", "--watch", "--json"],
            cwd=yard.root,
            env=clean_environment(yard.root),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        yard.ok("cancel-group", "--group-id", group)
        second = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        answer = finish(watching)

        assert (first["jobs"]["queued"], second["jobs"]["canceled"]) == (2, 2)
        assert (answer.code, answer.stderr) == (0, "")


class TestHousekeeping:
    def test_prune_takes_out_what_ended_long_ago(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1, 2])
        yard.ok("cancel-group", "--group-id", group)
        yard.make_run("r")
        yard.ok("enqueue-run", "--run-id", "r")

        assert yard.ok("prune").stdout == "Pruned 0 jobs\n"
        assert yard.ok("prune", "--older-than", "0s", "--dry-run").stdout == "Would prune 2 jobs\n"
        assert yard.ok("prune", "--older-than", "0s", "--state", "failed").stdout == "Pruned 0 jobs\n"
        assert yard.ok("prune", "--older-than", "0s").stdout == "Pruned 2 jobs\n"

        assert yard.states() == {"r": "queued"}
        assert yard.group(group)["summary"]["canceled"] == 2
        assert yard.ok("doctor").stderr == "Everything is well.\n"

    def test_a_hook_is_told_how_a_group_ended(self, yard: Yard) -> None:
        hook = yard.root / "hook"
        hook.write_text(
            "#!/bin/sh\n"
            'echo "$RUNFORGE_GROUP_ID $RUNFORGE_GROUP_STATUS $RUNFORGE_FAILED of $RUNFORGE_TOTAL" > "$1.new"\n'
            'mv "$1.new" "$1"\n'
        )
        hook.chmod(0o755)
        group = yard.enqueue_sweep("sh", "-c", "exit $X", values=[0, 1])

        with yard.daemon("--on-group-end", f"{hook} told"):
            until((yard.root / "told").exists)

        assert (yard.root / "told").read_text() == f"{group} failed 1 of 2\n"

    def test_the_settings_say_where_they_come_from(self, yard: Yard) -> None:
        (yard.root / ".runforge").mkdir()
        (yard.root / ".runforge" / "queueyard.toml").write_text("max_parallel = 7\n")

        told = yard.ok("config", "--origin", "--json", RUNFORGE_GPU_SLOTS="3").json

        assert told["max_parallel"]["value"] == 7
        assert told["max_parallel"]["origin"].endswith("queueyard.toml")
        assert told["gpu_slots"] == {"value": 3, "origin": "environment"}
        assert "SETTING" in yard.ok("config").stdout

    def test_every_change_is_an_event(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("sh", "-c", "exit $X", values=[0, 1])
        yard.ok("pause-group", "--group-id", group)
        yard.ok("resume-group", "--group-id", group)

        with yard.daemon("--max-parallel", "1") as daemon:
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()

        events = yard.events()
        kinds = [event["kind"] for event in events]
        assert kinds == ["queued", "queued", "paused", "resumed", "started", "succeeded", "started", "failed"]
        assert len({event["id"] for event in events}) == len(events)
        assert {event["source"] for event in events} == {str(yard.root)}
        assert [event["actor"] for event in events[-2:]] == ["daemon", "daemon"]
        assert events[-1]["reason"] == "Exit code: 1"

    def test_fail_fast_of_a_plan_holds_in_the_queue_too(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("false", values=[1, 2, 3], execution={"max_parallel": 1, "fail_fast": True})

        with yard.daemon("--max-parallel", "1") as daemon:
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        assert [run["status"] for run in yard.group(group)["runs"]] == ["failed", "canceled", "canceled"]
        assert "fail_fast" in yard.jobs()[1]["error"]

    def test_a_run_that_cannot_even_start_is_a_failure_to_fail_fast(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1, 2], execution={"max_parallel": 1, "fail_fast": True})
        (yard.runs / yard.jobs()[0]["run_id"] / "request.json").unlink()

        with yard.daemon("--max-parallel", "1") as daemon:
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        assert [run["status"] for run in yard.group(group)["runs"]] == ["failed", "canceled"]
