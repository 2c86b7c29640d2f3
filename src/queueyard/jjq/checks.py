"""Running the check command: by a POSIX shell, in the merged tree, in a process group of its own.

A check never sees secrets from the caller's environment, never outlives its time-out, and leaves nobody of its group
behind. Its output goes to the item's log. Nothing here waits: `poll` is asked until it answers.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, BinaryIO

from queueyard.jjq.records import CheckResult
from queueyard.kernel import proc
from queueyard.kernel.errors import explaining

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.jjq.records import Merge
    from queueyard.kernel.clock import Clock

_GRACE_S = 2.0
_SHOWN_BYTES = 64 * 1024
_END = re.compile(rb"--- jjq: (exit code -?\d+|timed out .*|stopped)")


class Check:
    """One check of one merge, with its flaky retries."""

    def __init__(
        self,
        merge: Merge,
        command: str,
        *,
        folder: Path,
        log: Path,
        clock: Clock,
        timeout_s: float | None = None,
        retries: int = 0,
        keep: tuple[str, ...] = (),
    ) -> None:
        self.merge = merge
        self._command = command
        self._folder = folder
        self.log = log
        self._clock = clock
        self._timeout_s = timeout_s
        self._retries = retries
        self._environment = _environment(merge, keep)
        self._began = clock.monotonic()
        self._tries = 0
        #: where the output of the latest try begins in the log
        self.output_from = 0
        self._child = self._start()

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began

    def poll(self) -> CheckResult | None:
        """How it ended, or None while it runs."""
        code = self._child.returncode
        timed_out = code is None and self._timeout_s is not None and self._try_s >= self._timeout_s
        if code is None and not timed_out:
            return None
        # The shell may be gone while what it started is not.
        stopped = self._child.stop(grace_s=_GRACE_S if timed_out else 0)
        code = stopped if code is None else code
        self._close(f"timed out after {self._timeout_s:g} s" if timed_out else f"exit code {code}")
        if code and not timed_out and self._tries <= self._retries:
            self._child = self._start()
            return None
        return CheckResult(
            passed=code == 0 and not timed_out,
            exit_code=code,
            duration_ms=round(self.elapsed_s * 1000),
            timed_out=timed_out,
            tries=self._tries,
        )

    def stop(self) -> int:
        """End it, whatever it does; the milliseconds that were spent on it."""
        self._child.stop(grace_s=_GRACE_S)
        self._close("stopped")
        return round(self.elapsed_s * 1000)

    @property
    def _try_s(self) -> float:
        return self._clock.monotonic() - self._try_began

    def _start(self) -> proc.Child:
        self._tries += 1
        self._try_began = self._clock.monotonic()
        with explaining("write", self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self._out: BinaryIO = self.log.open("ab", buffering=0)
            merge = self.merge
            again = f", try {self._tries}" if self._tries > 1 else ""
            self._out.write(f"--- jjq: {merge.commit.commit_id[:12]}{again}: {self._command}\n".encode())
            self.output_from = self._out.tell()
            return proc.start(
                ["/bin/sh", "-c", self._command],
                cwd=self._folder,
                env=self._environment,
                stdout=self._out,
                stderr=self._out,
            )

    def _close(self, how: str) -> None:
        if not self._out.closed:
            self._out.write(f"--- jjq: {how}\n".encode())
            self._out.close()


def output_of(log: Path, start: int) -> str:
    """What a try printed, without our own lines; of a long output the end."""
    with explaining("read", log), log.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        first = max(start, size - _SHOWN_BYTES)
        stream.seek(first)
        text = stream.read().decode(errors="replace")
    lines = [line for line in text.splitlines() if not line.startswith("--- jjq: ")]
    return "\n".join(["[...]", *lines[1:]] if first > start else lines)


def has_ended(log: bytes) -> bool:
    """Whether the end of a log says that its check is over."""
    last = log.rstrip(b"\n").rpartition(b"\n")[2]
    return bool(_END.fullmatch(last))


def _environment(merge: Merge, keep: tuple[str, ...]) -> dict[str, str]:
    told = {
        "JJQ_ITEM": str(merge.id),
        "JJQ_MERGE": merge.commit.commit_id,
        "JJQ_BASE": merge.base.commit_id,
        "JJQ_CANDIDATE": merge.candidate.commit_id,
    }
    return proc.without_secrets(os.environ, keep=keep) | told
