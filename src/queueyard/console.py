"""What every console script shares: how it loads, how it fails, how its help looks.

The kernel may not know click, so this stands beside it. A `Script` turns a QueueyardError into `Error:` and `Hint:`
on stderr and its exit code; with `--json` the same as one JSON object. Without a command it shows its usage on stderr
and exits 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import difflib
from importlib import import_module
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from queueyard import __version__
from queueyard.kernel.errors import QueueyardError

if TYPE_CHECKING:
    from queueyard.kernel.findings import Finding
    from queueyard.kernel.output import Output

_F = TypeVar("_F", bound=Callable[..., Any])

#: every command that prints has it
json_option: Callable[[_F], _F] = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


def examples(*lines: str) -> str:
    """The end of a help text: commands to copy, one per line, never re-wrapped."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class Script(click.Group):
    """A console script, or a group of commands within one."""

    def __init__(self, *args: Any, later: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        """`later`: command -> ("module:attribute", one line of help); imported only when that command is called."""
        super().__init__(*args, **kwargs)
        self._later = later or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self._later]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._later:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._later[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Click would import every command to ask for its help line.
        rows = [(name, self._help_line(ctx, name, formatter.width - 20)) for name in self.list_commands(ctx)]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        try:
            return super().main(words, *rest, **kwargs)
        except QueueyardError as fault:
            fail(fault, as_json="--json" in words)

    def _help_line(self, ctx: click.Context, name: str, room: int) -> str:
        if name in self._later:
            return self._later[name][1]
        command = self.get_command(ctx, name)
        return command.get_short_help_str(room) if command else ""


def fail(fault: QueueyardError, *, as_json: bool) -> NoReturn:
    """Tell what went wrong and what to type next, then leave with the error's exit code."""
    if as_json:
        import msgspec  # noqa: PLC0415  most commands succeed

        told = {"error": str(fault), "kind": type(fault).__name__, "hint": fault.hint, "exit_code": fault.exit_code}
        click.echo(msgspec.json.encode(told | fault.facts()), err=True)
    else:
        # Click knows whether stderr is a terminal, but not NO_COLOR.
        colour = False if os.environ.get("NO_COLOR") else None
        click.echo(f"{click.style('Error:', fg='red')} {fault}", err=True, color=colour)
        if fault.hint:
            click.echo(f"{click.style('Hint:', fg='cyan')} {fault.hint}", err=True, color=colour)
    sys.exit(fault.exit_code)


def tell_findings(out: Output, found: Sequence[Finding], note: Callable[[str], None] | None = None) -> None:
    """What a doctor found, with what to do about it; leaves with exit code 1 if something was not mended.

    `note` talks where a script has a way of its own.
    """
    say = note or out.note
    unmended = [one for one in found if not one.fixed]
    if out.as_json:
        out.data(found)
    elif found:
        rows = [("fixed" if one.fixed else "found", one.check, one.problem) for one in found]
        out.table(("", "CHECK", "PROBLEM"), rows)
        for one in unmended:
            say(f"-> {one.check}: {one.advice}")
    else:
        say("Everything is well.")
    if unmended:
        raise click.exceptions.Exit(1)


def version_option(script: str) -> Callable[[_F], _F]:
    return click.version_option(__version__, prog_name=script)
