"""The queue contract, clause by clause, through the real script: files, states, commands, tokens, exit codes."""

from __future__ import annotations

from datetime import datetime
import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from runforge_scenarios import Yard, python_m, until

if TYPE_CHECKING:
    from pathlib import Path

QUEUE_KEYS = ["version", "kind", "max_parallel", "gpu_slots", "jobs", "last_served_group"]
JOB_KEYS = [
    "job_id",
    "kind",
    "run_id",
    "group_id",
    "priority",
    "state",
    "requires_gpu",
    "attempt",
    "created_at",
    "started_at",
    "finished_at",
    "error",
]
DAEMON_KEYS = [
    "version",
    "pid",
    "started_at",
    "last_heartbeat",
    "max_parallel",
    "gpu_slots",
    "active_jobs",
    "active_gpu_jobs",
    "state",
]
NAIVE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path / "ws")


class TestQueueState:
    def test_a_queued_run_is_a_job_with_every_field_of_the_contract(self, yard: Yard) -> None:
        yard.make_run("my-run")

        answer = yard.ok("enqueue-run", "--run-id", "my-run", "--workspace", str(yard.root), "--priority", "3")

        queue = yard.queue()
        [job] = queue["jobs"]
        assert list(queue) == QUEUE_KEYS
        assert list(job) == JOB_KEYS
        assert (queue["version"], queue["kind"], queue["max_parallel"]) == (1, "execution_queue", 2)
        assert (job["kind"], job["run_id"], job["group_id"], job["priority"]) == ("run", "my-run", None, 3)
        assert (job["state"], job["attempt"], job["started_at"], job["error"]) == ("queued", 1, None, None)
        assert re.fullmatch(r"job_\d{8}_\d{6}_\d{4}", job["job_id"])
        assert NAIVE.fullmatch(job["created_at"])
        assert answer.stdout == f"Enqueued run my-run as job {job['job_id']}\n"

    def test_times_are_local(self, yard: Yard) -> None:
        yard.make_run("my-run")

        yard.ok("enqueue-run", "--run-id", "my-run", TZ="Asia/Kolkata")

        utc = datetime.fromisoformat(yard.events()[0]["at"]).replace(tzinfo=None)
        local = datetime.fromisoformat(yard.jobs()[0]["created_at"])
        assert (local - utc).total_seconds() == 5.5 * 3600

    def test_a_job_goes_through_its_states(self, yard: Yard) -> None:
        yard.make_run("good", "true")
        yard.make_run("bad", "sh", "-c", "echo why >&2; exit 1")
        for run in ("good", "bad"):
            yard.ok("enqueue-run", "--run-id", run)

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            assert daemon.stop() == 0

        good, bad = yard.jobs()
        assert (good["state"], good["error"]) == ("succeeded", None)
        assert (bad["state"], bad["error"]) == ("failed", "why")
        assert good["created_at"] <= good["started_at"] <= good["finished_at"]
        assert yard.queue()["last_served_group"] == "__ungrouped__"


class TestEnqueueing:
    @pytest.mark.parametrize("run_id", ["../../etc", "a/b", "..", "", "a b", "x\ty"])
    def test_a_run_id_that_leads_elsewhere_is_refused(self, yard: Yard, run_id: str) -> None:
        answer = yard.cli("enqueue-run", "--run-id", run_id)

        assert answer.code == 1
        assert "ERROR: not a run id" in answer.stderr
        assert not yard.queue_folder.exists()

    def test_a_group_id_that_leads_elsewhere_is_refused(self, yard: Yard) -> None:
        yard.make_run("r")

        answer = yard.cli("enqueue-run", "--run-id", "r", "--group-id", "../../elsewhere")

        assert answer.code == 1
        assert "ERROR: not a group id" in answer.stderr

    def test_a_link_out_of_the_folder_of_runs_is_refused(self, yard: Yard, tmp_path: Path) -> None:
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside" / "request.json").write_text('{"version": 1, "command": ["true"]}')
        (yard.runs / "sly").symlink_to(tmp_path / "outside")

        answer = yard.cli("enqueue-run", "--run-id", "sly")

        assert answer.code == 1
        assert "symbolic link" in answer.stderr

    def test_a_run_without_a_folder_or_a_request_is_refused(self, yard: Yard) -> None:
        assert yard.cli("enqueue-run", "--run-id", "nowhere").code == 1
        (yard.runs / "empty").mkdir()
        answer = yard.cli("enqueue-run", "--run-id", "empty")

        assert answer.code == 1
        assert "ERROR: request.json not found" in answer.stderr

    def test_a_run_that_is_queued_already_is_refused(self, yard: Yard) -> None:
        yard.make_run("r")
        yard.ok("enqueue-run", "--run-id", "r")

        answer = yard.cli("enqueue-run", "--run-id", "r")

        assert answer.code == 1
        assert "ERROR: run r is queued already" in answer.stderr
        assert len(yard.jobs()) == 1

    def test_a_workspace_that_is_not_there_is_told(self, yard: Yard) -> None:
        answer = yard.cli("enqueue-run", "--run-id", "r", "--workspace", str(yard.root / "nowhere"))

        assert answer.code == 1
        assert "ERROR: Workspace not found" in answer.stderr

    def test_the_workspace_is_found_from_within(self, yard: Yard) -> None:
        folder = yard.make_run("r")

        assert yard.cli("enqueue-run", "--run-id", "r", cwd=folder).code == 0
        assert len(yard.jobs()) == 1

    def test_under_json_an_error_is_an_object(self, yard: Yard) -> None:
        answer = yard.cli("enqueue-run", "--run-id", "nowhere", "--json")

        assert (answer.code, answer.fault["kind"]) == (1, "UnknownRun")


class TestSweeps:
    def test_a_sweep_is_a_group_with_runs_and_jobs(self, yard: Yard) -> None:
        plan = yard.write_plan(yard.plan(values=[1, 2]))

        answer = yard.ok("enqueue-sweep", "--plan", str(plan))

        token = answer.stdout.splitlines()[-1]
        found = re.fullmatch(r"\[RF:GROUP=ENQUEUED (grp_\d{8}_\d{6}_tiny_sweep_) runs=2\]", token)
        assert found
        group = yard.group(found[1])
        assert (group["kind"], group["status"], group["name"]) == ("run_group", "running", "tiny sweep!")
        assert [run["status"] for run in group["runs"]] == ["queued", "queued"]
        assert [run["request_overrides"] for run in group["runs"]] == [{"env.X": 1}, {"env.X": 2}]
        assert [run["run_id"] for run in group["runs"]] == [job["run_id"] for job in yard.jobs()]
        assert all(re.fullmatch(r"\d{8}-\d{6}-sweep-\d{4}", run["run_id"]) for run in group["runs"])
        assert (yard.root / ".runforge" / "groups" / found[1] / "plan.json").read_bytes() == plan.read_bytes()
        request = json.loads((yard.runs / group["runs"][0]["run_id"] / "request.json").read_bytes())
        assert (request["sweep_group_id"], request["env"]) == (found[1], {"X": 1})

    def test_sweep_with_enqueue_is_the_same(self, yard: Yard) -> None:
        plan = yard.write_plan(yard.plan(values=[1, 2, 3]))

        answer = yard.ok("sweep", "--plan", str(plan), "--enqueue")

        assert re.search(r"\[RF:GROUP=ENQUEUED grp_\w+ runs=3\]", answer.stdout)
        assert len(yard.jobs()) == 3

    def test_a_workspace_on_the_command_line_wins_for_everything(self, yard: Yard, tmp_path: Path) -> None:
        other = Yard(tmp_path / "other")
        plan = yard.write_plan(yard.plan(values=[1]))

        group_id = yard.ok("enqueue-sweep", "--plan", str(plan), "--workspace", str(other.root), "--json").json[
            "group_id"
        ]

        assert len(other.jobs()) == 1
        assert other.group(group_id)["runs"][0]["run_id"] == other.jobs()[0]["run_id"]
        assert other.ok("pause-group", "--group-id", group_id).code == 0
        assert not yard.queue_folder.exists()

    def test_two_sweeps_of_one_second_do_not_meet(self, yard: Yard) -> None:
        groups = {yard.enqueue_sweep(values=[1, 2]) for _ in range(3)}

        assert len(groups) == 3
        assert len({job["run_id"] for job in yard.jobs()}) == len({job["job_id"] for job in yard.jobs()}) == 6

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"version": 2}, "version"),
            ({"kind": "other"}, "kind"),
            ({"workspace": ""}, "workspace"),
            ({"group": None}, "group"),
            ({"base_request": {}}, "base_request"),
            ({"strategy": {"type": "random"}}, "strategy.type"),
            ({"strategy": {"type": "grid", "parameters": []}}, "strategy.parameters"),
            ({"strategy": {"type": "grid", "parameters": [{"values": [1]}]}}, "strategy.parameters[0].path"),
            ({"strategy": {"type": "grid", "parameters": [{"path": "a"}]}}, "strategy.parameters[0].values"),
            (
                {"strategy": {"type": "grid", "parameters": [{"path": "a", "values": []}]}},
                "strategy.parameters[0].values",
            ),
            (
                {"strategy": {"type": "grid", "parameters": [{"path": "a..b", "values": 1}]}},
                "strategy.parameters[0].path",
            ),
            ({"strategy": {"type": "grid", "parameters": [{"path": "command.9", "values": 1}]}}, "strategy"),
            (
                {
                    "strategy": {
                        "type": "list",
                        "parameters": [{"path": "env.A", "values": [1]}, {"path": "env.B", "values": [1, 2]}],
                    }
                },
                "strategy.parameters[1].values",
            ),
            ({"strategy": {"type": "list", "overrides": []}}, "strategy.overrides"),
            ({"strategy": {"type": "list", "overrides": [7]}}, "strategy.overrides[0]"),
            ({"base_request": {"version": 1, "command": "true"}}, "base_request.command"),
            ({"group": {"name": 7}}, "group.name"),
            ({"execution": {"max_parallel": "two"}}, "execution.max_parallel"),
            ({"execution": {"max_parallel": 0}}, "execution.max_parallel"),
            ({"execution": {"fail_fast": "yes"}}, "execution.fail_fast"),
            ({"execution": []}, "execution"),
        ],
        ids=str,
    )
    def test_an_invalid_plan_exits_6_and_names_the_field(
        self, yard: Yard, change: dict[str, object], field: str
    ) -> None:
        plan = yard.write_plan(yard.plan(values=[1]) | change)

        answer = yard.cli("enqueue-sweep", "--plan", str(plan))

        assert answer.code == 6
        assert f"  - {field}: " in answer.stderr
        assert list(yard.runs.iterdir()) == []
        assert not (yard.root / ".runforge").exists()

    def test_a_plan_that_is_no_json_exits_6(self, yard: Yard) -> None:
        for command in ("enqueue-sweep", "sweep"):
            answer = yard.cli(command, "--plan", str(yard.write_plan("{")))

            assert (answer.code, "not JSON" in answer.stderr) == (6, True)

    def test_a_missing_plan_or_workspace_exits_3(self, yard: Yard) -> None:
        nowhere = yard.write_plan(yard.plan(values=[1]) | {"workspace": "/no/such/folder"})

        assert yard.cli("enqueue-sweep", "--plan", "no-such-plan.json").code == 3
        assert yard.cli("enqueue-sweep", "--plan", str(nowhere)).code == 3


class TestGroupControls:
    def test_pausing_and_resuming_set_the_field_and_print_the_tokens(self, yard: Yard) -> None:
        group = yard.enqueue_sweep(values=[1])
        assert "paused" not in yard.group(group)

        paused = yard.ok("pause-group", "--group-id", group)
        assert yard.group(group)["paused"] is True
        again = yard.ok("pause-group", "--group-id", group)
        resumed = yard.ok("resume-group", "--group-id", group)

        assert paused.stdout == f"Paused group {group}\n[RF:GROUP=PAUSED {group}]\n"
        assert again.stdout == f"Group {group} is already paused\n[RF:GROUP=PAUSED {group}]\n"
        assert resumed.stdout == f"Resumed group {group}\n[RF:GROUP=RESUMED {group}]\n"
        assert yard.group(group)["paused"] is False

    def test_canceling_ends_what_is_queued_and_the_group(self, yard: Yard) -> None:
        group = yard.enqueue_sweep(values=[1, 2, 3])

        answer = yard.ok("cancel-group", "--group-id", group)

        assert answer.stdout == f"Canceled 3 queued runs in group {group}\n"
        assert {job["state"] for job in yard.jobs()} == {"canceled"}
        told = yard.group(group)
        assert (told["status"], told["execution"]["cancelled"], told["summary"]["canceled"]) == ("canceled", True, 3)
        assert {run["status"] for run in told["runs"]} == {"canceled"}
        assert yard.ok("cancel-group", "--group-id", group).stdout == f"No queued runs to cancel in group {group}\n"

    def test_retrying_queues_what_failed_and_only_once(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("sh", "-c", "[ $X = 1 ] || [ -e ok ]", values=[1, 2, 3])
        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 3)
            daemon.stop()
        assert sorted(yard.states().values()) == ["failed", "failed", "succeeded"]

        answer = yard.ok("retry-failed", "--group-id", group)
        twice = yard.ok("retry-failed", "--group-id", group)

        lines = answer.stdout.splitlines()
        assert lines[0] == f"Re-enqueued 2 failed runs in group {group}"
        assert all(line.endswith("(attempt 2)") for line in lines[1:])
        assert twice.stdout == f"No failed runs to retry in group {group}\n"
        assert [job["state"] for job in yard.jobs()] == ["succeeded", "failed", "failed", "queued", "queued"]
        told = yard.group(group)
        assert (told["status"], told["execution"]["finished_at"]) == ("running", None)
        assert [run["status"] for run in told["runs"]] == ["succeeded", "queued", "queued"]

        (yard.root / "ok").touch()
        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()
        assert yard.group(group)["status"] == "completed"

    @pytest.mark.parametrize("command", ["pause-group", "resume-group", "retry-failed", "cancel-group"])
    @pytest.mark.parametrize("group", ["grp_nobody", "../../etc"])
    def test_an_unknown_group_is_refused(self, yard: Yard, command: str, group: str) -> None:
        yard.enqueue_sweep(values=[1])

        answer = yard.cli(command, "--group-id", group)

        assert answer.code == 1
        assert answer.stderr.startswith("ERROR: ")

    def test_a_group_of_single_runs_can_be_paused_too(self, yard: Yard) -> None:
        yard.make_run("r")
        yard.ok("enqueue-run", "--run-id", "r", "--group-id", "mine")

        yard.ok("pause-group", "--group-id", "mine")

        assert yard.group("mine")["paused"] is True
        assert [run["status"] for run in yard.group("mine")["runs"]] == ["queued"]


class TestDaemon:
    def test_it_prints_its_tokens_and_keeps_its_file(self, yard: Yard) -> None:
        yard.make_run("r", "true")
        yard.ok("enqueue-run", "--run-id", "r")

        with yard.daemon("--max-parallel", "3") as daemon:
            pid = daemon.process.pid
            told = yard.daemon_json()
            daemon.wait_for("JOB_DONE")
            daemon.stop()

        job = yard.jobs()[0]["job_id"]
        assert daemon.rest().splitlines() == [
            f"[RF:DAEMON=STARTED pid={pid} max_parallel=3]",
            f"[RF:QUEUE=JOB_STARTED {job} run_id=r]",
            f"[RF:QUEUE=JOB_DONE {job} run_id=r status=succeeded]",
            f"[RF:DAEMON=STOPPED pid={pid}]",
        ]
        assert list(told) == DAEMON_KEYS
        assert (told["version"], told["pid"], told["state"], told["max_parallel"]) == (1, pid, "running", 3)
        assert NAIVE.fullmatch(told["last_heartbeat"])
        assert yard.daemon_json()["state"] == "stopped"
        assert yard.queue()["max_parallel"] == 3

    def test_the_lock_holds_the_bare_pid_and_goes_with_the_daemon(self, yard: Yard) -> None:
        with yard.daemon() as daemon:
            assert (yard.queue_folder / "daemon.lock").read_text() == str(daemon.process.pid)
            daemon.stop()

        assert not (yard.queue_folder / "daemon.lock").exists()

    def test_a_second_daemon_exits_1_and_names_the_first(self, yard: Yard) -> None:
        with yard.daemon() as daemon:
            answer = yard.cli("daemon", "--workspace", str(yard.root))

            assert answer.code == 1
            assert f"ERROR: a daemon with pid {daemon.process.pid} serves" in answer.stderr
            assert yard.daemon_json()["pid"] == daemon.process.pid

    def test_the_lock_of_a_dead_daemon_is_stale(self, yard: Yard) -> None:
        with yard.daemon() as daemon:
            daemon.kill()
        assert yard.daemon_json()["state"] == "running"

        with yard.daemon() as second:
            assert yard.daemon_json()["pid"] == second.process.pid
            assert second.stop() == 0

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_runs_until_a_signal_and_lets_running_jobs_finish(self, yard: Yard, number: signal.Signals) -> None:
        yard.make_run("slow", "sh", "-c", "while [ ! -e go ]; do sleep 0.02; done")
        yard.make_run("next", "true")
        for run in ("slow", "next"):
            yard.ok("enqueue-run", "--run-id", run)

        with yard.daemon("--max-parallel", "1") as daemon:
            daemon.wait_for("JOB_STARTED")
            daemon.process.send_signal(number)
            until(lambda: yard.daemon_json()["state"] == "stopping")
            (yard.root / "go").touch()
            assert daemon.wait() == 0

        assert yard.states() == {"slow": "succeeded", "next": "queued"}
        assert yard.daemon_json()["state"] == "stopped"

    def test_a_missing_run_folder_fails_only_that_job(self, yard: Yard) -> None:
        yard.make_run("here", "true")
        yard.write_queue({"run_id": "gone"}, {"run_id": "here"}, {"run_id": "../../sly"})

        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 3)
            daemon.stop()

        assert yard.states() == {"gone": "failed", "here": "succeeded", "../../sly": "failed"}
        assert "Run directory not found" in yard.jobs()[0]["error"]
        assert "not a safe file name" in yard.jobs()[2]["error"]

    def test_groups_take_turns(self, yard: Yard) -> None:
        runs = [(group, f"{group}{number}") for group in "abc" for number in range(3)]
        for _, run in runs:
            yard.make_run(run, "true")
        yard.write_queue(*({"run_id": run, "group_id": group} for group, run in runs))

        with yard.daemon("--max-parallel", "1") as daemon:
            daemon.wait_for("JOB_DONE", 9)
            daemon.stop()

        started = re.findall(r"JOB_STARTED \S+ run_id=(\w)", daemon.rest())
        assert "".join(started) == "abcabcabc"

    def test_the_literal_policy_can_be_had(self, yard: Yard) -> None:
        runs = [(group, f"{group}{number}") for group in "abc" for number in range(2)]
        for _, run in runs:
            yard.make_run(run, "true")
        yard.write_queue(*({"run_id": run, "group_id": group} for group, run in runs))

        with yard.daemon("--max-parallel", "1", "--policy", "contract-v1") as daemon:
            daemon.wait_for("JOB_DONE", 6)
            daemon.stop()

        assert "".join(re.findall(r"JOB_STARTED \S+ run_id=(\w)", daemon.rest())) == "ababcc"

    def test_a_paused_group_waits_until_it_is_resumed(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("true", values=[1, 2])
        yard.ok("pause-group", "--group-id", group)
        yard.make_run("other", "true")

        with yard.daemon() as daemon:
            yard.ok("enqueue-run", "--run-id", "other")
            daemon.wait_for("run_id=other status=succeeded")
            assert [run["status"] for run in yard.group(group)["runs"]] == ["queued", "queued"]
            yard.ok("resume-group", "--group-id", group)
            daemon.wait_for("JOB_DONE", 2)
            daemon.stop()

        assert yard.group(group)["status"] == "completed"

    def test_the_module_is_ready_for_the_desktop(self, yard: Yard) -> None:
        assert python_m(yard, "--version").code == 0
        assert python_m(yard, "queue-status", "--workspace", str(yard.root)).code == 0


class TestStatus:
    def test_it_tells_the_daemon_the_groups_and_what_failed(self, yard: Yard) -> None:
        group = yard.enqueue_sweep("sh", "-c", "echo no more disk >&2; exit $X", values=[0, 1])
        with yard.daemon() as daemon:
            daemon.wait_for("JOB_DONE", 2)
            running = yard.ok("queue-status").stdout
            daemon.stop()
        stopped = yard.ok("queue-status", "--workspace", str(yard.root)).stdout
        told = yard.ok("queue-status", "--json").json

        assert f"running (pid {daemon.process.pid})" in running
        assert "stopped" in stopped
        assert f"{group}  ██████████ 100%  2/2" in stopped
        assert "no more disk" in stopped
        assert told["jobs"] == {"queued": 0, "running": 0, "succeeded": 1, "failed": 1, "canceled": 0}
        assert told["groups"][0]["failures"][0]["error"] == "no more disk"

    def test_a_daemon_that_died_is_not_called_running(self, yard: Yard) -> None:
        with yard.daemon() as daemon:
            daemon.kill()

        assert "died (pid" in yard.ok("queue-status").stdout

    def test_an_empty_workspace_has_an_empty_queue(self, yard: Yard) -> None:
        answer = yard.ok("queue-status")

        assert answer.stdout == "Daemon  not running; start it: runforge-cli daemon\nJobs    0 (none)\n"
        assert not yard.queue_folder.exists()
