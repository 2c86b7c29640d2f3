"""A change may be pushed only by who has reserved, exclusively, every file that it touches."""

from __future__ import annotations

from pathlib import Path
import subprocess
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.queen.service import Queen

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 5
_JJ_TIMEOUT_S = 30.0


class NotReserved(QueueyardError):
    """A change touches files that the agent has not reserved."""


def check(environment: Mapping[str, str]) -> None:
    """NotReserved names the files; NoIdentity if nobody said which agent pushes."""
    commit = environment.get("JJQ_COMMIT")
    if not commit:
        raise QueueyardError(
            "this is started by jjq, which sets JJQ_COMMIT", hint="Set: export JJQ_BEFORE_PUSH='queueyard bridge guard'"
        )
    with Queen.open(Path.cwd(), environment=environment) as queen:
        agent = queen.agent
        missing = [
            path
            for path in _touched(commit)
            if not any(one.exclusive for one in queen.reserved(agent=agent, path=path))
        ]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise NotReserved(
            f"{agent} has not reserved {', '.join(missing[:_SHOWN])}{more}",
            hint=f"Reserve them: queen reserve {' '.join(missing[:_SHOWN])}",
        )


def _touched(commit: str) -> list[str]:
    """The files of a change, as seen from the root of the repository."""
    done = subprocess.run(
        ["jj", "--ignore-working-copy", "--color=never", "diff", "--name-only", "-r", commit],
        capture_output=True,
        text=True,
        timeout=_JJ_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise QueueyardError(f"jj cannot tell what {commit[:12]} touches: {done.stderr.strip()}", hint="Try: jj status")
    return done.stdout.splitlines()
