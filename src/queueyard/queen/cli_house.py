"""`queen whoami`, `droids`, `config`, `watch`, `doctor`, `archive`, `index`, `mcp`: keeping house."""

from __future__ import annotations

from typing import Any

import click

from queueyard.console import Script, examples, tell_findings
from queueyard.queen.calls import Call, common, common_before

_ORIGIN = click.option("--origin", is_flag=True, help="Say where each value comes from.")


@click.command()
@common
def whoami(call: Call) -> None:
    """Say who is calling, and where that is written."""
    queen = call.queen
    told = {"agent": queen.agent, "origin": queen.origin["agent"], "beads": str(queen.home.beads)}
    if call.as_json:
        call.out.data(told)
    else:
        call.out.text(f"{told['agent']} ({told['origin']}), in {told['beads']}")


@click.command()
@common
def droids(call: Call) -> None:
    """List the droids of the repository: the files in .factory/droids/."""
    found = call.queen.droids()
    if call.as_json:
        call.out.data(found or [])
    elif found is None:
        call.out.note(f"No {call.queen.home.droids}, so every name is accepted.")
    else:
        for name in found:
            call.out.text(name)


@click.group(
    cls=Script, invoke_without_command=True, epilog=examples("queen config list --origin", "queen config set ttl 45m")
)
@_ORIGIN
@common_before
@click.pass_context
def config(ctx: click.Context, /, origin: bool, **given: Any) -> None:
    """Show and change settings. Flags come before the environment, the environment before the file."""
    ctx.obj = {name: value or (ctx.obj or {}).get(name) for name, value in given.items()}
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_settings, origin=origin)


@config.command("list")
@_ORIGIN
@common
def list_settings(call: Call, origin: bool) -> None:
    """Show all settings."""
    import msgspec  # noqa: PLC0415

    values = msgspec.to_builtins(call.queen.settings)
    origins = call.queen.origin
    if call.as_json:
        told = {name: {"value": value, "origin": origins[name]} for name, value in values.items()}
        call.out.data(told if origin else values)
        return
    rows = [(name, "(not set)" if value is None else value, origins[name]) for name, value in values.items()]
    columns = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    call.out.table(columns, [row[: len(columns)] for row in rows])


@config.command("get")
@click.argument("name")
@common
def get_setting(call: Call, name: str) -> None:
    """Show one setting."""
    from queueyard.queen.settings import check_name  # noqa: PLC0415

    value = getattr(call.queen.settings, check_name(name))
    call.out.data(value) if call.as_json else call.out.text("(not set)" if value is None else str(value))


@config.command("set")
@click.argument("name")
@click.argument("value")
@common
def set_setting(call: Call, name: str, value: str) -> None:
    """Write one setting to .beads/queen_config.yaml."""
    from queueyard.queen.rules import check_agent  # noqa: PLC0415
    from queueyard.queen.settings import check_name, store_setting  # noqa: PLC0415

    if check_name(name) == "agent":
        check_agent(value, call.queen.store.droids())
    path = store_setting(call.queen.home.beads, name, value)
    call.out.data({name: value}) if call.as_json else call.out.text(f"{name} = {value} in {path}")


@click.command(epilog=examples("queen watch", "queen watch --once --json"))
@click.option("-i", "--interval", default="5s", show_default=True, metavar="TIME", help="Redraw at least so often.")
@click.option("--once", is_flag=True, help="Show it once and leave.")
@common
def watch(call: Call, interval: str, once: bool) -> None:
    """Show messages, assignments and reservations as they change. Ctrl-C leaves.

    On a terminal the view is redrawn in place; elsewhere, and with --json, one view follows the other.
    """
    from queueyard.queen.cli_watch import show_live  # noqa: PLC0415
    from queueyard.queen.settings import parse_ttl  # noqa: PLC0415

    show_live(call, interval_s=parse_ttl(interval), once=once)


@click.command(epilog=examples("queen doctor", "queen doctor --fix", "queen doctor --json"))
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@common
def doctor(call: Call, fix: bool) -> None:
    """Look for everything that may be wrong with the files. Exit code 1 if something is and was not mended."""
    from queueyard.queen.doctor import examine  # noqa: PLC0415

    tell_findings(call.out, examine(call.queen, fix=fix))


@click.command(epilog=examples("queen archive --older-than 30d --dry-run", "queen archive"))
@click.option("--older-than", default="30d", show_default=True, metavar="TIME", help="Settled for longer than this.")
@click.option("--dry-run", is_flag=True, help="Only say what would be moved.")
@common
def archive(call: Call, older_than: str, dry_run: bool) -> None:
    """Move read messages, ended assignments and ended reservations to .beads/queen_archive/.

    They can still be read, searched and answered.
    """
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415
    from queueyard.queen.archive import archive as move  # noqa: PLC0415

    before = call.queen.clock.now() - parse_duration(older_than)
    moved = move(call.queen.store, call.queen.clock, before=before, dry_run=dry_run)
    columns = ("FILE", "RECORDS", "LINES", "WOULD MOVE TO" if dry_run else "MOVED TO")
    call.show_many(moved, columns, [(one.file, one.records, one.lines, one.archive) for one in moved], "")


@click.command()
@click.option("--rebuild", is_flag=True, help="Forget the index and build it anew.")
@click.option("--export", is_flag=True, help="Write queen_messages.idx.json, the index of the schema, for other tools.")
@common
def index(call: Call, rebuild: bool, export: bool) -> None:
    """Bring the message index up to date. Every command does so by itself; this says what there is."""
    from queueyard.queen import idx_json  # noqa: PLC0415

    store = call.queen.store
    if rebuild:
        store.forget_index()
    told = {"indexed_bytes": store.messages(len), "exported": str(idx_json.export(store)) if export else None}
    if call.as_json:
        call.out.data(told)
    else:
        call.out.text(f"{told['indexed_bytes']} bytes of messages are indexed on disk; the rest is read each time")
        if export:
            call.out.text(f"wrote {told['exported']}")


@click.command(epilog=examples("queen mcp --agent ui-engineer"))
@common
def mcp(call: Call) -> None:
    """Serve the same verbs as tools over MCP, on stdin and stdout."""
    from queueyard.queen.mcp import serve  # noqa: PLC0415

    serve(start=None, agent=call.agent, beads=call.beads)
