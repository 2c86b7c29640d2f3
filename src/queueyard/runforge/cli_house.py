"""`prune`, `config`, `doctor`: keeping house."""

from __future__ import annotations

import click

from queueyard.console import examples, tell_findings
from queueyard.runforge.calls import Call, common, seconds

_STATES = ("succeeded", "failed", "canceled")


@click.command(epilog=examples("runforge-cli prune --older-than 30d --dry-run", "runforge-cli prune --state succeeded"))
@click.option("--older-than", default="7d", show_default=True, metavar="TIME", help="Ended longer ago than this.")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; default: all ended.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@common
def prune(call: Call, older_than: str, states: tuple[str, ...], dry_run: bool) -> None:
    """Take jobs that ended long ago out of the queue. Run folders and groups stay as they are."""
    from queueyard.runforge.records import JobState  # noqa: PLC0415

    gone = call.forge.prune(
        older_than_s=seconds(older_than) or 0.0, states=[JobState(one) for one in states or _STATES], dry_run=dry_run
    )
    verb = "Would prune" if dry_run else "Pruned"
    call.show([job.job_id for job in gone], f"{verb} {len(gone)} jobs")


@click.command(epilog=examples("runforge-cli config", "runforge-cli config --origin"))
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@common
def config(call: Call, origin: bool) -> None:
    """Show all settings. Flags come before RUNFORGE_... variables, those before .runforge/queueyard.toml."""
    import msgspec  # noqa: PLC0415

    values = msgspec.to_builtins(call.forge.settings)
    origins = call.forge.origin
    if call.as_json:
        told = {name: {"value": value, "origin": origins[name]} for name, value in values.items()}
        call.out.data(told if origin else values)
        return
    rows = [(name, value if value != [] else "(not set)", origins[name]) for name, value in values.items()]
    columns = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    call.out.table(columns, [row[: len(columns)] for row in rows])


@click.command(epilog=examples("runforge-cli doctor", "runforge-cli doctor --fix", "runforge-cli doctor --json"))
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@common
def doctor(call: Call, fix: bool) -> None:
    """Look for everything that may be wrong with the files. Exit code 1 if something is and was not mended."""
    from queueyard.runforge.doctor import examine  # noqa: PLC0415

    tell_findings(call.out, examine(call.forge, fix=fix))
