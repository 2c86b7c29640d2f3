"""`panqueue sandbox`: what this machine can enforce, what a policy means here, and a handler tried under a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from queueyard.console import Script, examples, json_option
from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from queueyard.panqueue.executors.guarantees import Guarantee
    from queueyard.panqueue.executors.machine import Machine
    from queueyard.panqueue.executors.policy import Policy

_WEAKER = click.option("--without-bubblewrap", is_flag=True, help="As on a machine that has none.")
_COLUMNS = ("WHAT", "ALLOWED", "HELD BY", "NOTE")


@click.group(
    cls=Script,
    epilog=examples(
        "panqueue sandbox tiers",
        "panqueue sandbox explain policy.json",
        'panqueue sandbox explain \'{"read": ["/srv/in"], "net": ["api.example.org:443"]}\'',
        'panqueue sandbox run policy.json my_app:thumbnail \'{"file": "cat.png"}\'',
    ),
)
def sandbox() -> None:
    """See what a sandboxed handler could do on this machine.

    POLICY is JSON, or a file that holds it: read, write (paths), net (host:port or *:port), env (names), run
    (programs), processes, memory_mb, cpu_s. What it does not name is refused.
    """


@sandbox.command(epilog=examples("panqueue sandbox tiers", "panqueue sandbox tiers --json"))
@_WEAKER
@json_option
@click.pass_context
def tiers(ctx: click.Context, /, *, without_bubblewrap: bool, as_json: bool) -> None:
    """Show what each executor enforces here: inline, subprocess, sandbox (under the strictest policy)."""
    from queueyard.panqueue.executors import guarantees  # noqa: PLC0415
    from queueyard.panqueue.executors.policy import Policy  # noqa: PLC0415

    machine = _machine(without_bubblewrap=without_bubblewrap)
    out = _output(ctx, as_json=as_json)
    found = {
        "inline": guarantees.of_inline(),
        "subprocess": guarantees.of_subprocess(machine),
        "sandbox": guarantees.of_sandbox(Policy(), machine),
    }
    if out.as_json:
        out.data({"level": guarantees.level(machine), "machine": machine, "tiers": found})
        return
    _tell_level(out, machine)
    rows = [(tier, *row) for tier, held in found.items() for row in _rows(held)]
    out.table(("TIER", *_COLUMNS), rows)


@sandbox.command(
    epilog=examples("panqueue sandbox explain policy.json", "panqueue sandbox explain '{\"cpu_s\": 5}' --json")
)
@click.argument("text", metavar="POLICY")
@_WEAKER
@json_option
@click.pass_context
def explain(ctx: click.Context, /, *, text: str, without_bubblewrap: bool, as_json: bool) -> None:
    """Show, line by line, what enforces POLICY on this machine. Exit code 1 if something cannot be enforced."""
    from queueyard.panqueue.executors import guarantees  # noqa: PLC0415
    from queueyard.panqueue.executors.policy import check_policy  # noqa: PLC0415

    policy = _policy(text)
    check_policy(policy)
    machine = _machine(without_bubblewrap=without_bubblewrap)
    out = _output(ctx, as_json=as_json)
    held = guarantees.of_sandbox(policy, machine)
    if out.as_json:
        is_held = all(one.held_by is not None for one in held)
        out.data({"level": guarantees.level(machine), "machine": machine, "enforced": is_held, "guarantees": held})
        ctx.exit(0 if is_held else 1)
    _tell_level(out, machine)
    out.table(_COLUMNS, _rows(held))
    guarantees.refuse_what_is_not_held(held)
    out.note("This machine enforces all of it.")


@sandbox.command(epilog=examples('panqueue sandbox run policy.json my_app:thumbnail \'{"file": "cat.png"}\''))
@click.argument("text", metavar="POLICY")
@click.argument("target", metavar="MODULE:FUNCTION")
@click.argument("payload", default="null")
@_WEAKER
@click.option("--timeout", "timeout_s", type=click.FloatRange(0, min_open=True), default=60.0, show_default=True,
              help="Seconds until the handler is killed.")  # fmt: skip
@json_option
@click.pass_context
def run(
    ctx: click.Context, /, *, text: str, target: str, payload: str, without_bubblewrap: bool, timeout_s: float,
    as_json: bool,
) -> None:  # fmt: skip
    """Run a handler once under POLICY, without a queue or a server, and print what it returns as JSON."""
    import asyncio  # noqa: PLC0415

    from queueyard.panqueue.cli_house import load_target  # noqa: PLC0415
    from queueyard.panqueue.executors.trial import try_once  # noqa: PLC0415

    out = _output(ctx, as_json=as_json)
    machine = _machine(without_bubblewrap=without_bubblewrap)
    found = load_target(target)
    handler = getattr(found, "handler", found)
    out.data(asyncio.run(try_once(_policy(text), handler, payload, machine=machine, timeout_s=timeout_s)))


def _policy(text: str) -> Policy:
    from queueyard.kernel.errors import explaining  # noqa: PLC0415
    from queueyard.panqueue.executors.policy import read_policy  # noqa: PLC0415

    if text.lstrip().startswith("{"):
        return read_policy(text)
    with explaining("read", text):
        return read_policy(Path(text).read_text(encoding="utf-8"))


def _machine(*, without_bubblewrap: bool) -> Machine:
    import msgspec  # noqa: PLC0415

    from queueyard.panqueue.executors.machine import this_machine  # noqa: PLC0415

    here = this_machine()
    if not without_bubblewrap:
        return here
    return msgspec.structs.replace(here, bubblewrap=None, trouble="left out by --without-bubblewrap")


def _output(ctx: click.Context, *, as_json: bool) -> Output:
    above: dict[str, Any] = ctx.obj or {}
    return Output(as_json=as_json or bool(above.get("as_json")))


def _tell_level(out: Output, machine: Machine) -> None:
    from queueyard.panqueue.executors.guarantees import level  # noqa: PLC0415

    parts = [
        "bubblewrap" if machine.bubblewrap else f"no bubblewrap ({machine.trouble})",
        f"Landlock {machine.landlock}" if machine.landlock else "no Landlock",
        "seccomp" if machine.seccomp else "no seccomp",
    ]
    out.note(f"level: {level(machine)}; {', '.join(parts)}")


def _rows(held: list[Guarantee]) -> list[tuple[str, str, str, str]]:
    return [(one.what, one.allowed, one.held_by or "nothing", one.note or "") for one in held]
