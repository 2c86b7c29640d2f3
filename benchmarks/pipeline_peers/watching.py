"""How soon a line that somebody appends is committed to bronze by `queueyard pipeline run --watch`.

Nothing asks while it is measured. Every commit says how far each file was read, and its file says when it was made: so
all is known afterwards.
"""

from __future__ import annotations

import json
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from queueyard.pipeline.delta import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAUSE_S = 2.0
_LONGEST_S = 600.0
_LINE = (
    '{{"id":"qm-{number:026d}","created_at":"2026-03-02T08:00:00Z","from":"ana","to":"ben","subject":"news {number}",'
    '"body":"Please have a look.","read":false}}\n'
)


def delays(folder: Path, *, lines: int, before: int) -> list[float]:
    """Seconds from the append of each line to its commit, in a yard that has `before` lines already."""
    file = folder / ".beads" / "queen_messages.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(_LINE.format(number=number) for number in range(before)))
    script = Path(sys.executable).with_name("queueyard")
    command = [
        str(script),
        "pipeline",
        "run",
        "--watch",
        "--json",
        "--yard",
        str(folder),
        "--home",
        str(folder / "home"),
    ]
    with (folder / "told").open("wb") as told, subprocess.Popen(command, stdout=told, stderr=told) as process:
        try:
            # Only once everything has been built for the first time: a watch starts once, and goes on for days.
            _wait_for(process, folder / "told", '"gold": 0')
            appended = [_append(file, _LINE.format(number=before + number)) for number in range(lines)]
            _wait_until_read(process, folder / "home", file)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    commits = sorted(_commits(folder / "home" / "bronze" / "lines" / "_delta_log", str(file)))
    return [next(at for at, offset in commits if offset >= end) - begun for begun, end in appended]


def _append(file: Path, line: str) -> tuple[float, int]:
    """(when, the length of the file behind it)."""
    time.sleep(_PAUSE_S)
    with file.open("a") as stream:
        begun = time.time()
        stream.write(line)
        stream.flush()
        return begun, stream.tell()


def _commits(log: Path, file: str) -> Iterator[tuple[float, int]]:
    """(when, how far the file was read) of every commit."""
    for version in log.glob("*.json"):
        actions = map(json.loads, version.read_text().splitlines())
        told = next(action["commitInfo"]["queueyard"] for action in actions if "commitInfo" in action)
        yield version.stat().st_mtime, json.loads(told)["note"]["lines"][file]["offset"]


def _wait_for(process: subprocess.Popen[bytes], told: Path, sign: str) -> None:
    end = time.monotonic() + _LONGEST_S
    while sign not in told.read_text():
        if process.poll() is not None or time.monotonic() > end:
            sys.exit(f"the watch did not come to {sign}: {told.read_text()[-500:]}")
        time.sleep(0.1)


def _wait_until_read(process: subprocess.Popen[bytes], home: Path, file: Path) -> None:
    log = DeltaLog(f"{home}/bronze/lines")
    end = time.monotonic() + _LONGEST_S
    while log.note()["lines"][str(file)]["offset"] < file.stat().st_size:
        if process.poll() is not None or time.monotonic() > end:
            sys.exit("the watch did not read all lines")
        time.sleep(0.5)
