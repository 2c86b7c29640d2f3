"""`queueyard bridge`: what one system calls of another. People name these in settings; they hardly type them."""

from __future__ import annotations

import os
import sys

import click

from queueyard.console import Script, examples


@click.group(
    cls=Script,
    epilog=examples(
        "runforge-cli daemon --executor panqueue",
        "export JJQ_AFTER_ITEM='queueyard bridge notify'",
        "export JJQ_BEFORE_PUSH='queueyard bridge guard'",
    ),
)
def bridge() -> None:
    """Commands that systems start, so that they work together. All of them are off unless they are asked for."""


@bridge.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", type=click.Choice(["panqueue"]))
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
def executor(name: str, words: tuple[str, ...]) -> None:
    """Have the program WORDS of a run executed by a worker of panqueue; end as it does.

    Started by `runforge-cli daemon --executor panqueue`.
    """
    del name  # there is one
    from queueyard.yard.bridges.executor import carry, leave_with  # noqa: PLC0415

    leave_with(carry(words, os.environ))


@bridge.command()
def notify() -> None:
    """Tell an agent through queen how its change ended; the event of the item comes on stdin.

    Set JJQ_AFTER_ITEM='queueyard bridge notify' where `jjq run` is started. The agent is whoever has, or last had, the
    issue that the description of the change names.
    """
    from queueyard.yard.bridges.notify import tell  # noqa: PLC0415

    for message in tell(sys.stdin.buffer.read()):
        click.echo(f"{message.id} sent to {message.to}")


@bridge.command()
def guard() -> None:
    """Refuse a push, by exit code 1, unless the agent has reserved every file that the change touches.

    Set JJQ_BEFORE_PUSH='queueyard bridge guard' where `jjq push` is typed.
    """
    from queueyard.yard.bridges.guard import check  # noqa: PLC0415

    check(os.environ)
