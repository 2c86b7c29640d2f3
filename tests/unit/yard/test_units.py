"""Unit files: what each must have, and what is noticed if it has not."""

from __future__ import annotations

from pathlib import Path
import shutil
import sys

import pytest

from queueyard.yard.units import CONTAINER_FILE, examine, page, unit_files, verify, write

FILES = unit_files(sys.prefix)
SERVICES = [name for name in FILES if name.endswith(".service")]


def test_the_page_of_the_documents_is_what_the_command_prints() -> None:
    written = Path(__file__).parents[3] / "docs" / "operate" / "units.md"

    assert written.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_listens_on_loopback_only_and_no_secret_stands_on_its_command_line(name: str) -> None:
    [command] = [line for line in FILES[name].splitlines() if line.startswith("ExecStart=")]

    assert "0.0.0.0" not in command
    assert not any(word in command.lower() for word in ("token=", "password", "redis://", "secret"))
    assert ("--host 127.0.0.1" in command) == any(word in command for word in (" serve ", " dashboard "))


def test_everything_is_well_as_it_is(tmp_path: Path) -> None:
    write(FILES, tmp_path)

    assert examine(FILES, tmp_path) == []


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("NoNewPrivileges=yes", "NoNewPrivileges=no", "has no NoNewPrivileges=yes"),
        (f"ExecStart={sys.prefix}/bin/jolli-ops", "ExecStart=/nowhere/jolli-ops", "which is not there"),
    ],
)
def test_a_weak_or_broken_service_is_found(before: str, after: str, told: str) -> None:
    broken = FILES | {"queueyard-ops.service": FILES["queueyard-ops.service"].replace(before, after)}

    assert any(told in one.problem for one in examine(broken, None))


def test_files_that_are_missing_or_were_changed_are_found(tmp_path: Path) -> None:
    write(FILES, tmp_path)
    (tmp_path / CONTAINER_FILE).unlink()
    (tmp_path / "queueyard-ops.service").write_text("[Service]\n", encoding="utf-8")

    told = [one.problem for one in examine(FILES, tmp_path)]

    assert told == [
        f"{tmp_path / CONTAINER_FILE} is not there",
        f"{tmp_path / 'queueyard-ops.service'} is not what this version writes",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here: apt-get install systemd")
def test_systemd_itself_is_asked() -> None:
    broken = FILES | {"queueyard-ops.service": FILES["queueyard-ops.service"].replace("KillMode=", "KilMode=")}

    assert verify(FILES) == []
    assert any("KilMode" in one.problem for one in verify(broken))


def test_the_container_runs_nothing_as_root_and_holds_no_secret() -> None:
    steps = [line.split(maxsplit=1) for line in FILES[CONTAINER_FILE].splitlines() if line and line[0].isupper()]
    words = [step[0] for step in steps]

    assert words[0] == "FROM"
    assert dict(steps)["USER"] == "queueyard"
    assert words.index("USER") < words.index("CMD")
    assert not any(name in FILES[CONTAINER_FILE] for name in ("TOKEN", "PASSWORD", "SECRET"))
