"""The console blocks of the documents are executed, and must print what the documents say."""

from __future__ import annotations

from importlib.util import find_spec
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import pytest

from queueyard.panqueue.executors.guarantees import level
from queueyard.panqueue.executors.machine import this_machine

_ROOT = Path(__file__).parents[2]
_PAGES = sorted((_ROOT / "docs" / "systems").glob("*.md"))
_BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: what the person who runs the tests has set would change what the pages print
_SETTINGS = ("QUEEN_", "BEADS_", "GIT_", "RUNFORGE_", "PANQUEUE_", "REDIS_", "JJ_", "JJQ_", "JOLLI_", "QUEUEYARD_")
#: a first Spark session on a busy machine takes its time
_COMMAND_TIMEOUT_S = 280
_PROMPT = re.compile(r"(\w*)\$ (.*)")


@pytest.mark.parametrize("page", [page for page in _PAGES if page.name != "index.md"], ids=lambda page: page.stem)
def test_the_walk_through_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    _skip_without_its_parts(page)
    commands = _commands(page.read_text(encoding="utf-8"))
    assert commands, f"{page} shows no commands"

    for agent, command, expected in commands:
        printed = _run(command, agent, tmp_path)

        assert _fits(printed, expected), f"{page.name}: $ {command}\n--- printed\n{printed}\n--- expected\n{expected}"


def test_an_expectation_that_is_not_met_is_noticed() -> None:
    assert _fits("qm-01 sent to ana\n", "qm-... sent to ana\n")
    assert not _fits("qm-01 sent to ben\n", "qm-... sent to ana\n")
    assert not _fits("one\ntwo\n", "one\n")
    assert not _fits("", "one\n")


def _skip_without_its_parts(page: Path) -> None:
    """A page whose real part is not here is skipped, saying so; in CI it fails."""
    missing = {
        "jjq": shutil.which("jj") is None and "jj is not on the PATH: python tools/fetch_parts.py jj",
        "panqueue-executors": level(this_machine()) == "none" and f"no sandbox can be made here: {this_machine()}",
        "pipeline": find_spec("pyspark") is None and "no Spark here: pip install 'queueyard[pipeline,embedded]'",
    }
    if reason := missing.get(page.stem):
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


def _commands(text: str) -> list[tuple[str, str, str]]:
    """(agent, command, expected output) of every console block."""
    found: list[tuple[str, str, str]] = []
    for block in _BLOCK.findall(text):
        for line in block.splitlines():
            prompt = _PROMPT.fullmatch(line)
            if prompt:
                found.append((prompt[1], prompt[2], ""))
            else:
                agent, command, expected = found.pop()
                found.append((agent, command, f"{expected}{line}\n"))
    return found


def _run(command: str, agent: str, folder: Path) -> str:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=outside
        | {"PATH": f"{scripts}{os.pathsep}{outside['PATH']}", "HOME": str(folder), "COLUMNS": "200"}
        | ({"QUEEN_AGENT": agent} if agent else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    return done.stdout


def _fits(printed: str, expected: str) -> bool:
    """Line by line; `...` stands for anything within a line, and runs of blanks count as one."""
    lines = [_squeezed(line) for line in printed.splitlines()]
    patterns = [_squeezed(line) for line in expected.splitlines()]
    return len(lines) == len(patterns) and all(
        re.fullmatch(".*".join(map(re.escape, pattern.split("..."))), line)
        for line, pattern in zip(lines, patterns, strict=True)
    )


def _squeezed(line: str) -> str:
    return re.sub(r" +", " ", line).strip()
