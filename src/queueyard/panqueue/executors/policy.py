"""What a sandboxed handler may touch: everything that is not named here is refused.

    Policy(read=("/srv/fonts",), write=("/srv/out",), net=("api.example.org:443",), memory_mb=256)

A policy is plain data; whether this machine can hold it is decided in `guarantees.py`.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
import re
import shutil
from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue.executors.errors import BadPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEFAULT_MEMORY_MB = 512
#: Python itself and a few threads need this much
LEAST_MEMORY_MB = 128
ANY_HOST = "*"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")
#: what leads to the queue's server: the parent alone has it
_SERVER_VARIABLE = re.compile(r"(REDIS|VALKEY)_?(URL|PASSWORD|AUTH)|REDISCLI_AUTH", re.IGNORECASE)
_SERVER_URL = re.compile(r"(redis|valkey)s?(\+\w+)?://", re.IGNORECASE)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one job type may do. The defaults allow computing, and nothing else."""

    #: files and folders that may be read, with all below them
    read: tuple[str, ...] = ()
    #: files and folders that may be read and written
    write: tuple[str, ...] = ()
    #: `host:port` or `*:port`, TCP only
    net: tuple[str, ...] = ()
    #: names of environment variables that are passed on
    env: tuple[str, ...] = ()
    #: programs that may be started
    run: tuple[str, ...] = ()
    #: how many processes may run beside the handler's own
    processes: int = 0
    #: address space of each process, MiB
    memory_mb: int = DEFAULT_MEMORY_MB
    #: processor time of one job, seconds; a child with such a limit runs one job
    cpu_s: int | None = None


class NetRule(msgspec.Struct, frozen=True):
    """Where a handler may connect to."""

    #: in lower case; `*` for every host
    host: str
    port: int

    def allows(self, host: str, port: int) -> bool:
        return port == self.port and self.host in {ANY_HOST, normal_host(host)}


def read_policy(text: str) -> Policy:
    """A policy from JSON. BadPolicy says what is wrong with it."""
    try:
        return msgspec.json.decode(text, type=Policy)
    except msgspec.MsgspecError as fault:
        raise BadPolicy(
            f"not a policy: {fault}", hint=f"A JSON object with: {', '.join(Policy.__struct_fields__)}"
        ) from fault


def check_policy(policy: Policy) -> None:
    """BadPolicy with every fault at once: paths that are not there, rules that cannot be read."""
    faults = list(_faults(policy))
    if faults:
        raise BadPolicy(
            "this policy cannot be used:\n" + "\n".join(f"  - {one}" for one in faults),
            hint="Mend it, then: panqueue sandbox explain POLICY",
        )


def _faults(policy: Policy) -> Iterator[str]:
    yield from _path_faults(policy)
    yield from (fault for text in policy.net if isinstance(fault := _net_rule(text), str))
    for name in policy.env:
        if not _NAME.fullmatch(name):
            yield f"env: {name!r} is no name of a variable"
        elif _SERVER_VARIABLE.search(name):
            yield f"env: {name} leads to the queue's server, which no child may see"
    yield from (f"run: there is no program {name}" for name in policy.run if find_program(name) is None)
    if policy.run and policy.processes < 1:
        yield "run: a program needs a process; set processes to 1 or more"
    yield from _number_faults(policy)


def _path_faults(policy: Policy) -> Iterator[str]:
    for kind in ("read", "write"):
        for path in getattr(policy, kind):
            if not Path(path).is_absolute():
                yield f"{kind}: {path} is not an absolute path"
            elif not Path(path).exists():
                yield f"{kind}: {path} does not exist"


def _number_faults(policy: Policy) -> Iterator[str]:
    if policy.processes < 0:
        yield "processes: must be 0 or more"
    if policy.memory_mb < LEAST_MEMORY_MB:
        yield f"memory_mb: must be {LEAST_MEMORY_MB} or more, which Python needs for itself"
    if policy.cpu_s is not None and policy.cpu_s < 1:
        yield "cpu_s: must be 1 or more"


def net_rules(policy: Policy) -> list[NetRule]:
    """The rules of a policy that was checked."""
    return [rule for text in policy.net if isinstance(rule := _net_rule(text), NetRule)]


def _net_rule(text: str) -> NetRule | str:
    """The rule, or what is wrong with it."""
    host, _, port = text.rpartition(":")
    host = normal_host(host)
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
        return f"net: {text} does not end with a port; write host:port"
    if host != ANY_HOST and not _is_address(host) and not _HOST.fullmatch(host):
        return f"net: {text} has no host that can be understood; write host:port, [address]:port or *:port"
    return NetRule(host, int(port))


def normal_host(text: str) -> str:
    """One spelling for one host: lower case, no dot at the end, addresses as their library writes them."""
    bare = text.strip().lower().removesuffix(".").removeprefix("[").removesuffix("]")
    return str(ipaddress.ip_address(bare)) if _is_address(bare) else bare


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def find_program(name: str) -> str | None:
    return shutil.which(name)


def child_environment(policy: Policy, environment: Mapping[str, str]) -> dict[str, str]:
    """What the child sees: the variables that are named, and those without which Python guesses."""
    named = {name: environment[name] for name in policy.env if name in environment}
    plain = {"LANG": "C.UTF-8", "PATH": "/usr/local/bin:/usr/bin:/bin"}
    folders = [path for path in policy.write if Path(path).is_dir()]
    scratch = {"TMPDIR": folders[0]} if folders else {}
    return plain | scratch | without_server(named)


def without_server(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that do not hold the address of a Redis or Valkey, whatever they are called."""
    return {name: value for name, value in environment.items() if not _SERVER_URL.search(value)}
