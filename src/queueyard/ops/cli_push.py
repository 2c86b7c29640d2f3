"""`jolli-ops plan`, `push`, `resume`, `pull`, `conflicts`: between a folder and the server, on the command line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples
from queueyard.ops.calls import NEEDS_A_DECISION, Call, common, common_before, plural, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.kernel.errors import QueueyardError
    from queueyard.ops.planning import Plan
    from queueyard.ops.service import Ops
    from queueyard.ops.worker import Outcome, Sent

_FOLDER = click.argument("folder_argument", required=False, metavar="[FOLDER]")
_MOST_SHOWN = 20


def _planning(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--ops", "ops_file", metavar="FILE", help="Take ops from a JSON or JSONL file; - for stdin."),
            click.option("-m", "--message", help="What the request is about, for people."),
            click.option("--allow-deletes", is_flag=True, help="Even if most of the files are gone."),
            click.option("--batch-ops", type=int, metavar="N", help="Ops per batch, 25 to 200.  [default: 100]"),
            click.option("--batch-bytes", type=int, metavar="N", help="Bytes per batch.  [default: 1048576]"),
            click.option("-n", "--dry-run", is_flag=True, help="Only say what would be sent."),
        )
    ):
        function = option(function)
    return function


def _sending(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(
        (
            click.option("--keep-completed", is_flag=True, default=None, help="Move sent batches to completed/."),
            click.option("--retry-for", metavar="TIME", help="How long to go on without an answer.  [default: 1m]"),
            click.option("--compress", type=click.Choice(["none", "gzip", "zstd"]), help="How to send batches."),
        )
    ):
        function = option(function)
    return function


@click.command(epilog=examples("jolli-ops plan notes", "jolli-ops plan --ops ops.json", "jolli-ops plan --dry-run"))
@_FOLDER
@_planning
@common
def plan(call: Call, folder_argument: str | None, **options: Any) -> None:
    """Queue what changed, without sending it: `resume` does that, now or next week.

    Once this returns, the batches survive a crash and a power cut.
    """
    planned, _ = _plan(call.at(folder_argument), **options)
    _tell_plan(call, planned)
    if call.as_json:
        call.show(planned)


@click.command(
    epilog=examples(
        "jolli-ops push notes -m 'spring cleaning'",
        "jolli-ops push --dry-run",
        "jolli-ops push --ops ops.json --server https://sync.example.org --space docs",
    )
)
@_FOLDER
@_planning
@_sending
@common
def push(
    call: Call,
    folder_argument: str | None,
    keep_completed: bool | None,
    retry_for: str | None,
    compress: str | None,
    **options: Any,
) -> None:
    """Queue what changed, then send everything that is queued.

    Interrupted at any moment, `push` or `resume` goes on with the first batch that has no answer. Exit code 75 if
    the server cannot be reached (everything stays queued), 3 if all was sent but something needs your decision.
    """
    sending: dict[str, Any] = {"keep_completed": keep_completed, "retry_for": retry_for, "compress": compress}
    planned, ops = _plan(call.at(folder_argument), **options, **sending)
    _tell_plan(call, planned)
    if options["dry_run"]:
        if call.as_json:
            call.show(planned)
        return
    _send_and_tell(call, [ops], planned)


@click.command(epilog=examples("jolli-ops resume", "jolli-ops resume --all", "jolli-ops resume --retry-for 1h"))
@_FOLDER
@click.option("--all", "everywhere", is_flag=True, help="Every queue of this machine.")
@_sending
@common
def resume(
    call: Call,
    folder_argument: str | None,
    everywhere: bool,
    keep_completed: bool | None,
    retry_for: str | None,
    compress: str | None,
) -> None:
    """Send what is queued, from the first batch that has no answer on. With nothing queued, nothing happens."""
    flags = {"keep_completed": keep_completed, "retry_for": retry_for, "compress": compress}
    call.at(folder_argument)
    _send_and_tell(call, call.everywhere(**flags) if everywhere else call.known(**flags), None)


@click.command(epilog=examples("jolli-ops pull notes", "jolli-ops pull --all", "jolli-ops pull --json"))
@_FOLDER
@click.option("--all", "everything", is_flag=True, help="From the beginning, not only what is new.")
@common
def pull(call: Call, folder_argument: str | None, everything: bool) -> None:
    """Bring the changes of others into the folder.

    A local edit is never overwritten: where both sides changed, the server's text is put beside your file as
    "name (conflict ...)", and the file waits for `conflicts resolve`. Exit code 3 if there are such files.
    """
    from queueyard.ops.pulling import pull as bring  # noqa: PLC0415

    done = bring(call.at(folder_argument).ops(), everything=everything)
    for path, why in done.skipped.items():
        call.out.warn(f"{path} is left out: {why}")
    for conflict in done.conflicts:
        beside = f"; the server's text is in {conflict.copy}" if conflict.copy else ""
        call.out.warn(f"{conflict.server_path}: {conflict.detail}{beside}")
    told = [f"{len(done.written)} written", f"{len(done.removed)} removed", plural(len(done.conflicts), "conflict")]
    call.show(done, f"{', '.join(told)}; up to date with change {done.cursor}")
    if done.conflicts or done.skipped:
        click.get_current_context().exit(NEEDS_A_DECISION)


@click.group(
    cls=Script,
    invoke_without_command=True,
    epilog=examples("jolli-ops conflicts", "jolli-ops conflicts resolve notes/a.md --keep mine"),
)
@common_before
@click.pass_context
def conflicts(ctx: click.Context, /, **given: Any) -> None:
    """See what was changed here and there, and decide."""
    ctx.obj = {name: value or (ctx.obj or {}).get(name) for name, value in given.items()}
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_conflicts)


@conflicts.command("list")
@common
def list_conflicts(call: Call) -> None:
    """List the files that wait for a decision."""
    from queueyard.ops.pulling import conflicts as of_scope  # noqa: PLC0415

    found = [conflict for ops in call.known() for conflict in of_scope(ops)]
    rows = [(one.server_path, one.code, one.server_version, one.copy, one.detail) for one in found]
    call.show_many(found, ("PATH", "WHY", "SERVER HAS", "ITS TEXT", "DETAIL"), rows, "No conflicts.")


@conflicts.command("resolve", epilog=examples("jolli-ops conflicts resolve notes/a.md --keep theirs"))
@click.argument("path")
@click.option("--keep", type=click.Choice(["mine", "theirs"]), required=True, help="Whose text counts.")
@common
def resolve(call: Call, path: str, keep: str) -> None:
    """Decide about one file: `mine` is pushed over the server's version, `theirs` replaces your file.

    To keep parts of both, edit your file first, then keep mine.
    """
    from queueyard.ops.errors import UnknownItem  # noqa: PLC0415
    from queueyard.ops.pulling import conflicts as of_scope  # noqa: PLC0415
    from queueyard.ops.pulling import resolve as decide  # noqa: PLC0415

    for ops in call.known():
        if any(path in {one.server_path, one.file_id} for one in of_scope(ops)):
            conflict = decide(ops, path, keep=keep)
            told = "the next push sends it" if keep == "mine" else "your file has the server's text now"
            call.show(conflict, f"{conflict.server_path}: {keep} is kept; {told}")
            return
    raise UnknownItem(f"no conflict about {path!r}", hint="List them: jolli-ops conflicts")


# --- inside ----------------------------------------------------------------------------------------------------------


def _plan(
    call: Call,
    *,
    ops_file: str | None,
    message: str | None,
    allow_deletes: bool,
    dry_run: bool,
    **flags: Any,
) -> tuple[Plan, Ops]:
    if ops_file is None:
        ops = call.ops(**flags)
        return ops.plan(message=message, allow_deletes=allow_deletes, dry_run=dry_run), ops
    from pathlib import Path  # noqa: PLC0415

    from queueyard.kernel.errors import explaining  # noqa: PLC0415
    from queueyard.ops.planning import read_ops  # noqa: PLC0415

    with explaining("read", ops_file):
        raw = sys.stdin.buffer.read() if ops_file == "-" else Path(ops_file).read_bytes()
    ops = call.ops_without_folder(**flags)
    return ops.plan_ops(read_ops(raw), message=message, dry_run=dry_run), ops


def _tell_plan(call: Call, planned: Plan) -> None:
    for skipped in planned.skipped:
        call.out.warn(f"{skipped.path} is left out: {skipped.reason}")
    if planned.held:
        call.out.warn(
            f"{plural(len(planned.held), 'file')} wait for a decision: jolli-ops conflicts, jolli-ops dead list"
        )
    if call.as_json:
        return
    if not planned.ops:
        call.out.note("Nothing has changed.")
        return
    counts = f"{plural(planned.upserts, 'upsert')}, {plural(planned.deletes, 'delete')}"
    what = f"{counts} in {plural(planned.batches, 'batch')}"
    if planned.request_id:
        call.out.text(f"queued {planned.request_id}: {what} ({size_of(planned.bytes)})")
        return
    call.out.text(f"would queue {what} (about {size_of(planned.bytes)})")
    for path in planned.paths[:_MOST_SHOWN]:
        call.out.text(f"  {path}")
    if len(planned.paths) > _MOST_SHOWN:
        call.out.text(f"  ... and {len(planned.paths) - _MOST_SHOWN} more")


def _send_and_tell(call: Call, scopes: list[Ops], planned: Plan | None) -> None:
    done, failure = _send_all(call, scopes)
    if done.batches or failure is None:
        _tell(call, done, planned)
    if failure is not None:
        raise failure
    if done.conflicts or done.rejected:
        click.get_current_context().exit(NEEDS_A_DECISION)


def _send_all(call: Call, scopes: list[Ops]) -> tuple[Outcome, QueueyardError | None]:
    """What waits for one server is sent whatever becomes of the others; the last failure is told."""
    from queueyard.kernel.errors import QueueyardError  # noqa: PLC0415
    from queueyard.ops.worker import Outcome  # noqa: PLC0415

    total = Outcome()
    failure: QueueyardError | None = None
    for ops in scopes:
        try:
            done = _send(call, ops)
        except QueueyardError as fault:
            if failure is not None:
                call.out.warn(str(failure))
            failure = fault
            continue
        for name in ("requests", "batches", "applied", "conflicts", "rejected", "unknown", "bytes", "retries"):
            setattr(total, name, getattr(total, name) + getattr(done, name))
        total.notes += done.notes
    return total, failure


def _tell(call: Call, done: Outcome, planned: Plan | None) -> None:
    for note in done.notes:
        call.out.warn(note)
    if call.as_json:
        from queueyard.ops.records import to_raw  # noqa: PLC0415

        call.out.data({"plan": to_raw(planned), **to_raw(done)} if planned else to_raw(done))
    elif done.batches:
        call.out.text(_told(done))
    elif planned is None:
        call.out.note("Nothing was queued.")
    if done.conflicts:
        call.out.note(f"{plural(done.conflicts, 'conflict')}: jolli-ops pull, then jolli-ops conflicts")
    if done.rejected:
        call.out.note(f"{done.rejected} rejected: jolli-ops dead list")


def _send(call: Call, ops: Ops) -> Outcome:
    from queueyard.ops.worker import resume as send  # noqa: PLC0415

    left = ops.status()
    sent_bytes = 0
    with call.out.progress("pushing", left.pending_ops) as bar:

        def on_sent(sent: Sent) -> None:
            nonlocal sent_bytes
            sent_bytes += sent.bytes
            bar.advance(sent.ops, f"{size_of(sent_bytes)} of {size_of(left.pending_bytes)}")

        def on_retry(attempt: int, why: str) -> None:
            if attempt == 1:
                call.out.note(f"trying again: {why}")

        return send(ops, on_sent=on_sent, on_retry=on_retry)


def _told(done: Outcome) -> str:
    parts = [f"{done.applied} applied"]
    parts += [f"{done.conflicts} in conflict"] if done.conflicts else []
    parts += [f"{done.rejected} rejected"] if done.rejected else []
    parts += [f"{done.unknown} unknown"] if done.unknown else []
    return f"sent {plural(done.batches, 'batch')} ({size_of(done.bytes)}): {', '.join(parts)}"
