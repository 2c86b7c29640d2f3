"""How a run is started, and what is made of its end: with real programs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
import json
import os
from pathlib import Path
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel import proc
from queueyard.kernel.errors import StorageFailed, UnsafePath
from queueyard.runforge.execution import (
    LaunchFailed,
    Outcome,
    begin,
    carrier_words,
    conclude,
    environment_for_runs,
    outcome_told,
    prepare,
)
from queueyard.runforge.records import JobState

if TYPE_CHECKING:
    from queueyard.runforge.workspace import Workspace

NOON = datetime(2026, 2, 1, 12, 0, 0, tzinfo=UTC)
PATH = {"PATH": os.environ["PATH"]}


def make_run(workspace: Workspace, *command: Any, **more: Any) -> Path:
    folder = workspace.run_folder("r")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "request.json").write_text(json.dumps({"version": 1, "command": list(command), **more}))
    return folder


def run(workspace: Workspace, stopped: Outcome | None = None) -> tuple[Outcome, dict[str, Any]]:
    """Run it to its end; the outcome and result.json."""
    launch = prepare(workspace, "r", inherited=PATH, job_id="job-1", group_id="g", attempt=2)
    child, log = begin(launch)
    code = child.wait()
    later = NOON + timedelta(seconds=1.5)
    outcome = conclude(launch, code=code or 0, stopped=stopped, started=NOON, finished=later, log=log)
    os.close(log)
    return outcome, json.loads(Path(launch.folder, "result.json").read_bytes())


def test_a_command_that_succeeds(workspace: Workspace) -> None:
    folder = make_run(workspace, "echo", "hello")

    outcome, result = run(workspace)

    assert outcome == Outcome(state=JobState.SUCCEEDED)
    assert (folder / "logs.txt").read_text() == "[RF:STAGE=STARTING]\nhello\n[RF:STAGE=COMPLETED]\n"
    assert (result["version"], result["status"], result["duration_ms"]) == (1, "succeeded", 1500)
    assert result["queueyard"] == {"job_id": "job-1", "attempt": 2, "exit_code": 0}
    assert (result["summary"], result["error"]) == (None, None)


def test_a_command_that_fails_says_why_in_its_last_words(workspace: Workspace) -> None:
    folder = make_run(workspace, "sh", "-c", "echo working; echo no more disk >&2; exit 3")

    outcome, result = run(workspace)

    assert outcome == Outcome(state=JobState.FAILED, error="working\nno more disk")
    assert result["status"] == "failed"
    assert result["error"]["message"] == "working\nno more disk"
    assert (folder / "logs.txt").read_text().endswith("[RF:STAGE=FAILED]\n")


def test_a_command_that_fails_silently_tells_its_exit_code(workspace: Workspace) -> None:
    make_run(workspace, "sh", "-c", "exit 3")

    assert run(workspace)[0] == Outcome(state=JobState.FAILED, error="Exit code: 3")


def test_a_command_that_is_killed_tells_the_signal(workspace: Workspace) -> None:
    make_run(workspace, "sh", "-c", "kill -9 $$")

    outcome, result = run(workspace)

    assert outcome.error == "ended by signal 9"
    assert result["error"]["type"] == "Killed"


def test_who_ended_it_decides_what_it_means(workspace: Workspace) -> None:
    make_run(workspace, "true")

    outcome, result = run(workspace, stopped=Outcome(state=JobState.CANCELED, error="enough"))

    assert (outcome.state, result["status"]) == (JobState.CANCELED, "cancelled")


def test_a_run_knows_who_it_is(workspace: Workspace) -> None:
    folder = make_run(workspace, "sh", "-c", "env; pwd", env={"MINE": 7, "RUNFORGE_RUN_ID": "nonsense"})

    run(workspace)

    said = (folder / "logs.txt").read_text().splitlines()
    assert {
        "RUNFORGE_RUN_ID=r",
        "RUNFORGE_GROUP_ID=g",
        "RUNFORGE_ATTEMPT=2",
        "RUNFORGE_JOB_ID=job-1",
        f"RUNFORGE_RUN_DIR={folder}",
        f"RUNFORGE_WORKSPACE={workspace.root}",
        "MINE=7",
        str(workspace.root),
    } <= set(said)


def test_a_gpu_is_told_by_the_variable_that_cuda_reads(workspace: Workspace) -> None:
    make_run(workspace, "true")

    launch = prepare(workspace, "r", inherited=PATH, gpu="3")

    assert launch.env["CUDA_VISIBLE_DEVICES"] == "3"


def test_secrets_stay_at_home_unless_they_are_named() -> None:
    ours = {"HF_TOKEN": "x", "WANDB_API_KEY": "y", "LANG": "C"}

    assert environment_for_runs(ours) == {"PYTHONUNBUFFERED": "1", "LANG": "C"}
    assert environment_for_runs(ours, keep=("HF_TOKEN",))["HF_TOKEN"] == "x"
    assert environment_for_runs({"PYTHONUNBUFFERED": "0"}) == {"PYTHONUNBUFFERED": "0"}


def test_a_run_starts_where_it_says(workspace: Workspace) -> None:
    (workspace.root / "deep").mkdir()
    folder = make_run(workspace, "pwd", cwd="deep")

    run(workspace)

    assert str(workspace.root / "deep") in (folder / "logs.txt").read_text().splitlines()


def test_in_the_current_folder_it_is_started_the_short_way(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    folder = make_run(workspace, "sh", "-c", "pwd; ps -o sid=,pid= -p $$")

    outcome, _ = run(workspace)

    _, where, ids, _ = (folder / "logs.txt").read_text().splitlines()
    assert (outcome.state, where) == (JobState.SUCCEEDED, str(workspace.root))
    session, pid = ids.split()
    assert session == pid


@pytest.mark.parametrize("in_workspace", [True, False])
@pytest.mark.parametrize("program", ["no-such-program-anywhere", "/no/such/program", "/"])
def test_a_program_that_is_not_there_fails_the_run_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, program: str, in_workspace: bool
) -> None:
    if in_workspace:
        monkeypatch.chdir(workspace.root)
    folder = make_run(workspace, program)

    with pytest.raises(LaunchFailed, match=f"cannot start {program}"):
        begin(prepare(workspace, "r", inherited=PATH))

    assert "ERROR: cannot start" in (folder / "logs.txt").read_text()


def test_a_folder_that_is_not_there_is_told(workspace: Workspace) -> None:
    make_run(workspace, "true", cwd="nowhere")

    with pytest.raises(LaunchFailed, match="no such folder to run in"):
        begin(prepare(workspace, "r", inherited=PATH))


def test_a_disk_that_takes_nothing_is_no_fault_of_the_run(workspace: Workspace, small_disk: Path) -> None:
    make_run(workspace, "true")
    (small_disk / "r").mkdir()
    launch = replace(prepare(workspace, "r", inherited=PATH), folder=str(small_disk / "r"))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    with pytest.raises(StorageFailed, match="Read-only file system"):
        begin(launch)


def test_an_id_that_leads_elsewhere_is_refused(workspace: Workspace) -> None:
    with pytest.raises(UnsafePath):
        prepare(workspace, "../../etc", inherited={})


def test_metrics_that_a_command_leaves_are_in_its_result(workspace: Workspace) -> None:
    make_run(
        workspace,
        "sh",
        "-c",
        'mkdir "$RUNFORGE_RUN_DIR/artifacts" && echo \'{"loss": 0.25}\' > "$RUNFORGE_RUN_DIR/artifacts/metrics.json"',
    )

    _, result = run(workspace)

    assert result["summary"] == {"metrics": {"loss": 0.25}, "primary_metric": {"name": "loss", "value": 0.25}}


def test_what_a_command_wrote_into_its_result_stays(workspace: Workspace) -> None:
    told = '{"version": 1, "status": "succeeded", "summary": {"metrics": {"f1": 1}}, "mine": 7}'
    make_run(workspace, "sh", "-c", f"echo '{told}' > \"$RUNFORGE_RUN_DIR/result.json\"; exit 1")

    outcome, result = run(workspace)

    assert (outcome.state, result["status"]) == (JobState.FAILED, "failed")
    assert (result["mine"], result["summary"]) == (7, {"metrics": {"f1": 1}})


def test_a_new_attempt_has_no_result_of_the_last(workspace: Workspace) -> None:
    folder = make_run(workspace, "sh", "-c", 'test ! -e "$RUNFORGE_RUN_DIR/result.json"')
    (folder / "result.json").write_text("{}")

    assert run(workspace)[0].state is JobState.SUCCEEDED


class TestOutcomeThatNobodySaw:
    ticket = {"job_id": "j", "attempt": 2}  # noqa: RUF012  never changed

    def told(self, folder: Path, *, unsigned_too: bool = False, **result: Any) -> Outcome | None:
        (folder / "result.json").write_text(json.dumps(result))
        return outcome_told(folder, self.ticket, unsigned_too=unsigned_too)

    def test_a_result_of_this_attempt_counts(self, tmp_path: Path) -> None:
        signed = {"job_id": "j", "attempt": 2, "exit_code": 1}
        outcome = self.told(tmp_path, status="failed", error={"message": "boom"}, queueyard=signed)

        assert outcome == Outcome(state=JobState.FAILED, error="boom")

    def test_one_of_an_earlier_attempt_does_not(self, tmp_path: Path) -> None:
        signed = {"job_id": "j", "attempt": 1}

        assert self.told(tmp_path, status="succeeded", queueyard=signed, unsigned_too=True) is None

    def test_one_without_signature_counts_where_the_attempt_had_begun(self, tmp_path: Path) -> None:
        assert self.told(tmp_path, status="succeeded") is None
        assert self.told(tmp_path, status="succeeded", unsigned_too=True) == Outcome(state=JobState.SUCCEEDED)

    def test_a_status_that_is_none_is_no_outcome(self, tmp_path: Path) -> None:
        assert self.told(tmp_path, status="fine", unsigned_too=True) is None
        assert outcome_told(tmp_path / "nowhere", self.ticket, unsigned_too=True) is None


def test_the_identity_of_a_child_is_known_until_it_was_waited_for(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(workspace.root)
    make_run(workspace, "sleep", "60")
    child, log = begin(prepare(workspace, "r", inherited=PATH))

    assert proc.is_alive(child.identity)
    os.killpg(child.pid, 9)
    assert child.wait() == -9
    os.close(log)
    assert child.identity.started == "unknown"


def test_a_run_is_carried_elsewhere_only_where_that_is_asked_for() -> None:
    assert carrier_words("local") == []

    program, *words = carrier_words("panqueue")
    assert Path(program).name == "queueyard"
    assert words == ["bridge", "executor", "panqueue", "--"]
