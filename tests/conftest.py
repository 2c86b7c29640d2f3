"""What every test may use: hypothesis profiles, a disk that is soon full, and chaos only where it is asked for."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IN_CI = os.environ.get("CI") == "true"
SMALL_DISK_KIB = 256

# A deadline per example would measure the machine, not the code.
settings.register_profile("laptop", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("laptop"), derandomize=True)
settings.load_profile("ci" if IN_CI else "laptop")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave chaos out unless `-m` speaks of it."""
    if "chaos" in config.getoption("markexpr"):
        return
    chaos = [item for item in items if item.get_closest_marker("chaos")]
    if chaos:
        config.hook.pytest_deselected(items=chaos)
        items[:] = [item for item in items if not item.get_closest_marker("chaos")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """An empty file system of a few hundred KiB, so that "no space left" is the kernel's own word."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    if reason := _why_not_mounted(folder):
        _do_without(f"a small tmpfs cannot be mounted here ({reason}): run the tests as root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _why_not_mounted(folder: Path) -> str | None:
    size = f"size={SMALL_DISK_KIB}k,mode=0755"
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "small-disk", str(folder)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        return "there is no mount command"
    except subprocess.CalledProcessError as fault:
        return str(fault.stderr).partition("\n")[0]
    return None


def _do_without(reason: str) -> None:
    """Skip, saying why; in CI a missing real part is a failure."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)
