"""`jolli-ops status`, `pending`, `dead`, `config`, `doctor`: what waits, what will not be sent, what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples, tell_findings
from queueyard.ops.calls import Call, common, common_before, open_data, plural, size_of

if TYPE_CHECKING:
    from queueyard.ops.records import DeadLetter
    from queueyard.ops.service import Ops


@click.command(epilog=examples("jolli-ops status", "jolli-ops status --all --json", "jolli-ops status --remote"))
@click.argument("folder_argument", required=False, metavar="[FOLDER]")
@click.option("--all", "everywhere", is_flag=True, help="Every queue of this machine.")
@click.option("--remote", is_flag=True, help="Ask the server too: what it takes, and how far it is.")
@common
def status(call: Call, folder_argument: str | None, everywhere: bool, remote: bool) -> None:
    """Say how much is queued, dead or in conflict. Without --remote this needs no server."""
    from queueyard.ops.records import to_raw  # noqa: PLC0415

    call.at(folder_argument)
    scopes = call.everywhere() if everywhere else call.known()
    reports = [ops.status() for ops in scopes]
    told: list[dict[str, Any]] = [to_raw(report) for report in reports]
    if remote:
        for ops, one in zip(scopes, told, strict=True):
            one["server"] = _remote(ops)
    rows = [
        (
            one.scope.workspace or "(ops)",
            one.scope.server,
            one.scope.space,
            f"{one.pending_ops} in {plural(one.pending_batches, 'batch')}",
            size_of(one.pending_bytes),
            one.dead_letters,
            one.conflicts,
        )
        for one in reports
    ]
    columns = ("FOLDER", "SERVER", "SPACE", "PENDING OPS", "SIZE", "DEAD", "CONFLICTS")
    call.show_many(told, columns, rows, "Nothing is queued, and nothing ever was.")
    if remote and not call.as_json:
        for one in told:
            call.out.text(f"{one['scope']['server']} takes {one['server']['maxOps']} ops per batch")


@click.group(
    cls=Script, epilog=examples("jolli-ops pending list", "jolli-ops pending show 01J", "jolli-ops pending drop 01J")
)
@common_before
@click.pass_context
def pending(ctx: click.Context, /, **given: Any) -> None:
    """Look at queued requests, or give one up."""
    ctx.obj = {name: value or (ctx.obj or {}).get(name) for name, value in given.items()}


@pending.command("list")
@common
def list_pending(call: Call) -> None:
    """List the queued requests in the order of sending."""
    told: list[dict[str, Any]] = []
    for ops in call.known():
        for manifest in ops.queue.requests():
            left = ops.queue.pending(manifest)
            told.append(
                {
                    "request_id": manifest.request_id,
                    "created_at": manifest.created_at,
                    "total_batches": manifest.total_batches,
                    "pending_batches": len(left),
                    "next_batch": left[0] if left else None,
                    "pending_ops": sum(manifest.batches[index - 1].ops for index in left),
                    "bytes": sum(manifest.batches[index - 1].bytes for index in left),
                    "message": manifest.message,
                    "workspace": ops.scope.workspace,
                }
            )
    rows = [
        (
            one["request_id"],
            f"{one['pending_batches']} of {one['total_batches']}",
            one["pending_ops"],
            size_of(one["bytes"]),
            one["message"],
        )
        for one in told
    ]
    call.show_many(told, ("REQUEST", "BATCHES LEFT", "OPS", "SIZE", "MESSAGE"), rows, "Nothing is queued.")


@pending.command("show")
@click.argument("request_id", metavar="REQUEST")
@common
def show_pending(call: Call, request_id: str) -> None:
    """List the ops of a queued request that have no answer yet."""
    from queueyard.ops.store import noted  # noqa: PLC0415

    ops = _scope_of(call, request_id)
    manifest = ops.queue.request(request_id)
    found = [(index, op) for index in ops.queue.pending(manifest) for op in noted(ops.queue.read(manifest, index))]
    rows = [(index, op.type, op.server_path, op.base_version, op.file_id) for index, op in found]
    values = [{"batch_index": index, **_raw(op)} for index, op in found]
    call.show_many(values, ("BATCH", "TYPE", "PATH", "BASE", "FILE"), rows, "Everything is answered.")


@pending.command("drop", epilog=examples("jolli-ops pending drop 01JABC"))
@click.argument("request_id", metavar="REQUEST")
@common
def drop_pending(call: Call, request_id: str) -> None:
    """Give up what was not sent of a request. Files that still differ are planned again by the next push."""
    manifest = _scope_of(call, request_id).drop(request_id)
    call.show({"dropped": manifest.request_id}, f"dropped {manifest.request_id}")


@click.group(
    cls=Script, epilog=examples("jolli-ops dead list", "jolli-ops dead retry --all", "jolli-ops dead drop 01J")
)
@common_before
@click.pass_context
def dead(ctx: click.Context, /, **given: Any) -> None:
    """Look at ops that could not be sent; send them again, or drop them."""
    ctx.obj = {name: value or (ctx.obj or {}).get(name) for name, value in given.items()}


@dead.command("list")
@common
def list_dead(call: Call) -> None:
    """List the ops that will not be sent, with the reason."""
    letters = [letter for ops in call.known() for letter in ops.dead_letters()]
    rows = [(one.id, one.op.type, one.op.server_path, one.code, one.reason) for one in letters]
    call.show_many([_brief(one) for one in letters], ("ID", "TYPE", "PATH", "CODE", "REASON"), rows, "No dead letters.")


@dead.command("retry", epilog=examples("jolli-ops dead retry --all && jolli-ops resume"))
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@common
def retry_dead(call: Call, ids: tuple[str, ...], everything: bool) -> None:
    """Queue dead letters again, as they are. `resume` sends them."""
    queued = 0
    for ops, letters in _letters(call, ids, everything=everything):
        ops.retry_dead(letters)
        queued += len(letters)
    call.show({"queued": queued}, f"queued {plural(queued, 'op')}; send them: jolli-ops resume")


@dead.command("drop")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@common
def drop_dead(call: Call, ids: tuple[str, ...], everything: bool) -> None:
    """Delete dead letters. Files that still differ are planned again by the next push."""
    dropped = 0
    for ops, letters in _letters(call, ids, everything=everything):
        ops.drop_dead(letters)
        dropped += len(letters)
    call.show({"dropped": dropped}, f"dropped {plural(dropped, 'op')}")


@click.command(epilog=examples("jolli-ops config", "jolli-ops config --origin"))
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@common
def config(call: Call, origin: bool) -> None:
    """Show the settings in force. Flags come before the environment, the environment before the files."""
    import os  # noqa: PLC0415

    from queueyard.ops.home import jolli_home  # noqa: PLC0415
    from queueyard.ops.records import to_raw  # noqa: PLC0415
    from queueyard.ops.settings import load  # noqa: PLC0415

    settled = load(jolli_home(os.environ), call.folder, os.environ, call.flags)
    values = to_raw(settled.values)
    if call.as_json:
        told = {name: {"value": value, "origin": settled.origin[name]} for name, value in values.items()}
        call.out.data(told if origin else values)
        return
    rows = [(name, _shown(value), settled.origin[name]) for name, value in values.items()]
    columns = ("SETTING", "VALUE", "ORIGIN") if origin else ("SETTING", "VALUE")
    call.out.table(columns, [row[: len(columns)] for row in rows])


@click.command(epilog=examples("jolli-ops doctor", "jolli-ops doctor --fix", "jolli-ops doctor --data jolli-data"))
@click.option("--fix", is_flag=True, help="Mend what can be mended.")
@click.option("--data", type=click.Path(), metavar="DIR", help="Look at a server's books instead.")
@click.option("--database", metavar="URL", help="The same for a PostgreSQL database.")
@common
def doctor(call: Call, fix: bool, data: str | None, database: str | None) -> None:
    """Look for everything that may be wrong. Exit code 1 if something is and was not mended."""
    from queueyard.ops.doctor import examine, examine_ledger  # noqa: PLC0415

    if data or database:
        from queueyard.ops.ledger import Ledger  # noqa: PLC0415

        ledger = Ledger(open_data(data, database))
        try:
            found = examine_ledger(ledger)
        finally:
            ledger.close()
    else:
        found = [finding for ops in call.known() for finding in examine(ops, fix=fix)]
    tell_findings(call.out, found)


# --- inside ----------------------------------------------------------------------------------------------------------


def _remote(ops: Ops) -> dict[str, Any]:
    import msgspec  # noqa: PLC0415

    from queueyard.ops.retries import refused  # noqa: PLC0415

    with ops.asking(retry_for_s=0) as asking:
        reply, _ = asking.ask("GET", "/v1/sync/limits")
    if reply.status != 200:
        raise refused(reply)
    limits: dict[str, Any] = msgspec.json.decode(reply.body)
    return limits


def _scope_of(call: Call, request_id: str) -> Ops:
    from queueyard.ops.errors import UnknownItem  # noqa: PLC0415

    scopes = call.known()
    for ops in scopes:
        if any(one.request_id.casefold().startswith(request_id.casefold()) for one in ops.queue.requests()):
            return ops
    raise UnknownItem(f"no request {request_id!r}", hint="List what is queued: jolli-ops pending list")


def _letters(call: Call, ids: tuple[str, ...], *, everything: bool) -> list[tuple[Ops, list[DeadLetter]]]:
    from queueyard.ops.service import id_of_letter  # noqa: PLC0415

    if bool(ids) == everything:
        raise click.UsageError("Name dead letters, or --all.")
    found = [(ops, ops.dead_letters()) for ops in call.known()]
    known = {letter.id for _, letters in found for letter in letters}
    wanted = known if everything else {id_of_letter(name, known) for name in ids}
    chosen = [(ops, [letter for letter in letters if letter.id in wanted]) for ops, letters in found]
    return [(ops, letters) for ops, letters in chosen if letters]


def _brief(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter without the text of the file."""
    raw: dict[str, Any] = _raw(letter)
    raw["op"] = {name: value for name, value in raw["op"].items() if name != "content"}
    return raw


def _raw(value: Any) -> Any:
    from queueyard.ops.records import to_raw  # noqa: PLC0415

    return to_raw(value)


def _shown(value: object) -> object:
    if value is None:
        return "(not set)"
    return ", ".join(map(str, value)) if isinstance(value, list) else value
