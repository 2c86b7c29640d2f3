"""What every command of `runforge-cli` shares: the common options, the workspace, and how things are shown.

Imports of anything but click happen when a command runs, so that help stays fast.
"""

from __future__ import annotations

from functools import cached_property, update_wrapper
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.runforge.service import RunForge

_COMMON = (
    click.option(
        "--workspace",
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="The workspace (else RUNFORGE_WORKSPACE, else the one around the current folder).",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


class Call:
    """One call of one command: where, and how to print."""

    def __init__(self, *, workspace: Path | None, as_json: bool) -> None:
        self.named_workspace = workspace
        self.as_json = as_json
        self.out = Output(as_json=as_json)
        self.flags: dict[str, Any] = {}

    @cached_property
    def forge(self) -> RunForge:
        from queueyard.runforge.service import RunForge  # noqa: PLC0415

        return RunForge.open(self.named_workspace, **self.flags)

    def show(self, value: Any, *lines: str) -> None:
        """The whole of it as JSON, or lines of text."""
        if self.as_json:
            self.out.data(value)
        else:
            for line in lines:
                self.out.text(line)

    def finish(self) -> None:
        """Tell what did not go as it should, and about lines that could not be read, once."""
        if "forge" not in self.__dict__:
            return
        for warning in self.forge.store.warnings:
            self.out.warn(warning)
        if self.forge.bad_lines():
            bad = self.forge.bad_lines()
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            self.out.warn(f"{bad[0]}{more}; see: runforge-cli doctor")


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument."""

    def run(*args: Any, workspace: Path | None, as_json: bool, **options: Any) -> None:
        call = Call(workspace=workspace, as_json=as_json)
        try:
            function(call, *args, **options)
        finally:
            call.finish()

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


def seconds(text: str | None) -> float | None:
    """`90s`, `1h30m`, or a bare number of seconds."""
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return parse_duration(text).total_seconds()


def say(line: str) -> None:
    """A line for whoever reads our stdout, at once; somebody who went away does not stop us."""
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (OSError, ValueError):
        return
