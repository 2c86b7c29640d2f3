"""The examples run as they are, each with a server of its own, and print what they should."""

from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

from executor_crews import need_a_sandbox
from scripts import clean_environment
from servers import Server, find_binary, valkey

__all__ = ["valkey"]

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "panqueue_typed": (
        "attempt 1 of order 2: the bank did not answer\n"
        "attempt 1 of order 3: an order without items\n"
        "Receipt(number=1, total=349)\n"
    ),
    "panqueue_keyed": "in order: True\n",
    "panqueue_sandbox": "allowed: HELLO\nread: refused\nwrite: refused\n",
    "panqueue_flow": "adding up\n{'title': 'A tale', 'words': 6, 'missing': ['two']}\n",
    "panqueue_polite": (
        "answered: ('ada', 8) ('ben', 8)\nrefused and tried again: 2 failed: 0\nadded once: True delayed: 1\n"
    ),
    "panqueue_web_request": "cat-200.png\ndog-200.png\n",
}


@pytest.fixture(autouse=True)
def _needs_a_server() -> None:
    find_binary("valkey")


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_should(name: str, tmp_path: Path) -> None:
    if name == "panqueue_sandbox":
        need_a_sandbox()
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        env=clean_environment(tmp_path, PYTHONUNBUFFERED="1"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert all(line in done.stdout.splitlines() for line in PRINTED[name].splitlines()), done.stdout


def test_the_program_in_the_documentation_runs(valkey: Server, tmp_path: Path) -> None:
    page = (EXAMPLES.parent / "docs" / "systems" / "panqueue.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]

    done = subprocess.run(
        [sys.executable, "-c", program.replace("redis://localhost", valkey.url)],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "sent to ada@example.org, attempt 1\n"


def test_no_example_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("panqueue_*.py")} == set(PRINTED)
