"""A command dies at every step of every kind of write, under every power cut; afterwards the queue is whole.

What was acknowledged is there, what belongs together is there or not at all, queue.json and group.json can be read,
and the next command and the next daemon bring everything up to date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import itertools
import json
import shutil
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.testing import Died, FakeClock, FaultyFiles, Loss
from queueyard.runforge import store as store_module
from queueyard.runforge.controls import cancel_group, prune, retry_failed
from queueyard.runforge.enqueue import enqueue_run, enqueue_sweep
from queueyard.runforge.group_files import GroupFiles
from queueyard.runforge.records import ENDED, Ended, JobState, Started
from queueyard.runforge.rules import latest_by_run, local_iso
from queueyard.runforge.store import Store
from queueyard.runforge.sweeps import Sweep, load_plan
from queueyard.runforge.workspace import Workspace
from runforge_scenarios import Yard

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.kernel.atomic import Files

Act = Callable[[Store, GroupFiles], object]


@dataclass(frozen=True)
class Command:
    """One command, and what the states of all runs may be after it: before it, or after it."""

    name: str
    act: Act
    before: tuple[str, ...]
    after: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def queue_a_run(store: Store, groups: GroupFiles) -> None:
    enqueue_run(store, groups, run_id="new", group_id="g")


def queue_a_sweep(store: Store, groups: GroupFiles) -> None:
    plan, _ = load_plan(store.workspace.root / "plan.json")
    enqueue_sweep(
        store, groups, Sweep(workspace=store.workspace, plan=plan, group_id="grp", run_ids=["new-0", "new-1", "new-2"])
    )


COMMANDS = [
    Command("enqueue-run", queue_a_run, ("failed", "queued"), ("failed", "queued", "queued")),
    Command("enqueue-sweep", queue_a_sweep, ("failed", "queued"), ("failed", *["queued"] * 4)),
    Command("cancel-group", lambda s, g: cancel_group(s, g, "g"), ("failed", "queued"), ("failed", "canceled")),
    Command("retry-failed", lambda s, g: retry_failed(s, g, "g"), ("failed", "queued"), ("queued", "queued")),
    Command("prune", lambda s, _: prune(s, older_than_s=0.0), ("failed", "queued"), ("queued",)),
]


@pytest.fixture(autouse=True)
def _short_journals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write is followed by a new checkpoint, so that its steps are among those that kill."""
    monkeypatch.setattr(store_module, "COMPACT_FROM_BYTES", 600)


def make_yard(root: Path) -> Workspace:
    """A group with a run that failed and one that waits; everything is told and flushed."""
    yard = Yard(root)
    for run in ("failed", "waiting", "new"):
        yard.make_run(run)
    plan = yard.write_plan(yard.plan(values=[1, 2, 3]))
    workspace = Workspace(root)
    (workspace.groups_folder / "grp").mkdir(parents=True)
    shutil.copy(plan, workspace.groups_folder / "grp" / "plan.json")
    clock = FakeClock()
    store, groups = Store(workspace, clock=clock), GroupFiles(workspace, clock=clock)
    failed = enqueue_run(store, groups, run_id="failed", group_id="g").job_id
    at = local_iso(clock.now())
    with store.writing():
        store.commit(
            Started(job_id=failed, attempt=1, at=at),
            Ended(job_id=failed, was=JobState.RUNNING, attempt=1, state=JobState.FAILED, at=at),
        )
    enqueue_run(store, groups, run_id="waiting", group_id="g")
    clock.advance(1.0)
    return workspace


def perform(workspace: Workspace, command: Command, files: Files) -> None:
    clock = FakeClock()
    clock.advance(2.0)
    command.act(Store(workspace, clock=clock, files=files), GroupFiles(workspace, clock=clock, files=files))


def faults_after(workspace: Workspace, command: Command, *, acknowledged: bool) -> list[str]:
    """What is wrong with what a machine finds when the power comes back; and after the next command."""
    faults = []
    for path in (workspace.queue_file, *workspace.groups_folder.glob("*/group.json")):
        if path.exists():
            json.loads(path.read_bytes())
    state = Store(workspace).look()
    told = tuple(str(job.state) for job in latest_by_run(state.jobs.values()).values())
    if told != command.after and (acknowledged or told != command.before):
        faults.append(f"the queue says {told}")
    store, groups = Store(workspace), GroupFiles(workspace)
    cancel_group(store, groups, "g")
    published = {job["job_id"]: job["state"] for job in json.loads(workspace.queue_file.read_bytes())["jobs"]}
    if published != {name: job.state for name, job in Store(workspace).look().jobs.items()}:
        faults.append(f"queue.json says {published}")
    runs = {run["run_id"]: run["status"] for run in json.loads(workspace.group_file("g").read_bytes())["runs"]}
    for run_id, job in latest_by_run(store.state.of_group("g")).items():
        if job.state not in ENDED or runs.get(run_id) != job.state:
            faults.append(f"group.json says {runs} where {run_id} is {job.state}")
    return faults


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_whenever_it_dies_and_whatever_the_power_takes_the_queue_is_whole(tmp_path: Path, command: Command) -> None:
    original = make_yard(tmp_path / "original").root
    counting = FaultyFiles(shutil.copytree(original, tmp_path / "count", symlinks=True))
    perform(Workspace(tmp_path / "count"), command, counting)
    steps = len(counting.steps)
    assert steps > 10

    broken = []
    cuts = list(itertools.product(Loss, (False, True)))
    for number, (step, after) in enumerate(itertools.product(range(steps), (False, True))):
        # All cuts at each step would take minutes; over two neighbouring steps each kind of loss comes up.
        loss, names_lost = cuts[number % len(cuts)]
        root = shutil.copytree(original, tmp_path / f"{step}-{after}")
        files = FaultyFiles(root, die_at=step, after=after)
        with pytest.raises(Died):
            perform(Workspace(root), command, files)
        files.power_cut(bytes_lost=loss, names_lost=names_lost)
        faults = faults_after(Workspace(root), command, acknowledged=False)
        broken += [f"{files.steps[-1].call} ({step}, after={after}, {loss}, {names_lost}): {one}" for one in faults]
        shutil.rmtree(root)

    assert broken == []


@pytest.mark.parametrize("command", COMMANDS, ids=str)
@pytest.mark.parametrize("loss", Loss)
def test_what_was_acknowledged_survives_every_power_cut(tmp_path: Path, command: Command, loss: Loss) -> None:
    workspace = make_yard(tmp_path / "ws")
    files = FaultyFiles(workspace.root)

    perform(workspace, command, files)
    files.power_cut(bytes_lost=loss, names_lost=True)

    assert faults_after(workspace, command, acknowledged=True) == []
