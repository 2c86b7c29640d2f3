"""`queueyard doctor` and `queueyard demo`: what is in the yard, and a tour of it."""

from __future__ import annotations

import click

from queueyard.console import examples, json_option
from queueyard.kernel.output import Output


@click.command(epilog=examples("queueyard doctor", "queueyard doctor --json"))
@json_option
def doctor(as_json: bool) -> None:
    """Say which real parts this machine has: version, place, and what to type where one is missing.

    Exit code 0 even if parts are missing: each system says by itself what it cannot do without.
    """
    from dataclasses import asdict  # noqa: PLC0415

    from queueyard.yard.parts import find_parts  # noqa: PLC0415

    out = Output(as_json=as_json)
    parts = find_parts()
    if as_json:
        out.data([{**asdict(part), "found": part.found} for part in parts])
        return
    out.table(
        ("PART", "VERSION", "WHERE", "NEEDED BY"),
        [(part.name, part.version if part.found else "missing", part.where, part.needed_by) for part in parts],
    )
    for part in parts:
        if part.note:
            out.note(f"{part.name}: {part.note}")
        if part.next_command:
            out.note(f"-> {part.name}: {part.next_command}")


@click.command(epilog=examples("queueyard demo", "queueyard demo --keep", "queueyard demo --scene queen --scene jjq"))
@click.option("--keep", is_flag=True, help="Leave the yard behind, to look around in it.")
@click.option("--scene", "only", multiple=True, metavar="NAME", help="Only this one; may be given several times.")
def demo(keep: bool, only: tuple[str, ...]) -> None:
    """Show every system at work in a throw-away yard. Exit code 0 only if every step did what it says.

    The scenes: queen, runforge, panqueue, jjq, ops, yard, pipeline, dashboard. One whose parts are not on this machine
    is skipped. The pipeline leaves a report with pictures in ./queueyard-report.
    """
    from queueyard.yard.demo import run_demo  # noqa: PLC0415
    from queueyard.yard.scenes import SCENES  # noqa: PLC0415

    if unknown := set(only) - set(SCENES):
        raise click.UsageError(f"No such scene: {min(unknown)}. There are: {', '.join(SCENES)}.")
    run_demo(Output(), keep=keep, only=only)
