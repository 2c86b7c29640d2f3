"""group.json on disk: kept up to date beside others who write it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.errors import CorruptFile, UnsafePath
from queueyard.runforge.group_files import GroupFiles
from queueyard.runforge.groups import new_group
from queueyard.runforge.records import Job, JobState

if TYPE_CHECKING:
    from queueyard.runforge.workspace import Workspace

AT = "2026-02-01T12:00:00.000000"


def on_disk(workspace: Workspace, group_id: str = "g") -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(workspace.group_file(group_id).read_bytes())
    return raw


def job(run: str, state: JobState, **fields: Any) -> Job:
    return Job(job_id=f"job-{run}", run_id=run, group_id="g", state=state, **fields)


def test_a_group_is_made_from_its_jobs_where_it_has_no_file(groups: GroupFiles, workspace: Workspace) -> None:
    jobs = [job("a", JobState.QUEUED), job("b", JobState.QUEUED)]

    groups.save_jobs("g", lambda: jobs[:1], all_jobs=lambda: jobs)

    assert [(run["run_id"], run["status"]) for run in on_disk(workspace)["runs"]] == [("a", "queued"), ("b", "queued")]


def test_a_group_whose_maker_died_is_made_from_its_plan(groups: GroupFiles, workspace: Workspace) -> None:
    workspace.group_folder("g").mkdir(parents=True)
    plan = {
        "version": 1,
        "kind": "sweep_plan",
        "workspace": "/x",
        "group": {"name": "mine", "notes": "n"},
        "base_request": {"version": 1},
        "strategy": {"type": "grid", "parameters": [{"path": "a", "values": [1, 2]}]},
    }
    (workspace.group_folder("g") / "plan.json").write_text(json.dumps(plan))
    jobs = [job("r0", JobState.QUEUED), job("r1", JobState.RUNNING)]

    groups.save_jobs("g", list, all_jobs=lambda: jobs)

    raw = on_disk(workspace)
    assert (raw["name"], raw["notes"], raw["plan_ref"]) == ("mine", "n", "plan.json")
    assert [run["request_overrides"] for run in raw["runs"]] == [{"a": 1}, {"a": 2}]
    assert [run["status"] for run in raw["runs"]] == ["queued", "running"]


def test_an_end_brings_the_metric_of_the_result(groups: GroupFiles, workspace: Workspace) -> None:
    folder = workspace.run_folder("a")
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"summary": {"metrics": {"accuracy": 0.75}}}')

    saved = groups.save_jobs("g", lambda: [job("a", JobState.SUCCEEDED, started_at=AT)])

    assert saved.raw["runs"][0]["primary_metric"] == {"name": "accuracy", "value": 0.75}
    assert on_disk(workspace)["summary"]["best_run_id"] == "a"


def test_a_job_that_never_started_has_no_result(groups: GroupFiles, workspace: Workspace) -> None:
    folder = workspace.run_folder("a")
    folder.mkdir(parents=True)
    (folder / "result.json").write_text('{"summary": {"metrics": {"accuracy": 0.75}}}')

    groups.save_jobs("g", lambda: [job("a", JobState.CANCELED)])

    assert on_disk(workspace)["runs"][0]["result_ref"] is None


def test_the_end_of_a_group_is_told_once(groups: GroupFiles) -> None:
    def ends(state: JobState) -> bool:
        return groups.save_jobs("g", lambda: [job("a", state)]).just_ended

    told = [ends(state) for state in (JobState.QUEUED, JobState.RUNNING, JobState.SUCCEEDED, JobState.SUCCEEDED)]

    assert told == [False, False, True, False]


def test_what_another_tool_wrote_meanwhile_is_kept(groups: GroupFiles, workspace: Workspace) -> None:
    groups.save_jobs("g", lambda: [job("a", JobState.QUEUED)])
    raw = on_disk(workspace)
    raw |= {"paused": True, "colour": "blue"}
    workspace.group_file("g").write_text(json.dumps(raw))

    groups.save_jobs("g", lambda: [job("a", JobState.RUNNING)])

    assert (on_disk(workspace)["paused"], on_disk(workspace)["colour"]) == (True, "blue")
    assert on_disk(workspace)["runs"][0]["status"] == "running"


def test_a_pause_by_another_tool_is_seen_by_the_next_question(groups: GroupFiles, workspace: Workspace) -> None:
    groups.save_jobs("g", lambda: [job("a", JobState.QUEUED)])
    asked = [groups.is_paused("g")]

    raw = on_disk(workspace) | {"paused": True}
    workspace.group_file("g").write_text(json.dumps(raw))
    asked.append(groups.is_paused("g"))
    workspace.group_file("g").unlink()
    asked.append(groups.is_paused("g"))

    assert asked == [False, True, False]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kind": "other"}', '{"kind": "run_group", "runs": 7}'])
def test_a_file_that_makes_no_sense_is_refused_and_left_alone(
    groups: GroupFiles, workspace: Workspace, content: str
) -> None:
    workspace.group_folder("g").mkdir(parents=True)
    workspace.group_file("g").write_text(content)

    with pytest.raises(CorruptFile, match=r"group\.json"):
        groups.save_jobs("g", lambda: [job("a", JobState.QUEUED)])

    assert workspace.group_file("g").read_text() == content
    assert not groups.is_paused("g")


@pytest.mark.parametrize("name", ["..", "../../etc", "a/b", ""])
def test_an_id_that_leads_elsewhere_is_refused(groups: GroupFiles, name: str) -> None:
    with pytest.raises(UnsafePath):
        groups.read(name)


def test_only_a_few_groups_are_remembered(groups: GroupFiles, workspace: Workspace) -> None:
    for number in range(20):
        groups.write_new(f"g{number}", new_group(f"g{number}", ["r"], at=AT))
        groups.read(f"g{number}")

    assert len(groups._seen) <= 4


def test_two_processes_change_different_things_of_one_group(groups: GroupFiles, workspace: Workspace) -> None:
    other = GroupFiles(workspace)
    groups.save_jobs("g", lambda: [job("a", JobState.QUEUED), job("b", JobState.QUEUED)])
    other.read("g")

    groups.save_jobs("g", lambda: [job("a", JobState.SUCCEEDED)])
    other.change("g", lambda raw: raw.update(paused=True))
    groups.save_jobs("g", lambda: [job("b", JobState.FAILED)])

    raw = on_disk(workspace)
    assert raw["paused"] is True
    assert [run["status"] for run in raw["runs"]] == ["succeeded", "failed"]
