"""Commands of the caller that are asked before an item is queued, and told how it ended. Off unless they are set.

They come from the caller's own environment (JJQ_BEFORE_PUSH, JJQ_AFTER_ITEM), never from the repository: nobody runs
what somebody else has written down there. They are started without a shell.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import msgspec

from queueyard.jjq.errors import PushRefused
from queueyard.jjq.events import ENDS
from queueyard.kernel.events import Event, Journal, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from queueyard.jjq.records import Commit

#: a hook that takes longer has failed
LONGEST_S = 60.0
_TOLD = ENDS - {Kind.CANCELED}


def ask_before_push(command: str, candidate: Commit, *, cwd: Path, environment: Mapping[str, str]) -> None:
    """PushRefused, with what the command said, unless it ends with 0."""
    told = {"JJQ_COMMIT": candidate.commit_id, "JJQ_CHANGE": candidate.change_id, "JJQ_SUBJECT": candidate.subject}
    code, said = _run(command, b"", cwd=cwd, environment=dict(environment) | told)
    if code:
        why = said.removeprefix("Error: ") or f"{command!r} ended with {code}"
        raise PushRefused(f"not queued: {why}", hint="It was asked because of JJQ_BEFORE_PUSH.")


class TellingJournal(Journal):
    """A journal that also tells a command about each item that landed or failed."""

    def __init__(
        self, path: Path, command: str, *, cwd: Path, environment: Mapping[str, str], note: Callable[[str], None]
    ) -> None:
        super().__init__(path, complain=note)
        self._command = command
        self._cwd = cwd
        self._environment = environment
        self._note = note

    def append(self, *events: Event) -> None:
        """The item is where it is, whatever the command makes of the news."""
        super().append(*events)
        for event in events:
            if event.kind in _TOLD:
                news = msgspec.json.encode(event)
                code, said = _run(self._command, news, cwd=self._cwd, environment=self._environment)
                if code:
                    self._note(f"nobody was told about item {int(event.item)}: {said or f'exit code {code}'}")


def _run(command: str, stdin: bytes, *, cwd: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code, and what it said on stderr."""
    import subprocess  # noqa: PLC0415  only for those who set a hook

    try:
        done = subprocess.run(
            shlex.split(command),
            input=stdin,
            cwd=cwd,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LONGEST_S,
            check=False,
        )
    except (OSError, ValueError) as fault:
        return 127, f"{command!r} cannot be started: {fault}"
    except subprocess.TimeoutExpired:
        return 124, f"{command!r} took longer than {LONGEST_S:g} s"
    return done.returncode, done.stderr.decode(errors="replace").strip()
