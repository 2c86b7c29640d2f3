"""Child processes that never outlive their purpose, and process identities that never confuse two processes.

A child gets a process group of its own, so that stopping it stops what it started. Stopping is TERM, a time of
grace, then KILL. An identity is pid plus start time: pids are used again, pairs are not.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
import os
from pathlib import Path
import re
import select
import signal
import sys
from typing import IO, TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    import subprocess

# Compiled when first used: every command imports this module, few start children.
_NEVER_FOR_CHILDREN = (
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PWD$|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|COOKIE"
    # AUTH and AUTHORIZATION, but not GIT_AUTHOR_NAME
    r"|AUTH(?!OR(?!IZ))"
    r"|(REDIS|VALKEY|DATABASE)_?URL"
)


class Identity(msgspec.Struct, frozen=True):
    """One process, once: the pid, and when it started in the words of this machine."""

    pid: int
    started: str


def own_identity() -> Identity:
    return _identity_of_self(os.getpid())


@lru_cache(maxsize=1)
def _identity_of_self(pid: int) -> Identity:
    # Keyed by pid, so that a forked child does not take its parent's.
    return Identity(pid, _started(pid) or "unknown")


def identity_of(pid: int) -> Identity | None:
    """The identity behind a pid now; None if no process, or only a zombie, has it."""
    started = _started(pid)
    return None if started is None else Identity(pid, started)


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs; a zombie does not, and neither does another one with its pid."""
    return identity.started != "unknown" and identity_of(identity.pid) == identity


def _started(pid: int) -> str | None:
    if sys.platform != "linux":
        return _started_by_ps(pid)
    try:
        raw = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command stands in parentheses and may hold anything, spaces and parentheses too.
    fields = raw.rpartition(")")[2].split()
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{_boot()}-{ticks}"


@lru_cache(maxsize=1)
def _boot() -> str:
    # Ticks count from boot: without it, a pid and tick of before a restart could come again.
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


def _started_by_ps(pid: int) -> str | None:
    import subprocess  # noqa: PLC0415  costs 10 ms that no ordinary command needs

    answer = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def without_secrets(environment: Mapping[str, str], *, keep: Sequence[str] = ()) -> dict[str, str]:
    """The environment for a child: without tokens, passwords and server addresses, except those named."""
    return {
        name: value
        for name, value in environment.items()
        if name in keep or not re.search(_NEVER_FOR_CHILDREN, name, re.IGNORECASE)
    }


class Child:
    """A process that this one started, with everything that it started in turn."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.identity = identity_of(process.pid) or Identity(process.pid, "unknown")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdout(self) -> IO[bytes] | None:
        return self._process.stdout

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """The exit code, or None if it still runs after `timeout_s`."""
        import subprocess  # noqa: PLC0415  already loaded by whoever started the child

        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def stop(self, *, grace_s: float) -> int:
        """TERM to the whole group, wait `grace_s`, then KILL; gives the exit code. No member survives."""
        self._signal_group(signal.SIGTERM)
        code = self.wait(grace_s)
        # The leader may be gone while others of its group ignore TERM.
        self._signal_group(signal.SIGKILL)
        return self._process.wait() if code is None else code

    def _signal_group(self, number: signal.Signals) -> None:
        # The pid of a child that ended is free again once its group is empty: another process may lead it now.
        if identity_of(self.pid) in {None, self.identity}:
            signal_group(self.pid, number)


def start(
    argv: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> Child:
    """Start a child in its own session and process group. OSError if the program cannot be started.

    Without `env` it gets our environment less the secrets. Without `stdin` it reads nothing.
    """
    import subprocess  # noqa: PLC0415  costs 10 ms that a command without children need not pay

    return Child(
        subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=without_secrets(os.environ) if env is None else dict(env),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    )


def stop_stranger(identity: Identity, *, grace_s: float) -> bool:
    """Stop a process that is not our child, with its group if it leads one; True once it is gone.

    One that is gone already is not signalled: its pid may belong to another process by now.
    """
    if not is_alive(identity):
        return True
    send: Callable[[signal.Signals], None] = _sender_for(identity)
    for name, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        send(name)
        if wait_for_exit(identity, wait_s):
            break
    if identity_of(identity.pid) is None:
        send(signal.SIGKILL)  # what is left of its group
    return not is_alive(identity)


def wait_for_exit(identity: Identity, timeout_s: float | None) -> bool:
    """Wait for a process, ours or not, to end; False if it still runs after `timeout_s`."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return True
    try:
        if not is_alive(identity):
            return True
        # Not select(): it refuses descriptors above 1023.
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000))
    finally:
        os.close(descriptor)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group; nothing happens if nobody is left in it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _sender_for(identity: Identity) -> Callable[[signal.Signals], None]:
    try:
        leads = os.getpgid(identity.pid) == identity.pid
    except ProcessLookupError:
        leads = False

    def send(number: signal.Signals) -> None:
        if leads:
            signal_group(identity.pid, number)
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(identity.pid, number)

    return send
