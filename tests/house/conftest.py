"""The console scripts as pyproject.toml declares them, and how each one is started."""

from __future__ import annotations

import os
from pathlib import Path
import sys
import tomllib

import pytest

HOUSE = Path(__file__).parents[2]
DECLARED: dict[str, str] = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "script" in metafunc.fixturenames:
        metafunc.parametrize("script", DECLARED)


@pytest.fixture(scope="session")
def declared() -> dict[str, str]:
    """Console script -> "module:attribute"."""
    return DECLARED


@pytest.fixture(scope="session")
def source() -> Path:
    """The folder that the packages are in."""
    return HOUSE / "src"


class Launcher:
    """Starts the installed script if there is one beside this Python, else what it would call."""

    def command(self, script: str) -> list[str]:
        installed = Path(sys.executable).with_name(script)
        if installed.exists():
            return [str(installed)]
        if os.environ.get("CI") == "true":
            pytest.fail(f"{script} is not installed beside {sys.executable}: pip install -e '.[dev]'")
        module, _, attribute = DECLARED[script].partition(":")
        return [
            sys.executable,
            "-c",
            f"import sys; sys.argv[0] = {script!r}; from {module} import {attribute}; sys.exit({attribute}())",
        ]


@pytest.fixture(scope="session")
def launcher() -> Launcher:
    return Launcher()
