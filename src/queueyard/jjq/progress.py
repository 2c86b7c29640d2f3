"""How a run looks: a spinner with elapsed time on a terminal, plain lines now and then where there is none.

On a terminal the key `v` turns the output of the running checks on and off.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import os
import select
import shutil
import sys
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from queueyard.jjq.calls import Call
    from queueyard.jjq.checks import Check
    from queueyard.jjq.records import Merge, Outcome

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_REDRAW_S = 0.1
_CLEAR = "\r\x1b[2K"


class Progress:
    """Tells a person, or a log file, how a run goes. It is the `Reporter` of the command line."""

    def __init__(self, call: Call, *, trunk: str, heartbeat_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._call = call
        self._trunk = trunk
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._on_terminal = sys.stderr.isatty() and not call.as_json
        self._drawn = False
        self._next_draw = 0.0
        self._next_beat = clock.monotonic() + heartbeat_s
        self._verbose = False
        self._shown: dict[Path, int] = {}
        self._is_idle = False

    # --- what a run tells --------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self._wipe()
        self._call.note(text)

    def started(self, merge: Merge) -> None:
        self._is_idle = False
        self._next_beat = self._clock.monotonic() + self._heartbeat_s
        if not self._on_terminal:
            self._wipe()
            self._call.say(f"checking {merge.id} ({_named(merge)}) merged with {self._trunk}")

    def waiting(self, checks: Sequence[Check]) -> None:
        now = self._clock.monotonic()
        if not checks:
            self._idle()
        elif self._on_terminal:
            self._look_at_keys()
            if self._verbose:
                self._show_output(checks)
            elif now >= self._next_draw:
                self._next_draw = now + _REDRAW_S
                self._draw(checks, now)
        elif now >= self._next_beat:
            self._next_beat = now + self._heartbeat_s
            self._call.note("still checking " + _ages(checks))

    def landed(self, outcome: Outcome) -> None:
        self._wipe()
        check = outcome.check
        how = ""
        if check is not None:
            how = ", check reused" if check.reused else f", check {check.duration_ms / 1000:.1f} s"
            how += f" in {check.tries} tries" if check.tries > 1 else ""
        self._call.say(f"merged {outcome.id} to {self._trunk} ({(outcome.merge_commit_id or '')[:12]}{how})")

    def failed(self, outcome: Outcome, output: str) -> None:
        self._wipe()
        if output.strip():
            self._call.out.note(output.rstrip("\n"))
        if self._call.as_json:
            return
        from queueyard.jjq.advice import failure_lines  # noqa: PLC0415

        for line in failure_lines(outcome, self._trunk):
            self._call.note(line)

    def done(self) -> None:
        """Nothing more will come."""
        self._wipe()

    # --- drawing -----------------------------------------------------------------------------------------------------

    def _idle(self) -> None:
        if not self._is_idle:
            self._is_idle = True
            self._wipe()
            self._call.note("waiting for pushes; Ctrl-C ends")

    def _draw(self, checks: Sequence[Check], now: float) -> None:
        frame = _FRAMES[int(now * 10) % len(_FRAMES)]
        width = shutil.get_terminal_size().columns
        line = f"{frame} checking {_ages(checks)}   (v: output)"
        sys.stderr.write(_CLEAR + line[: width - 1])
        sys.stderr.flush()
        self._drawn = True

    def _wipe(self) -> None:
        if self._drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._drawn = False

    def _look_at_keys(self) -> None:
        if not sys.stdin.isatty() or not select.select([sys.stdin], [], [], 0)[0]:
            return
        with suppress(OSError):
            if b"v" in os.read(sys.stdin.fileno(), 64):
                self._verbose = not self._verbose
                self._wipe()

    def _show_output(self, checks: Sequence[Check]) -> None:
        for check in checks:
            with suppress(OSError), check.log.open("rb") as stream:
                stream.seek(self._shown.get(check.log, check.output_from))
                new = stream.read()
                self._shown[check.log] = stream.tell()
                if new:
                    sys.stderr.write(new.decode(errors="replace"))
                    sys.stderr.flush()


@contextmanager
def listening_keys() -> Iterator[None]:
    """Single keys arrive without Enter while the block runs, where there is a keyboard."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        yield
        return
    import termios  # noqa: PLC0415  only on a terminal
    import tty  # noqa: PLC0415

    descriptor = sys.stdin.fileno()
    try:
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            yield  # in the background: the keyboard belongs to somebody else
            return
        before = termios.tcgetattr(descriptor)
    except (OSError, termios.error):
        yield
        return
    tty.setcbreak(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _ages(checks: Sequence[Check]) -> str:
    return ", ".join(f"{check.merge.id} ({check.elapsed_s:.0f} s)" for check in checks)


def _named(merge: Merge) -> str:
    return f"{merge.candidate.short} {merge.candidate.subject}".strip()
