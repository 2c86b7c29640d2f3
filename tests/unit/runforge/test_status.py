"""How the queue stands: counts by the last job of a run, time to go, a daemon that only says that it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from queueyard.runforge.cli_status import without_heartbeat
from queueyard.runforge.errors import TimedOut, UnknownGroup
from queueyard.runforge.records import Added, DaemonFile, DaemonState, Job, JobState
from queueyard.runforge.rules import local_iso
from queueyard.runforge.status import daemon_status, mean_duration_s, status, wait

if TYPE_CHECKING:
    from queueyard.kernel.testing import FakeClock
    from queueyard.runforge.group_files import GroupFiles
    from queueyard.runforge.store import Store


def job(name: str, state: JobState, group: str | None = "g", run: str | None = None, took_s: int | None = None) -> Job:
    ended = None if took_s is None else f"2026-02-01T12:00:{took_s:02d}"
    return Job(
        job_id=name,
        run_id=run or name,
        group_id=group,
        state=state,
        started_at="2026-02-01T12:00:00" if ended else None,
        finished_at=ended,
        error="first line\nthe reason" if state is JobState.FAILED else None,
    )


def fill(store: Store, *jobs: Job) -> None:
    with store.writing():
        store.commit(Added(jobs=list(jobs)))


def test_a_run_counts_by_its_last_job(store: Store, groups: GroupFiles) -> None:
    fill(store, job("1", JobState.FAILED, run="r"), job("2", JobState.QUEUED, run="r"), job("3", JobState.SUCCEEDED))

    told = status(store, groups)

    [group] = told.groups
    assert (group.total, group.done, group.queued, group.failed, group.succeeded) == (2, 1, 1, 0, 1)
    assert told.jobs == {"queued": 1, "running": 0, "succeeded": 1, "failed": 1, "canceled": 0}


def test_a_view_that_differs_by_the_heartbeat_alone_is_the_same(
    store: Store, groups: GroupFiles, clock: FakeClock
) -> None:
    store.workspace.make_queue_folder()
    views = []
    for _ in range(2):
        at = local_iso(clock.now())
        store.write_daemon(DaemonFile(pid=os.getpid(), started_at="x", last_heartbeat=at, state=DaemonState.RUNNING))
        views.append(status(store, groups))
        clock.advance(5.0)

    assert views[0] != views[1]
    assert without_heartbeat(views[0]) == without_heartbeat(views[1])


def test_runs_without_a_group_stand_together(store: Store, groups: GroupFiles) -> None:
    fill(store, job("1", JobState.QUEUED, group=None), job("2", JobState.QUEUED, group=None))

    [group] = status(store, groups).groups
    assert (group.group_id, group.queued) == ("__ungrouped__", 2)


def test_the_time_to_go_follows_from_the_runs_that_are_over(store: Store, groups: GroupFiles) -> None:
    fill(
        store, job("1", JobState.SUCCEEDED, took_s=10), job("2", JobState.FAILED, took_s=20), job("3", JobState.QUEUED)
    )

    told = status(store, groups)

    # one run of fifteen seconds, and two slots for one group
    assert told.eta_s == pytest.approx(7.5)
    assert mean_duration_s([]) is None


def test_what_failed_is_told_with_its_reason(store: Store, groups: GroupFiles) -> None:
    fill(store, *[job(f"{number}", JobState.FAILED) for number in range(9)])

    [group] = status(store, groups).groups
    assert [one["run_id"] for one in group.failures] == ["4", "5", "6", "7", "8"]
    assert group.failures[0]["error"].endswith("the reason")


def test_a_daemon_that_was_killed_is_dead_whatever_its_file_says(store: Store, clock: FakeClock) -> None:
    assert daemon_status(store).state == "none"
    store.workspace.make_queue_folder()
    now = local_iso(clock.now())

    told = []
    for pid, state in [
        (os.getpid(), DaemonState.RUNNING),
        (2**22 - 1, DaemonState.RUNNING),
        (2**22 - 1, DaemonState.STOPPED),
    ]:
        store.write_daemon(DaemonFile(pid=pid, started_at=now, last_heartbeat=now, state=state))
        told.append((daemon_status(store).state, daemon_status(store).healthy))

    assert told == [("running", True), ("dead", False), ("stopped", False)]


def test_waiting_ends_with_the_outcome(store: Store) -> None:
    fill(store, job("1", JobState.SUCCEEDED), job("2", JobState.FAILED), job("3", JobState.CANCELED, group="h"))

    assert wait(store, "g") == {"succeeded": 1, "failed": 1, "canceled": 0}
    assert wait(store, "3") == {"succeeded": 0, "failed": 0, "canceled": 1}


def test_waiting_for_something_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(UnknownGroup, match="no group, run or job nothing"):
        wait(store, "nothing")


def test_waiting_gives_up_when_the_time_is_up(store: Store, clock: FakeClock) -> None:
    fill(store, job("1", JobState.QUEUED))

    with pytest.raises(TimedOut, match="1 of 1 to go") as caught:
        wait(store, "g", timeout_s=5.0)

    assert caught.value.exit_code == 124
    assert clock.monotonic() >= 5
