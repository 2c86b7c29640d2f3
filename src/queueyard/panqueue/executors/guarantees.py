"""Which part of the machine holds which line of a policy; and which lines nothing holds. Pure.

Two levels. With bubblewrap, a handler lives in namespaces of its own: it sees only what its policy names, and reaches
the network through a proxy that knows hosts. Without, Landlock and seccomp refuse it what it sees. Landlock knows ports
but no hosts. Inside namespaces the two are used as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue.executors.errors import PolicyRefused
from queueyard.panqueue.executors.landlock import FIRST_WITH_PORTS, FIRST_WITH_TRUNCATE
from queueyard.panqueue.executors.policy import ANY_HOST, net_rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from queueyard.panqueue.executors.machine import Machine
    from queueyard.panqueue.executors.policy import Policy

_INSTALL = "install bubblewrap"
_ALWAYS = "and always Python, the system's libraries and the handler's code"


class Guarantee(msgspec.Struct, frozen=True, kw_only=True):
    """One line of what an executor promises."""

    #: what is guarded: read, write, net, ...
    what: str
    #: what is allowed
    allowed: str
    #: what enforces it; None: nothing here does
    held_by: str | None
    #: what it does not cover, or what is missing
    note: str | None = None


def level(machine: Machine) -> str:
    """What kind of sandbox this machine gives: namespaces, landlock or none."""
    if machine.bubblewrap and machine.seccomp:
        return "namespaces"
    return "landlock" if machine.seccomp and machine.landlock >= FIRST_WITH_TRUNCATE else "none"


def of_sandbox(policy: Policy, machine: Machine) -> list[Guarantee]:
    """What a sandboxed process can and cannot do here under this policy."""
    return [*_files(policy, machine), _net(policy, machine), *_processes(policy, machine), *_limits(policy)]


def of_subprocess(machine: Machine) -> list[Guarantee]:
    """A plain child: a crash stays a crash of one job. It may do whatever the worker's user may."""
    hidden = ("Landlock, capabilities" if machine.is_root else "Landlock") if machine.landlock else None
    everything = [
        Guarantee(what=what, allowed="everything", held_by=None, note="a plain subprocess limits nothing")
        for what in ("read", "write", "net", "run", "memory", "cpu")
    ]
    note = None if hidden else "another process of the same user can be read through /proc"
    return [
        *everything,
        Guarantee(what="crash", allowed="fails its job only", held_by="process"),
        Guarantee(what="time-out", allowed="killed", held_by="process"),
        Guarantee(what="env", allowed="all but secrets", held_by="process"),
        Guarantee(what="credentials", allowed="nothing", held_by=hidden, note=note),
    ]


def of_inline() -> list[Guarantee]:
    """The worker's own process: nothing is enforced."""
    told = "an async handler is cancelled; one in a thread, or that ignores it, cannot be ended"
    return [
        Guarantee(what="everything", allowed="everything", held_by=None, note="runs in the worker itself"),
        Guarantee(what="time-out", allowed="asked to end", held_by=None, note=told),
    ]


def refuse_what_is_not_held(found: Sequence[Guarantee]) -> None:
    """PolicyRefused with all lines that nothing here enforces."""
    missing = [f"  - {one.what}: {one.note}" for one in found if one.held_by is None]
    if missing:
        raise PolicyRefused(
            "this machine cannot enforce the policy:\n" + "\n".join(missing),
            hint="See what it can: panqueue sandbox explain POLICY",
        )


def _files(policy: Policy, machine: Machine) -> Iterator[Guarantee]:
    note = _ALWAYS
    match level(machine):
        case "namespaces":
            held_by: str | None = "mount namespace" + (", Landlock" if machine.landlock >= FIRST_WITH_TRUNCATE else "")
        case "landlock":
            held_by = "Landlock, seccomp"
            note = f"{_ALWAYS}; names, sizes and times of all files can be seen"
        case _:
            held_by, note = None, _what_is_missing(machine)
    yield Guarantee(what="read", allowed=_listed([*policy.read, *policy.write]), held_by=held_by, note=note)
    yield Guarantee(what="write", allowed=_listed(policy.write), held_by=held_by, note=None if held_by else note)


def _net(policy: Policy, machine: Machine) -> Guarantee:
    hosts = [rule for rule in net_rules(policy) if rule.host != ANY_HOST]
    note = None
    match level(machine):
        case "namespaces":
            held_by: str | None = "network namespace" + (", proxy" if policy.net else "")
            note = "through the proxy in http_proxy and https_proxy" if policy.net else None
        case "landlock" if hosts:
            held_by, note = None, f"Landlock knows ports but no hosts: {_INSTALL}, or write *:{hosts[0].port}"
        case "landlock" if policy.net and machine.landlock < FIRST_WITH_PORTS:
            held_by, note = None, f"needs Landlock {FIRST_WITH_PORTS} for ports (here: {machine.landlock})"
        case "landlock":
            held_by = "Landlock (ports), seccomp" if policy.net else "seccomp"
            note = "no name service, since that is UDP" if policy.net else None
        case _:
            held_by, note = None, _what_is_missing(machine)
    return Guarantee(what="net", allowed=_listed(policy.net), held_by=held_by, note=note)


def _processes(policy: Policy, machine: Machine) -> Iterator[Guarantee]:
    calls = "seccomp" if machine.seccomp else None
    missing = None if calls else _what_is_missing(machine)
    yield Guarantee(what="unix sockets", allowed="nothing", held_by=calls, note=missing)
    others = {"namespaces": "pid namespace, seccomp", "landlock": "Landlock, seccomp"}.get(level(machine))
    for what in ("signals", "ptrace", "credentials"):
        note = None if others else _what_is_missing(machine)
        yield Guarantee(what=what, allowed="nothing", held_by=others, note=note)
    if not policy.run:
        yield Guarantee(what="run", allowed="nothing", held_by=calls, note=missing)
    elif machine.landlock:
        note = "what may be read can also be started by the system's loader"
        yield Guarantee(what="run", allowed=_listed(policy.run), held_by="Landlock", note=note)
    else:
        yield Guarantee(what="run", allowed=_listed(policy.run), held_by=None, note="needs Landlock")
    yield _process_count(policy, machine)


def _process_count(policy: Policy, machine: Machine) -> Guarantee:
    if not policy.processes:
        note = None if machine.seccomp else _what_is_missing(machine)
        return Guarantee(what="processes", allowed="0", held_by="seccomp" if machine.seccomp else None, note=note)
    held_by, note = None, f"needs a user namespace to count them in: {_INSTALL}"
    if level(machine) == "namespaces" and machine.is_root:
        note = "the kernel does not limit root: run the worker as an ordinary user"
    elif level(machine) == "namespaces":
        held_by, note = "user namespace, rlimit", "a few threads count too"
    return Guarantee(what="processes", allowed=str(policy.processes), held_by=held_by, note=note)


def _limits(policy: Policy) -> Iterator[Guarantee]:
    many = "for each process" if policy.processes else None
    yield Guarantee(what="memory", allowed=f"{policy.memory_mb} MiB", held_by="rlimit, seccomp", note=many)
    if policy.cpu_s is None:
        yield Guarantee(what="cpu", allowed="everything", held_by="no limit asked for")
    else:
        yield Guarantee(what="cpu", allowed=f"{policy.cpu_s} s", held_by="rlimit", note="each child runs one job")
    yield Guarantee(what="env", allowed=_listed(policy.env), held_by="process")
    yield Guarantee(what="time-out", allowed="killed", held_by="process")


def _what_is_missing(machine: Machine) -> str:
    if not machine.seccomp:
        return "needs seccomp, on Linux on x86_64 or aarch64"
    why = machine.trouble or "no bubblewrap"
    return f"needs bubblewrap ({why}), or Landlock {FIRST_WITH_TRUNCATE} (here: {machine.landlock or 'none'})"


def _listed(allowed: Sequence[str]) -> str:
    return ", ".join(allowed) or "nothing"
