"""What every command of `jjq` shares: the common options, the repository, and how things are said.

Informational messages start with `jjq: ` (spec: Common Behaviors). Imports of anything but click happen when a command
runs, so that help stays fast.
"""

from __future__ import annotations

from functools import cached_property, update_wrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any
import unicodedata

import click

from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.jjq.service import Jjq

_COMMON = (
    click.option(
        "-R",
        "--repository",
        type=click.Path(path_type=Path, exists=True, file_okay=False),
        metavar="DIR",
        help="The repository to work on; default: the one around the current folder.",
    ),
    click.option("--no-wait", is_flag=True, help="Refuse at once where another process holds a lock."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


class Call:
    """One call of one command: where, and how to print."""

    def __init__(self, *, repository: Path | None, wait: bool, as_json: bool) -> None:
        self.repository = repository
        self.wait = wait
        self.as_json = as_json
        self.out = Output(as_json=as_json)

    @cached_property
    def jjq(self) -> Jjq:
        from queueyard.jjq.service import Jjq  # noqa: PLC0415

        return Jjq.open(self.repository, note=self.note, wait=self.wait)

    def say(self, text: str) -> None:
        """An informational message, on stdout; not among JSON."""
        if not self.as_json:
            self.out.text(f"jjq: {plain(text)}")

    def note(self, text: str) -> None:
        """Talk beside the answer, on stderr."""
        self.out.note(f"jjq: {plain(text)}")

    def show(self, value: Any, text: str) -> None:
        """One answer: the whole of it as JSON, or one message."""
        from queueyard.jjq.records import to_raw  # noqa: PLC0415

        self.out.data(to_raw(value)) if self.as_json else self.say(text)

    def ago(self, moment: str) -> str:
        """The distance to now, for people: 5m, 2h 3m; `?` for a time that cannot be read."""
        from queueyard.kernel.clock import SYSTEM_CLOCK, BadTime, format_duration, from_rfc3339  # noqa: PLC0415

        try:
            return format_duration(abs(SYSTEM_CLOCK.now() - from_rfc3339(moment)))
        except BadTime:
            return "?"


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument; a flag before the command counts too."""

    @click.pass_context
    def run(
        ctx: click.Context, /, *args: Any, repository: Path | None, no_wait: bool, as_json: bool, **options: Any
    ) -> None:
        above: dict[str, Any] = ctx.obj or {}
        call = Call(
            repository=repository or above.get("repository"),
            wait=not (no_wait or above.get("no_wait")),
            as_json=as_json or bool(above.get("as_json")),
        )
        function(call, *args, **options)

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


def common_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same options on the script itself: `jjq --json status`."""
    for option in reversed(_COMMON):
        function = option(function)
    return function


def plain(text: str) -> str:
    """Without control characters: escape sequences in somebody's description must not reach the terminal."""
    return "".join(" " if unicodedata.category(character) in {"Cc", "Cs"} else character for character in text)


def seconds(text: str | None) -> float | None:
    """A duration as people write it, in seconds. BadTime for anything else."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    return None if text is None else parse_duration(text).total_seconds()
