"""Each candidate in a process of its own, and the memory of all that it starts."""

from __future__ import annotations

from contextlib import suppress
import json
import os
from pathlib import Path
import re
import signal
import subprocess
import sys
import tempfile
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

PACKAGES = ("duckdb==2.0.0", "polars==2.1.0", "orjson==3.13.0")
_HERE = Path(__file__).parent
#: looking takes some milliseconds per gigabyte, which the process that is looked at pays
_PAUSE_S = 0.5


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one process said of itself, and what it needed."""

    said: dict[str, Any]
    peak_bytes: int

    @property
    def seconds(self) -> float:
        return float(self.said["seconds"])


def peers_python(folder: Path) -> Path:
    """An environment with the other engines, made once."""
    python = folder / "venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]
        subprocess.run(pip, check=True, stderr=subprocess.DEVNULL)
    return python


def engine(python: Path, name: str, source: Path, target: Path) -> Measured:
    return measured(str(python), str(_HERE / "engines.py"), name, str(source), str(target))


def spark(role: str, *words: object, cache: Path) -> Measured:
    """With this folder as the user's cache, where classes of Spark may be kept."""
    command = (sys.executable, str(_HERE / "spark_roles.py"), role, *map(str, words))
    return measured(*command, environment=os.environ | {"XDG_CACHE_HOME": str(cache)})


def measured(*command: str, environment: Mapping[str, str] | None = None) -> Measured:
    """Run it to its end; the last line that it prints is JSON."""
    with tempfile.TemporaryFile("w+") as noise:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=noise, text=True, start_new_session=True, env=environment
        )
        memory = _Memory(process.pid)
        memory.start()
        try:
            told, _ = process.communicate()
        finally:
            memory.finish()
            with suppress(ProcessLookupError):
                # It has a session of its own, so whoever interrupts the bench does not reach it.
                os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            noise.seek(0)
            sys.exit(f"failed: {' '.join(command)}\n{noise.read()[-4000:]}")
    return Measured(said=json.loads(told.splitlines()[-1]), peak_bytes=memory.peak_bytes)


class _Memory(Thread):
    """The most memory that a session of processes had at one time; what they share is counted once."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._session = session
        self._is_over = Event()

    def run(self) -> None:
        is_over = False
        while not is_over:
            self.peak_bytes = max(self.peak_bytes, sum(map(_bytes_of, self._members())))
            is_over = self._is_over.wait(_PAUSE_S)

    def finish(self) -> None:
        self._is_over.set()
        self.join()

    def _members(self) -> list[Path]:
        found = [(process, *_kin_of(process)) for process in Path("/proc").glob("[0-9]*")]
        return [
            process
            for process, parent, session in found
            if session == self._session and not _is_about_to_start(process, parent)
        ]


def _kin_of(process: Path) -> tuple[str, int | None]:
    """Its parent and its session."""
    with suppress(OSError):
        # Behind the name, which may hold anything: state, parent, group, session.
        _, parent, _, session, *_ = (process / "stat").read_text().rpartition(")")[2].split()
        return parent, int(session)
    return "", None


def _is_about_to_start(process: Path, parent: str) -> bool:
    """Whether Java has just made it to start a program: until then it has all of Java's memory, which counts once."""
    with suppress(OSError):
        program = (process / "exe").readlink()
        return program.name == "java" and program == (process.parent / parent / "exe").readlink()
    return False


def _bytes_of(process: Path) -> int:
    with suppress(OSError):
        # Proportional: a page that several processes have is divided among them.
        found = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) << 10 if found else 0
    return 0
