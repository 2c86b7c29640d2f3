"""`queueyard demo`: every scene through the real commands, and nothing is left behind."""

from __future__ import annotations

import os
from pathlib import Path
import shutil
from typing import TYPE_CHECKING

from scripts import run_script

if TYPE_CHECKING:
    import pytest


def test_every_system_is_shown_and_nothing_is_left(tmp_path: Path) -> None:
    answer = run_script("queueyard", "demo", cwd=tmp_path, TMPDIR=str(tmp_path))

    assert answer.code == 0, answer.stdout + answer.stderr
    shown = "4 of 5 systems shown, skipped: jjq" if shutil.which("jj") is None else "5 of 5 systems shown"
    assert answer.stdout.splitlines()[-1] == shown
    assert list(tmp_path.glob("queueyard-demo-*")) == []
    assert _processes_in(tmp_path) == []


def test_what_is_missing_is_skipped_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jj = [folder for folder in os.environ["PATH"].split(os.pathsep) if shutil.which("jj", path=folder) is None]
    monkeypatch.setenv("PATH", os.pathsep.join(without_jj))

    answer = run_script("queueyard", "demo", "--keep", cwd=tmp_path, TMPDIR=str(tmp_path))

    assert answer.code == 0, answer.stdout + answer.stderr
    assert "skipped: jj is not on this machine" in answer.stdout
    (yard,) = tmp_path.glob("queueyard-demo-*")
    assert (yard / ".beads" / "queen_messages.jsonl").exists()
    assert _processes_in(tmp_path) == []


def _processes_in(folder: Path) -> list[str]:
    """Command lines of processes that stand in the folder or name it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            stands_in = str((process / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in command or stands_in.startswith(str(folder)):
            found.append(command)
    return found
