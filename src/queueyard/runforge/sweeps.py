"""Making the folders of a sweep: its group, its plan, and a run folder with a request for each run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
import os
from pathlib import Path
import shutil
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD, replace_file
from queueyard.kernel.errors import explaining
from queueyard.runforge.errors import InvalidPlan, MissingFiles
from queueyard.runforge.group_files import PLAN
from queueyard.runforge.groups import CREATED_BY
from queueyard.runforge.plans import SweepPlan, read_plan
from queueyard.runforge.rules import check_id, group_id_for, local_iso, run_stem
from queueyard.runforge.run_files import REQUEST, write_request
from queueyard.runforge.workspace import Workspace

if TYPE_CHECKING:
    from datetime import datetime

_MOST_TRIES = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Sweep:
    """A sweep whose folders are there."""

    workspace: Workspace
    plan: SweepPlan
    group_id: str
    run_ids: list[str]


def load_plan(path: Path) -> tuple[SweepPlan, bytes]:
    """The plan and its very bytes. MissingFiles if there is none, InvalidPlan if it makes no sense."""
    with explaining("read", path):
        try:
            data = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError) as fault:
            raise MissingFiles(f"Plan file not found: {path}", hint="Name a file: --plan PATH") from fault
    try:
        raw = msgspec.json.decode(data)
    except NOT_UNDERSTOOD as fault:
        raise InvalidPlan([f"$: not JSON: {fault}"], hint=f"Correct it: $EDITOR {path}") from fault
    return read_plan(raw), data


def workspace_of(plan: SweepPlan, override: Path | None) -> Workspace:
    """Where the sweep runs: one place for runs, queue and group alike. MissingFiles if it is not there."""
    root = Path(os.path.abspath(override or plan.workspace))  # noqa: PTH100  links stay as they are written
    if not root.is_dir():
        raise MissingFiles(f"Workspace not found: {root}", hint=f"Make it: mkdir -p {root}    or: --workspace PATH")
    return Workspace(root)


def make_sweep(workspace: Workspace, plan: SweepPlan, data: bytes, *, at: datetime) -> Sweep:
    """Make all folders, under names that nobody else has; if that fails, none of them is left. StorageFailed."""
    group_id = _make_group_folder(workspace, plan.name, at)
    made: list[str] = []
    try:
        replace_file(workspace.group_folder(group_id) / PLAN, data)
        run_ids = _make_run_folders(workspace, plan, group_id, at, made)
    except BaseException:
        shutil.rmtree(workspace.group_folder(group_id), ignore_errors=True)
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Sweep(workspace=workspace, plan=plan, group_id=group_id, run_ids=run_ids)


def _make_group_folder(workspace: Workspace, name: str, at: datetime) -> str:
    with explaining("make", workspace.groups_folder):
        workspace.groups_folder.mkdir(parents=True, exist_ok=True)
        stem = check_id(group_id_for(name, at), "group")
        for number in range(1, _MOST_TRIES):
            group_id = stem if number == 1 else f"{stem}_{number}"
            with suppress(FileExistsError):
                workspace.group_folder(group_id).mkdir()
                return group_id
    raise AssertionError(f"{_MOST_TRIES} sweeps of one name in one second")


def _make_run_folders(workspace: Workspace, plan: SweepPlan, group_id: str, at: datetime, made: list[str]) -> list[str]:
    root = str(workspace.runs_folder)
    signed = {"created_at": local_iso(at), "created_by": CREATED_BY, "sweep_group_id": group_id}
    with explaining("make", root):
        workspace.runs_folder.mkdir(parents=True, exist_ok=True)
        stem = _own_stem(root, at)
        run_ids = [f"{stem}-{number:04d}" for number in range(len(plan.runs))]
        for number, (run_id, run) in enumerate(zip(run_ids, plan.runs, strict=True)):
            folder = f"{root}/{run_id}"
            made.append(folder)
            if number:
                os.mkdir(folder)  # noqa: PTH102  ten thousand times
            write_request(f"{folder}/{REQUEST}", _encoder.encode(run.request | signed))
    return run_ids


def _own_stem(root: str, at: datetime) -> str:
    """What the names of the runs begin with; who makes the first folder of a stem has all of it."""
    for number in range(1, _MOST_TRIES):
        stem = run_stem(at, number)
        with suppress(FileExistsError):
            os.mkdir(f"{root}/{stem}-0000")  # noqa: PTH102
            return stem
    raise AssertionError(f"{_MOST_TRIES} sweeps in one second")


_encoder = msgspec.json.Encoder()
