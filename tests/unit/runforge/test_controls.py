"""What commands do to groups, beside a daemon that was faster or died before it could tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.runforge.controls import cancel_group, prune, retry_failed
from queueyard.runforge.enqueue import enqueue_run, save_group
from queueyard.runforge.errors import UnknownGroup
from queueyard.runforge.records import Ended, JobState, Started
from queueyard.runforge.store import Store

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.workspace import Workspace

AT = "2026-01-01T00:00:00.000000"


def queue(store: Store, groups: GroupFiles, *runs: str, **more: Any) -> list[str]:
    for run in runs:
        folder = store.workspace.run_folder(run)
        folder.mkdir(parents=True)
        (folder / "request.json").write_text('{"version": 1, "command": ["true"]}')
    return [enqueue_run(store, groups, run_id=run, group_id="g", **more).job_id for run in runs]


def started(job: str) -> Started:
    return Started(job_id=job, attempt=1, at=AT)


def ended(job: str, state: JobState) -> Ended:
    return Ended(job_id=job, was=JobState.RUNNING, attempt=1, state=state, at=AT)


def told(workspace: Workspace) -> dict[str, str]:
    raw = json.loads(workspace.group_file("g").read_bytes())
    return {run["run_id"]: run["status"] for run in raw["runs"]}


def test_a_command_that_saves_a_group_also_tells_what_a_killed_daemon_did_not(
    store: Store, groups: GroupFiles, workspace: Workspace
) -> None:
    first, _ = queue(store, groups, "a", "b")
    daemon = Store(workspace)
    daemon.refresh()
    daemon.commit(started(first), ended(first, JobState.SUCCEEDED))

    cancel_group(store, groups, "g")

    assert told(workspace) == {"a": "succeeded", "b": "canceled"}
    assert Store(workspace).look().unsaved == {}


def test_what_the_daemon_made_of_a_job_since_is_not_taken_back(
    store: Store, groups: GroupFiles, workspace: Workspace
) -> None:
    """The command still thinks that the job is queued when it comes to write the group."""
    [job] = queue(store, groups, "a")
    daemon = Store(workspace)
    daemon.refresh()

    daemon.commit(started(job), ended(job, JobState.SUCCEEDED))
    save_group(store, groups, "g")

    assert told(workspace) == {"a": "succeeded"}


def test_only_what_is_still_queued_is_canceled(store: Store, groups: GroupFiles, workspace: Workspace) -> None:
    first, second = queue(store, groups, "a", "b")
    daemon = Store(workspace)
    daemon.refresh()
    daemon.commit(started(first))

    about = cancel_group(store, groups, "g")

    assert [job.job_id for job in about] == [second]
    assert told(workspace) == {"a": "running", "b": "canceled"}


def test_retrying_keeps_what_the_runs_need(store: Store, groups: GroupFiles) -> None:
    first, second = queue(store, groups, "a", "b", retries=3, timeout_s=9.0)
    store.commit(*(entry for job in (first, second) for entry in (started(job), ended(job, JobState.FAILED))))

    jobs = retry_failed(store, groups, "g")

    assert [(job.run_id, job.attempt, job.state) for job in jobs] == [("a", 2, "queued"), ("b", 2, "queued")]
    assert store.state.extra_of(jobs[0].job_id).timeout_s == 9.0
    assert retry_failed(store, groups, "g") == []


def test_a_job_that_another_waits_for_is_not_pruned(store: Store, groups: GroupFiles, clock: FakeClock) -> None:
    [first] = queue(store, groups, "a")
    store.commit(started(first), ended(first, JobState.FAILED))
    queue(store, groups, "b", after=[first])
    clock.advance(1e6)

    assert prune(store, older_than_s=0.0) == []


def test_an_unknown_group_is_refused_with_the_one_that_may_be_meant(store: Store, groups: GroupFiles) -> None:
    queue(store, groups, "a")

    with pytest.raises(UnknownGroup, match="Group not found: G") as caught:
        cancel_group(store, groups, "G")

    assert caught.value.hint == "Did you mean g?"
