"""Settings: flags before the environment, the environment before the file, every fault at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.errors import BadSettings
from queueyard.runforge.records import Policy
from queueyard.runforge.settings import RunforgeSettings, load

if TYPE_CHECKING:
    from pathlib import Path


def test_what_nobody_says_has_its_default(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml", {}).values == RunforgeSettings()


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "queueyard.toml"
    file.write_text('max_parallel = 3\ngpu_slots = 4\npolicy = "contract-v1"\non_group_end = ["notify", "done"]\n')

    settled = load(file, {"RUNFORGE_MAX_PARALLEL": "5", "RUNFORGE_GPU_SLOTS": "6"}, max_parallel=7, gpu_slots=None)

    assert (settled.values.max_parallel, settled.values.gpu_slots) == (7, 6)
    assert settled.values.policy is Policy.CONTRACT_V1
    assert settled.values.on_group_end == ("notify", "done")
    assert (settled.origin["max_parallel"], settled.origin["gpu_slots"]) == ("flag", "environment")


def test_a_command_on_the_command_line_is_split_as_a_shell_would(tmp_path: Path) -> None:
    settled = load(tmp_path / "none.toml", {"RUNFORGE_PASS_ENV": "A B"}, on_group_end="say 'it is done'")

    assert settled.values.on_group_end == ("say", "it is done")
    assert settled.values.pass_env == ("A", "B")


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as caught:
        load(tmp_path / "none.toml", {"RUNFORGE_GPU_SLOTS": "many", "RUNFORGE_POLICY": "luck"}, max_parallel="x")

    assert all(name in str(caught.value) for name in ("--max-parallel", "RUNFORGE_GPU_SLOTS", "RUNFORGE_POLICY"))


@pytest.mark.parametrize(
    "flags",
    [
        {"max_parallel": 0},
        {"gpu_slots": -1},
        {"job_timeout_s": -1.0},
        {"shutdown_grace_s": -1.0},
        {"kill_grace_s": -1.0},
    ],
)
def test_numbers_that_cannot_be_are_refused(tmp_path: Path, flags: dict[str, float]) -> None:
    with pytest.raises(BadSettings, match=next(iter(flags))):
        load(tmp_path / "none.toml", {}, **flags)
