"""`jjq config`, `clean`, `init` and `doctor`: keeping house, on the command line."""

from __future__ import annotations

import click

from queueyard.console import examples, tell_findings
from queueyard.jjq.calls import Call, common


@click.command(epilog=examples("jjq config", "jjq config trunk_bookmark", "jjq config check_command 'make test'"))
@click.argument("key", required=False)
@click.argument("value", required=False)
@common
def config(call: Call, key: str | None, value: str | None) -> None:
    """Show all values, show one value, or set one.

    Keys: trunk_bookmark, check_command, max_failures, queueyard.check_timeout_s, queueyard.flaky_retries,
    queueyard.reuse_checks, queueyard.keep_environment.
    """
    if key is None:
        values = call.jjq.config()
        if call.as_json:
            call.out.data(values)
        else:
            for name, text in values.items():
                call.out.text(f"{name} = {text}")
    elif value is None:
        found = call.jjq.get_config(key)
        call.out.data(found) if call.as_json else call.out.text(found)
    else:
        stored = call.jjq.set_config(key, value)
        call.out.data({key: stored}) if call.as_json else call.say(f"{key} = {stored}")


@click.command(epilog=examples("jjq clean", "jjq clean 7", "jjq clean --dry-run"))
@click.argument("identifiers", metavar="[ID]...", nargs=-1)
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@common
def clean(call: Call, identifiers: tuple[str, ...], dry_run: bool) -> None:
    """Remove the workspaces that failed items left behind, and revisions of ours that nothing refers to.

    Failed items stay in the list of failed items. Workspaces of a run that is under way are left alone.
    """
    found = call.jjq.clean(identifiers, dry_run=dry_run)
    if call.as_json:
        call.out.data([{"name": one.name, "path": one.path or None} for one in found])
        return
    for one in found:
        call.say(f"{'would remove' if dry_run else 'removed'} {one.name}  {one.path}".rstrip())
    if not found:
        call.say("nothing to clean")


@click.command(epilog=examples("jjq init --trunk main --check 'make test'", "jjq init --hide"))
@click.option("--trunk", metavar="BOOKMARK", help="The bookmark to land on; it must exist.")
@click.option("--check", metavar="COMMAND", help="The command that decides whether a merge may land.")
@click.option("--hide", is_flag=True, help="Leave jjq's metadata revision out of jj's default log.")
@common
def init(call: Call, trunk: str | None, check: str | None, hide: bool) -> None:
    """Set up what would otherwise come by itself at the first push. Doing it again changes only what is named."""
    made = call.jjq.init(trunk=trunk, check=check, hide=hide)
    if call.as_json:
        call.out.data({"initialized": True, "made": made, "config": call.jjq.config()})
        return
    call.say("initialized" if made else "already initialized")
    if check is None and call.jjq.get_config("check_command") == "sh -c 'exit 1'":
        call.note("no check command is set, so nothing can land yet: jjq config check_command 'make test'")


@click.command(epilog=examples("jjq doctor", "jjq doctor --fix", "jjq doctor --json"))
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@common
def doctor(call: Call, fix: bool) -> None:
    """Look for everything that may be wrong with the queue. Exit code 1 if something is and was not mended."""
    from queueyard.jjq.doctor import examine  # noqa: PLC0415

    tell_findings(call.out, examine(call.jjq.store, fix=fix), note=call.note)
