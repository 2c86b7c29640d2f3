"""A workspace in a temporary folder, and a store over it with a clock that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.testing import FakeClock
from queueyard.runforge.group_files import GroupFiles
from queueyard.runforge.store import Store
from queueyard.runforge.workspace import Workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "ws").mkdir()
    return Workspace(tmp_path / "ws")


@pytest.fixture
def store(workspace: Workspace, clock: FakeClock) -> Store:
    return Store(workspace, clock=clock)


@pytest.fixture
def groups(workspace: Workspace, clock: FakeClock) -> GroupFiles:
    return GroupFiles(workspace, clock=clock)
