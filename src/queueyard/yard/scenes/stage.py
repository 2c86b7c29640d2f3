"""A folder to play in: types commands as a person would, and ends every process that it started."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.proc import Child, start, without_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.kernel.output import Output

_COMMAND_TIMEOUT_S = 120
_STOP_GRACE_S = 20.0
_MODULES = {
    "queen": "queueyard.queen.cli",
    "runforge-cli": "queueyard.runforge.cli",
    "panqueue": "queueyard.panqueue.cli",
    "jjq": "queueyard.jjq.cli",
    "jolli-ops": "queueyard.ops.cli",
}
#: settings of the person who looks on would change what the scenes do
_SETTINGS_OF_SYSTEMS = ("QUEEN_", "BEADS_", "FACTORY_", "RUNFORGE_", "PANQUEUE_", "REDIS_", "JJ_", "JOLLI_")


class DemoFailed(QueueyardError):
    """A step of the demo did not do what it should."""


class PartMissing(QueueyardError):
    """A scene cannot be shown on this machine; the others can."""


class Stage:
    """One folder, the commands that are typed there, and the processes that run meanwhile."""

    def __init__(self, folder: Path, out: Output) -> None:
        self.folder = folder
        self.out = out
        self._children: list[Child] = []

    def say(self, sentence: str) -> None:
        self.out.text(f"\n{self.out.style('# ' + sentence, 'cyan')}")

    def type(
        self, command: str, *, where: str = ".", who: str | None = None, expect: int = 0, contains: str = ""
    ) -> str:
        """Run one of our scripts, or jj; DemoFailed unless it exits with `expect` and says `contains`."""
        self.out.text(f"{self.out.style((who or 'you') + ' $', 'bold')} {command}")
        done = subprocess.run(
            _words(command),
            cwd=self.folder / where,
            env=self.environment(who),
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        for line in said.splitlines():
            self.out.text(f"    {line}")
        self.expect(
            done.returncode == expect and contains in said,
            f"{command!r} ended with {done.returncode} instead of {expect}, or did not say {contains!r}",
        )
        return said

    def expect(self, truth: bool, otherwise: str) -> None:
        """DemoFailed with the sentence if something is not so."""
        if not truth:
            raise DemoFailed(otherwise, hint=f"Look around: cd {self.folder}")

    def start(self, command: str, *, where: str = ".", log: str) -> Child:
        """Run one of our scripts beside what follows; what it says goes to the log."""
        self.out.text(f"{self.out.style('you $', 'bold')} {command} &")
        with (self.folder / where / log).open("wb") as stream:
            child = start(
                _words(command), cwd=self.folder / where, env=self.environment(None), stdout=stream, stderr=stream
            )
        self._children.append(child)
        return child

    def close(self) -> None:
        """End whatever still runs."""
        for child in self._children:
            child.stop(grace_s=_STOP_GRACE_S)

    def environment(self, who: str | None) -> dict[str, str]:
        outside = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS_OF_SYSTEMS)}
        own = {
            "JJ_CONFIG": str(self.folder / "jj.toml"),
            "JOLLI_HOME": str(self.folder / "jolli"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        return without_secrets(outside) | own | ({"QUEEN_AGENT": who} if who else {})


def _words(command: str) -> list[str]:
    script, *arguments = shlex.split(command)
    if script in _MODULES:
        return [sys.executable, "-m", _MODULES[script], *arguments]
    program = shutil.which(script)
    if program is None:
        raise PartMissing(f"{script} is not on this machine", hint="What is here and what is not: queueyard doctor")
    return [program, *arguments]
