"""A folder to play in: types commands as a person would, and ends every process that it started."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
import os
import shlex
import shutil
import sys
import tempfile
from typing import IO, TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.proc import Child, start, without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from queueyard.kernel.output import Output

#: a first Spark session on a busy machine takes its time
_COMMAND_TIMEOUT_S = 600.0
_START_TIMEOUT_S = 30.0
_STOP_GRACE_S = 20.0
_MODULES = {
    "queueyard": "queueyard.cli",
    "queen": "queueyard.queen.cli",
    "runforge-cli": "queueyard.runforge.cli",
    "panqueue": "queueyard.panqueue.cli",
    "jjq": "queueyard.jjq.cli",
    "jolli-ops": "queueyard.ops.cli",
}
#: settings of the person who looks on would change what the scenes do
_SETTINGS_OF_SYSTEMS = (
    "QUEEN_",
    "BEADS_",
    "FACTORY_",
    "RUNFORGE_",
    "PANQUEUE_",
    "REDIS_",
    "JJ_",
    "JJQ_",
    "JOLLI_",
    "QUEUEYARD_",
)


class DemoFailed(QueueyardError):
    """A step of the demo did not do what it should."""


class PartMissing(QueueyardError):
    """A scene cannot be shown on this machine; the others can."""


class Stage:
    """One folder, the commands that are typed there, and the processes that run meanwhile."""

    def __init__(self, folder: Path, out: Output) -> None:
        self.folder = folder
        self.out = out
        #: scenes that were played to their end
        self.shown: list[str] = []
        #: what is there to be looked at when all is over, in sentences
        self.kept: list[str] = []
        self._at_the_end = ExitStack()
        self._holds_back = False
        self._was_interrupted = False
        (folder / "tmp").mkdir()

    def say(self, sentence: str) -> None:
        self.out.text(f"\n{self.out.style('# ' + sentence, 'cyan')}")

    def type(
        self,
        command: str,
        *,
        where: str = ".",
        who: str | None = None,
        expect: int = 0,
        contains: str = "",
        shows_progress: bool = False,
    ) -> str:
        """Run one of our scripts, or jj; DemoFailed unless it exits with `expect` and says `contains`.

        One that shows progress has the terminal for it, if there is one.
        """
        self.out.text(f"{self.out.style((who or 'you') + ' $', 'bold')} {command}")
        with tempfile.TemporaryFile(dir=self.folder / "tmp") as stream:
            bar = sys.stderr.buffer if shows_progress and sys.stderr.isatty() else None
            with ExitStack() as running:
                with self._unbroken():
                    child = self._child(command, where=where, who=who, stream=stream, stderr=bar)
                    running.callback(child.stop, grace_s=_STOP_GRACE_S)
                code = child.wait(_COMMAND_TIMEOUT_S)
            stream.seek(0)
            said = stream.read().decode(errors="replace")
        for line in said.splitlines():
            self.out.text(f"    {line}")
        self.expect(
            code == expect and contains in said,
            f"{command!r} ended with {code} instead of {expect}, or did not say {contains!r}",
        )
        return said

    def expect(self, truth: bool, otherwise: str) -> None:
        """DemoFailed with the sentence if something is not so."""
        if not truth:
            raise DemoFailed(otherwise, hint=f"Look around: cd {self.folder}")

    def start(self, command: str, *, where: str = ".", log: str) -> Child:
        """Run one of our scripts beside what follows, to the end of the demo; what it says goes to the log."""
        self.out.text(f"{self.out.style('you $', 'bold')} {command} &")
        with (self.folder / where / log).open("wb") as stream, self._unbroken():
            child = self._child(command, where=where, who=None, stream=stream)
            self._at_the_end.callback(child.stop, grace_s=_STOP_GRACE_S)
        return child

    def wait_for_line(self, child: Child, log: str, start: str) -> str:
        """The rest of the first line in the log of a child that starts so. DemoFailed if it does not come."""
        deadline = SYSTEM_CLOCK.monotonic() + _START_TIMEOUT_S
        while SYSTEM_CLOCK.monotonic() < deadline and child.returncode is None:
            for line in (self.folder / log).read_text(encoding="utf-8").splitlines():
                if line.startswith(start):
                    return line.removeprefix(start)
            SYSTEM_CLOCK.sleep(0.05)
        raise DemoFailed(f"nothing was said that starts with {start!r}", hint=f"Look: cat {self.folder / log}")

    def keep(self, line: str) -> None:
        """Tell this at the end: what there is to look at."""
        self.kept.append(line)

    def close(self) -> None:
        """End whatever still runs."""
        self._at_the_end.close()

    def interrupt(self, _number: int, _frame: object) -> None:
        """What a signal does: KeyboardInterrupt, at once or as soon as a child that is being started is known."""
        self._was_interrupted = True
        if not self._holds_back:
            raise KeyboardInterrupt

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """A child that was started and is noted nowhere would be ended by nobody."""
        self._holds_back = True
        try:
            yield
        finally:
            self._holds_back = False
        if self._was_interrupted:
            raise KeyboardInterrupt

    def environment(self, who: str | None) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS_OF_SYSTEMS)}
        own = {
            "JJ_CONFIG": str(self.folder / "jj.toml"),
            "JOLLI_HOME": str(self.folder / "jolli"),
            "PANQUEUE_DIR": str(self.folder / "valkey"),
            "TMPDIR": str(self.folder / "tmp"),
            # What draws the pictures keeps fonts and settings at home.
            "MPLCONFIGDIR": str(self.folder / "tmp"),
            "XDG_CACHE_HOME": str(self.folder / "tmp"),
        }
        return without_secrets(outside) | own | ({"QUEEN_AGENT": who} if who else {})

    def _child(
        self, command: str, *, where: str, who: str | None, stream: IO[bytes], stderr: IO[bytes] | None = None
    ) -> Child:
        cwd, env = self.folder / where, self.environment(who)
        return start(_words(command), cwd=cwd, env=env, stdout=stream, stderr=stderr or stream)


def _words(command: str) -> list[str]:
    script, *arguments = shlex.split(command)
    if script in _MODULES:
        return [sys.executable, "-m", _MODULES[script], *arguments]
    program = shutil.which(script)
    if program is None:
        raise PartMissing(f"{script} is not on this machine", hint="What is here and what is not: queueyard doctor")
    return [program, *arguments]
