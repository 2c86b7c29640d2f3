"""`queueyard units` through the script: what it prints, writes and finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from scripts import run_script

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_written_checked_and_found_to_differ(tmp_path: Path) -> None:
    written = run_script("queueyard", "units", "--out", "units", "--json", cwd=tmp_path)
    well = run_script("queueyard", "units", "--out", "units", "--check", cwd=tmp_path)
    (tmp_path / "units" / "queueyard-ops.service").write_text("[Service]\n", encoding="utf-8")
    broken = run_script("queueyard", "units", "--out", "units", "--check", "--json", cwd=tmp_path)

    assert sorted(json.loads(written.stdout)) == sorted(f"units/{path.name}" for path in (tmp_path / "units").iterdir())
    assert (well.code, well.stdout) == (0, "")
    assert "Everything is well" in well.stderr
    assert broken.code == 1
    assert [one["check"] for one in broken.json] == ["files"]


def test_without_a_folder_they_are_printed_for_where_queueyard_is_installed(tmp_path: Path) -> None:
    told = run_script("queueyard", "units", "--prefix", "/opt/yard", "--json", cwd=tmp_path).json
    missing = run_script("queueyard", "units", "--prefix", "/opt/yard", "--check", cwd=tmp_path)

    assert "ExecStart=/opt/yard/bin/jolli-ops serve" in told["queueyard-ops.service"]
    assert missing.code == 1
    assert "/opt/yard/bin/jolli-ops, which is not there" in missing.stdout
    assert list(tmp_path.iterdir()) == []
