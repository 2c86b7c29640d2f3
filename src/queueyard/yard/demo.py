"""`queueyard demo`: the systems at work in a throw-away yard, through their real commands.

Each scene types commands as a person would and says what must come of them. A command that does something else ends
the demo with exit code 1; the yard then stays where it is, to be looked at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
import shlex
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.proc import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from queueyard.kernel.output import Output

_COMMAND_TIMEOUT_S = 60
_MODULES = {"queen": "queueyard.queen.cli"}

_ISSUES = (
    {"id": "qy-1", "title": "Button component", "priority": 1, "created_at": "2026-01-05T09:00:00Z"},
    {"id": "qy-2", "title": "Login endpoint", "priority": 2, "created_at": "2026-01-06T09:00:00Z"},
    {
        "id": "qy-3",
        "title": "Docs of both",
        "priority": 2,
        "created_at": "2026-01-07T09:00:00Z",
        "dependencies": [{"depends_on_id": "qy-1", "type": "blocks"}],
    },
)


class DemoFailed(QueueyardError):
    """A command of the demo did not do what it should."""


class Stage:
    """A folder to play in, and the commands that are typed there."""

    def __init__(self, folder: Path, out: Output) -> None:
        self.folder = folder
        self._out = out

    def say(self, sentence: str) -> None:
        self._out.text(f"\n{self._out.style('# ' + sentence, 'cyan')}")

    def type(self, command: str, *, who: str | None = None, expect: int = 0, contains: str = "") -> str:
        """Run one of our scripts; DemoFailed unless it exits with `expect` and says `contains`."""
        script, *arguments = shlex.split(command)
        self._out.text(f"{self._out.style((who or 'you') + ' $', 'bold')} {command}")
        done = subprocess.run(
            [sys.executable, "-m", _MODULES[script], *arguments],
            cwd=self.folder,
            env=_environment(who),
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        said = done.stdout + done.stderr
        for line in said.splitlines():
            self._out.text(f"    {line}")
        if done.returncode != expect or contains not in said:
            raise DemoFailed(
                f"{command!r} ended with {done.returncode} instead of {expect}, or did not say {contains!r}",
                hint=f"Look around: cd {self.folder}",
            )
        return said


def run_demo(out: Output, *, keep: bool) -> None:
    """Every scene in order. DemoFailed, and the yard stays, if one goes wrong."""
    folder = Path(tempfile.mkdtemp(prefix="queueyard-demo-"))
    stage = Stage(folder, out)
    scenes: Mapping[str, Callable[[Stage], None]] = {"queen": _queen}
    for system, scene in scenes.items():
        out.text(out.style(f"\n== {system} ==", "bold"))
        scene(stage)
    out.text(out.style("\n== done ==", "bold"))
    out.text(f"{len(scenes)} of 5 systems shown; the scenes of the others are still to be written.")
    if keep:
        out.text(f"The yard is yours: cd {folder} && queen --agent ana watch")
    else:
        shutil.rmtree(folder)


def _queen(stage: Stage) -> None:
    (stage.folder / ".beads").mkdir()
    lines = [json.dumps({"status": "open", "issue_type": "task", **issue}) + "\n" for issue in _ISSUES]
    (stage.folder / ".beads" / "issues.jsonl").write_text("".join(lines), encoding="utf-8")
    droids = stage.folder / ".factory" / "droids"
    droids.mkdir(parents=True)
    for name in ("ana", "ben", "cleo"):
        (droids / f"{name}.md").write_text(f"# {name}\n", encoding="utf-8")
    stage.say("Three agents ask for work; no two get the same issue, and a blocked one is not handed out.")
    stage.type("queen next", who="ana", contains="qy-1")
    stage.type("queen next", who="ben", contains="qy-2")
    stage.type("queen next", who="cleo", expect=1, contains="Nothing is ready")
    stage.say("Ana reserves the files that she will edit.")
    stage.type("queen reserve 'src/ui/**' --ttl 45m --issue qy-1 -r 'Button component'", who="ana")
    stage.say("Ben wants a wildcard that meets hers; he is told who, what and why, and nothing is reserved for him.")
    stage.type("queen reserve 'src/*/theme.css' 'src/api/**'", who="ben", expect=1, contains="ana holds src/ui/**")
    stage.type("queen check src/ui/button.tsx src/api/login.py", who="ben", expect=1, contains="held")
    stage.type("queen msg send ana 'May I touch src/ui/theme.css?' --issue qy-2", who="ben")
    stage.say("Ana reads it, answers, and gives the files back.")
    stage.type("queen msg inbox --mark", who="ana", contains="May I touch")
    stage.type("queen unreserve --all", who="ana")
    stage.type("queen msg send ben 'They are free now' --issue qy-2", who="ana")
    stage.type("queen reserve 'src/*/theme.css' 'src/api/**'", who="ben")
    stage.type("queen msg thread qy-2", contains="qm-")
    stage.type("queen complete qy-1 -r 'merged'", who="ana", contains="completed")
    stage.type("queen assignments --status all", contains="qy-1")
    stage.type("queen doctor", contains="Everything is well")


def _environment(who: str | None) -> dict[str, str]:
    outside = {
        name: value for name, value in os.environ.items() if not name.startswith(("QUEEN_", "BEADS_", "FACTORY_"))
    }
    return without_secrets(outside) | ({"QUEEN_AGENT": who} if who else {})
