"""Runs the installed console scripts as a user does: a process of its own, a clean environment, a bounded time.

Nothing of the caller's environment gets in but PATH, so that a QUEEN_AGENT or BEADS_DIR of the person who runs the
tests changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest

#: enough for the longest one, `queueyard demo`, on a machine that does much else
LONGEST_RUN_S = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a script said."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.stdout)

    @property
    def fault(self) -> dict[str, Any]:
        """The JSON object that `--json` makes of an error: the last line of stderr."""
        told: dict[str, Any] = json.loads(self.stderr.splitlines()[-1])
        return told

    @property
    def warnings(self) -> list[str]:
        """What `--json` makes of warnings: an object each, on stderr."""
        told = [json.loads(line) for line in self.stderr.splitlines()]
        return [one["warning"] for one in told if "warning" in one]


def find_script(name: str) -> Path:
    """The script beside this Python. Without it the test is skipped, and in CI it fails."""
    script = Path(sys.executable).with_name(name)
    if not script.exists():
        reason = f"{name} is not installed beside {sys.executable}: pip install -e '.[dev]'"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return script


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """An environment that knows nothing of the caller; the scripts of this Python come first on its PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "LC_ALL": "C.UTF-8", "COLUMNS": "200"} | more


def start_script(name: str, *words: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """The script, running; `finish` collects it."""
    return subprocess.Popen(
        [find_script(name), *words],
        cwd=cwd,
        env=clean_environment(cwd, **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(running: subprocess.Popen[str]) -> Answer:
    """Wait for a started script; one that takes too long is ended and fails the test."""
    try:
        stdout, stderr = running.communicate(timeout=LONGEST_RUN_S)
    except subprocess.TimeoutExpired:
        running.kill()
        running.communicate()
        raise
    return Answer(code=running.returncode, stdout=stdout, stderr=stderr)


def run_script(name: str, *words: str | bytes, cwd: Path, stdin: str | bytes = b"", **environment: str) -> Answer:
    """Run the script to its end."""
    done = subprocess.run(
        [os.fspath(find_script(name)), *words],
        cwd=cwd,
        env=clean_environment(cwd, **environment),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        check=False,
        timeout=LONGEST_RUN_S,
    )
    return Answer(code=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())
