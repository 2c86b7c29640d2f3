"""`queen reserve`, `renew`, `unreserve`, `reserved`, `conflicts`, `check`, `guard`: files, on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from queueyard.console import Script, examples
from queueyard.queen.calls import Call, common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.queen.reservations import Verdict

_TTL = click.option("--ttl", metavar="TIME", help="How long: 90s, 45m, 2h, 1d.  [default: the ttl setting, 2h]")


@click.command(
    epilog=examples(
        "queen reserve 'src/ui/**' 'tests/ui/**' --ttl 45m --issue qb-42",
        "queen reserve docs/api.md --shared",
        "queen reserve 'src/**' --wait 10m",
    )
)
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@_TTL
@click.option("--shared", is_flag=True, help="For reading: others may share the files too.")
@click.option("-x", "--exclusive", type=bool, default=None, metavar="BOOL", help="--exclusive=false is --shared.")
@click.option("--strict", is_flag=True, default=None, help="Refuse shared beside exclusive too, instead of warning.")
@click.option("--wait", metavar="TIME", help="Wait so long for others to give the files back.")
@click.option("-f", "--force", is_flag=True, help="Reserve in spite of conflicts, and tell them as warnings.")
@click.option("--issue", metavar="ID", help="The Beads issue that it is for.")
@click.option("-r", "--reason", help="What for.")
@common
def reserve(
    call: Call,
    patterns: tuple[str, ...],
    ttl: str | None,
    shared: bool,
    exclusive: bool | None,
    strict: bool | None,
    wait: str | None,
    force: bool,
    issue: str | None,
    reason: str | None,
) -> None:
    """Ask other agents to keep out of files; all patterns or none.

    Patterns are globs relative to the root of the repository: * ? [a-z] {a,b} and ** for any folders. One that starts
    with ./ or ../ is taken from the current folder. Reserving a pattern again renews it.
    """
    from queueyard.kernel.clock import parse_duration  # noqa: PLC0415

    done = call.queen.reserve(
        patterns,
        ttl=ttl,
        shared=shared or exclusive is False,
        strict=strict,
        force=force,
        issue=issue,
        reason=reason,
        wait_s=parse_duration(wait).total_seconds() if wait else 0.0,
    )
    for warning in done.warnings:
        call.out.warn(warning)
    call.show(done, "\n".join(f"{one.id} {one.pattern} until {one.expires_at}" for one in done.reserved))


@click.command(epilog=examples("queen renew", "queen renew 'src/ui/**' --ttl 1h"))
@click.argument("wanted", nargs=-1, metavar="[PATTERN|ID]...")
@_TTL
@common
def renew(call: Call, wanted: tuple[str, ...], ttl: str | None) -> None:
    """Let your reservations hold longer, counted from now; without arguments all of them."""
    renewed = call.queen.renew(*wanted, ttl=ttl)
    call.show_reservations(renewed, "You have reserved nothing.")


@click.command(epilog=examples("queen unreserve 'src/ui/**'", "queen unreserve --all"))
@click.argument("wanted", nargs=-1, metavar="[PATTERN|ID]...")
@click.option("--all", "everything", is_flag=True, help="All of yours.")
@click.option("-f", "--force", is_flag=True, help="Even those of another agent.")
@common
def unreserve(call: Call, wanted: tuple[str, ...], everything: bool, force: bool) -> None:
    """Give reservations back."""
    if bool(wanted) == everything:
        raise click.UsageError("Name patterns or ids, or --all.")
    given = call.queen.unreserve(*wanted, force=force)
    call.show_many(given, ("GIVEN BACK", "ID"), [(one.pattern, one.id) for one in given], "You have reserved nothing.")


@click.command(epilog=examples("queen reserved", "queen reserved --path src/ui/button.tsx", "queen reserved --mine"))
@click.option("--path", metavar="PATH", help="Only those that cover this path.")
@click.option("--by", metavar="NAME", help="Only those of this agent.")
@click.option("--mine", is_flag=True, help="Only yours.")
@common
def reserved(call: Call, path: str | None, by: str | None, mine: bool) -> None:
    """See what is reserved now, soonest to end first."""
    owner = call.queen.agent if mine else by
    call.show_reservations(call.queen.reserved(agent=owner, path=path), "Nothing is reserved.")


@click.command(epilog=examples("queen conflicts", "queen conflicts --mine --json"))
@click.option("--mine", is_flag=True, help="Only those that concern you.")
@click.option("--resolve", is_flag=True, hidden=True, help="Suggestions are always shown.")
@common
def conflicts(call: Call, mine: bool, resolve: bool) -> None:  # noqa: ARG001  kept for scripts of the public tool
    """See which agents are on the same files: who, what, why, and what to do about it."""
    from queueyard.queen.records import to_raw  # noqa: PLC0415
    from queueyard.queen.rules import owner_of  # noqa: PLC0415

    found = call.queen.conflicts(mine=mine)
    if call.as_json:
        call.out.data([to_raw(one) for one in found])
        return
    if not found:
        call.out.note("No conflicts.")
    for one in found:
        a, b = one.reservation_a, one.reservation_b
        call.out.text(f"{owner_of(a)} {a.pattern}  ~  {owner_of(b)} {b.pattern}  ({one.overlap_type}, {one.clash})")
        call.out.text(f"  both cover {one.example}")
        for reservation in (a, b):
            if reservation.reason:
                call.out.text(f"  {owner_of(reservation)}: {reservation.reason}")
        call.out.text(f"  -> {one.suggestion}")


@click.command(epilog=examples("queen check src/ui/button.tsx && $EDITOR src/ui/button.tsx"))
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@common
def check(call: Call, paths: tuple[str, ...]) -> None:
    """May you edit these files now? Exit code 0 if all are free, 1 if one is not, or if that cannot be told.

    Nothing is written.
    """
    show_verdicts(call, call.queen.check(*paths))


def show_verdicts(call: Call, verdicts: Sequence[Verdict]) -> None:
    """Print what was found, and leave with 1 if one path is held by somebody else."""
    from queueyard.queen.records import to_raw  # noqa: PLC0415
    from queueyard.queen.rules import owner_of  # noqa: PLC0415

    if call.as_json:
        call.out.data([to_raw(verdict) for verdict in verdicts])
    else:
        for verdict in verdicts:
            call.out.text(f"{'free' if verdict.allowed else 'held'}  {verdict.path}")
            for held in verdict.held_by:
                why = f" ({held.reason})" if held.reason else ""
                call.out.text(f"      {owner_of(held)} holds {held.pattern} until {held.expires_at}{why}")
    if not all(verdict.allowed for verdict in verdicts):
        click.get_current_context().exit(1)


@click.group(cls=Script)
def guard() -> None:
    """A git pre-commit hook that checks the staged files. QUEEN_GUARD=off git commit ... goes past it."""


@guard.command()
@common
def install(call: Call) -> None:
    """Put the hook in place; a hook that is there already is kept and run first."""
    from queueyard.queen import guard as hook  # noqa: PLC0415

    path = hook.install(call.queen.home.root)
    call.out.data({"installed": str(path)}) if call.as_json else call.out.text(f"installed {path}")


@guard.command()
@common
def uninstall(call: Call) -> None:
    """Remove the hook, and put the one that was there before back."""
    from queueyard.queen import guard as hook  # noqa: PLC0415

    path = hook.uninstall(call.queen.home.root)
    call.out.data({"removed": str(path)}) if call.as_json else call.out.text(f"removed {path}")


@guard.command("run")
@common
def run_guard(call: Call) -> None:
    """What the hook does: check the staged files, both names of a renamed one."""
    from queueyard.queen import guard as hook  # noqa: PLC0415

    verdicts = hook.verdicts(call.queen)
    held = [verdict for verdict in verdicts if not verdict.allowed]
    if held:
        call.out.note("queen: another agent has reserved what you are about to commit.")
        call.out.note("       Ask them, wait, or go past it once: QUEEN_GUARD=off git commit ...")
    show_verdicts(call, held)
