"""Every example runs, by itself, and says something."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

_EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert done.stderr == ""
