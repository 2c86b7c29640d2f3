"""A run as a process, and its death at places that are told by the files in its home."""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from pipeline import run_driver
from pipeline.histories import BATCH_BYTES
from scripts import clean_environment

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_RUN_S = 600.0
_PAUSE_S = 0.002


class Driver:
    """One run over `folder` into `home`; `url` is a master, or a Connect server."""

    def __init__(self, folder: Path, home: Path, url: str, *, log: Path) -> None:
        self._home = home
        self._log = log
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [sys.executable, run_driver.__file__, str(home), str(folder), str(BATCH_BYTES), url],
                env=clean_environment(log.parent),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=True,
            )

    def kill_at(self, pattern: str, *, more: int = 1) -> None:
        """SIGKILL as soon as `more` files of this pattern are there that were not there before."""
        assert self.is_killed_at(pattern, more=more), f"the run was over before {pattern}:\n{self._told()}"

    def is_killed_at(self, pattern: str, *, more: int = 1) -> bool:
        """The same; False if the run ended well before that."""
        before = self._files(pattern)
        new: set[str] = set()
        end = time.monotonic() + LONGEST_RUN_S
        while len(new) < more:
            if self._process.poll() is not None:
                assert self._process.returncode == 0, self._told()
                return False
            assert time.monotonic() < end, f"no {pattern} in time:\n{self._told()}"
            time.sleep(_PAUSE_S)
            new |= self._files(pattern) - before
        # With its JVM, where it has one: both are the driver.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return True

    def finish(self) -> None:
        """Let it come to its end."""
        assert self._process.wait(timeout=LONGEST_RUN_S) == 0, self._told()

    def _files(self, pattern: str) -> set[str]:
        """Files below the home whose whole path is like the pattern; folders that vanish meanwhile are no fault."""
        found = (os.path.join(folder, name) for folder, _, names in os.walk(self._home) for name in names)  # noqa: PTH118
        return set(fnmatch.filter(found, f"{self._home}/{pattern}"))

    def _told(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]
