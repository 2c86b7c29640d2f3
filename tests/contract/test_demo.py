"""`queueyard demo`: every scene through the real commands, and nothing is left behind."""

from __future__ import annotations

from importlib.util import find_spec
import os
from pathlib import Path
import shutil
import signal
import subprocess
import tempfile
from typing import IO, TYPE_CHECKING

import pytest

from queueyard.yard.parts import find_part
from scripts import Answer, finish, start_script
from servers import wait_until
from yards import processes_in

if TYPE_CHECKING:
    from collections.abc import Iterator

#: every scene but the pipeline, which alone takes most of the time, and the dashboard
QUICK = [word for name in ("queen", "runforge", "panqueue", "jjq", "ops", "yard") for word in ("--scene", name)]
PATIENCE_S = 120.0
#: a minute or two; a machine that does much else may take ten times as long
LONGEST_DEMO_S = 900.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: the socket of a server in it may have no long one."""
    made = Path(tempfile.mkdtemp(prefix="qy-"))
    yield made
    shutil.rmtree(made)


def demo(folder: Path, *words: str) -> Answer:
    """Played to its end; one that takes too long is interrupted, so that it cleans up, and fails the test."""
    running = start_script("queueyard", "demo", *words, cwd=folder, TMPDIR=str(folder))
    try:
        stdout, stderr = running.communicate(timeout=LONGEST_DEMO_S)
    except subprocess.TimeoutExpired:
        running.terminate()
        stdout, stderr = running.communicate()
    return Answer(code=running.returncode, stdout=stdout, stderr=stderr)


def leftovers(folder: Path) -> list[str]:
    """Files and processes of a demo; only a report may stay."""
    return [*sorted({path.name for path in folder.iterdir()} - {"queueyard-report"}), *processes_in(folder)]


@pytest.mark.timeout(1_000)
def test_every_scene_is_shown_and_nothing_is_left_but_the_report(folder: Path) -> None:
    has_spark = find_spec("pyspark") is not None and find_part("java").found
    if not has_spark and os.environ.get("CI") == "true":
        pytest.fail("no Spark or no Java here: pip install 'queueyard[pipeline,embedded]'")

    answer = demo(folder)

    assert answer.code == 0, answer.stdout + answer.stderr
    missing = [name for name, there in (("jjq", shutil.which("jj") is not None), ("pipeline", has_spark)) if not there]
    skipped = f", skipped: {', '.join(missing)}" if missing else ""
    assert answer.stdout.splitlines()[-1].startswith(f"{8 - len(missing)} of 8 scenes shown{skipped}; ")
    assert leftovers(folder) == []
    if has_spark:
        assert (folder / "queueyard-report" / "index.html").stat().st_size > 10_000
        assert list((folder / "queueyard-report").glob("*.png"))
        assert f"report: {folder}/queueyard-report/index.html" in answer.stdout


def test_what_is_missing_is_skipped_and_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_jj = [folder for folder in os.environ["PATH"].split(os.pathsep) if shutil.which("jj", path=folder) is None]
    monkeypatch.setenv("PATH", os.pathsep.join(without_jj))

    answer = demo(folder, "--keep", "--scene", "queen", "--scene", "jjq")

    assert answer.code == 0, answer.stdout + answer.stderr
    assert "skipped: jj is not on this machine" in answer.stdout
    assert "1 of 2 scenes shown, skipped: jjq" in answer.stdout
    (yard,) = folder.glob("queueyard-demo-*")
    assert (yard / ".beads" / "queen_messages.jsonl").exists()
    assert processes_in(folder) == []


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "runforge-cli wait"),
        (signal.SIGTERM, "panqueue status"),
        (signal.SIGINT, "jjq run --all"),
        (signal.SIGTERM, "500 files goes to a server"),
    ],
)
def test_interrupted_in_the_middle_it_leaves_nothing(folder: Path, number: signal.Signals, moment: str) -> None:
    if "jjq" in moment and shutil.which("jj") is None:
        pytest.skip("jj is not on the PATH: python tools/fetch_parts.py jj")
    scene = next(name for name in ("runforge", "panqueue", "jjq", "ops") if name in moment or name == "ops")
    running = start_script("queueyard", "demo", "--scene", scene, cwd=folder, TMPDIR=str(folder), PYTHONUNBUFFERED="1")
    assert running.stdout is not None
    read_until(running.stdout, moment)

    running.send_signal(number)

    answer = finish(running)
    assert answer.code == 130, answer
    assert "nothing is left behind" in answer.stderr
    # What a child of ours started may take a moment to notice that its parent is gone.
    wait_until(lambda: leftovers(folder) == [], "something is left", PATIENCE_S)


def test_a_second_demo_after_an_interrupted_one_is_as_the_first(folder: Path) -> None:
    first = start_script("queueyard", "demo", *QUICK, cwd=folder, TMPDIR=str(folder), PYTHONUNBUFFERED="1")
    assert first.stdout is not None
    read_until(first.stdout, "queen next")
    first.send_signal(signal.SIGINT)
    assert finish(first).code == 130

    again = demo(folder, "--scene", "queen", "--scene", "panqueue")

    assert again.code == 0, again.stdout + again.stderr
    assert leftovers(folder) == []


def test_an_unknown_scene_is_refused_and_the_known_ones_are_told(folder: Path) -> None:
    answer = demo(folder, "--scene", "quen")

    assert answer.code == 2
    assert "queen, runforge, panqueue" in answer.stderr


def read_until(stream: IO[str], text: str) -> None:
    for line in stream:
        if text in line:
            return
    pytest.fail(f"it never said {text!r}")
