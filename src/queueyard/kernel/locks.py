"""Exclusive locks between processes and between threads, by flock.

Promises: never two holders of one lock file; a lock whose holder died is free by construction, because the kernel
drops it with the process; whoever waits is told who holds it. The lock file itself is never deleted (deleting one
that somebody waits for would make two locks of it); the text in it is information, never the lock.

One limit: a child made by fork without exec shares the lock. Children of `queueyard.kernel.proc` do not.
"""

from __future__ import annotations

from contextlib import suppress
import fcntl
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Self

import msgspec

from queueyard.kernel import proc
from queueyard.kernel.atomic import NOT_UNDERSTOOD, is_still_at
from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.kernel.errors import LockTimeout, explaining

if TYPE_CHECKING:
    from types import TracebackType

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lock."""

    #: process id on `host`
    pid: int
    #: start time of that process, as `proc.Identity.started`
    started: str
    #: name of the machine
    host: str
    #: the command line, as far as it fits
    command: str
    #: RFC 3339, when the lock was taken
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {self.since} ({self.command})"


class FileLock:
    """`with FileLock(path): ...` — one instance is one attempt to hold; it can be used again after release."""

    def __init__(
        self, path: Path, *, timeout_s: float | None = 10.0, clock: Clock = SYSTEM_CLOCK, mode: int = 0o644
    ) -> None:
        """`timeout_s=0` refuses at once, `None` waits for ever."""
        self.path = path
        self._timeout_s = timeout_s
        self._clock = clock
        self._mode = mode
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock. LockTimeout, naming the holder, if it is not free in time."""
        if self.held:
            raise RuntimeError(f"{self.path} is already held by this object")
        with explaining("lock", self.path):
            self._descriptor = self._wait()
        # The signature is for people: a full disk must not keep anybody from holding the lock.
        with suppress(OSError):
            self._sign(self._descriptor)

    def release(self) -> None:
        """Give the lock back; harmless when it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # As in acquire: the signature is for people, and a disk that refuses must not fail whoever is done.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def holder(self) -> Holder | None:
        """Who holds it now, or None if it is free or its holder has not signed yet.

        Read from the signature and checked against the living processes of this machine; trying the lock instead
        would make somebody else's `timeout_s=0` fail for no reason.
        """
        try:
            holder = msgspec.json.decode(self.path.read_bytes(), type=Holder)
        except (OSError, *NOT_UNDERSTOOD):
            return None
        here = holder.host == os.uname().nodename
        return holder if not here or proc.is_alive(proc.Identity(holder.pid, holder.started)) else None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _wait(self) -> int:
        deadline = None if self._timeout_s is None else self._clock.monotonic() + self._timeout_s
        pause = _FIRST_PAUSE_S
        while True:
            descriptor = self._try_once()
            if descriptor is not None:
                return descriptor
            if deadline is not None and self._clock.monotonic() >= deadline:
                raise self._too_late()
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _try_once(self) -> int | None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode)
        try:
            # The second check: somebody may have deleted the file between open and flock.
            if _try_flock(descriptor) and is_still_at(descriptor, self.path):
                held, descriptor = descriptor, -1
                return held
            return None
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _sign(self, descriptor: int) -> None:
        me = proc.own_identity()
        holder = Holder(
            pid=me.pid,
            started=me.started,
            host=os.uname().nodename,
            command=_own_command(),
            since=to_rfc3339(self._clock.now()),
        )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(holder), 0)

    def _too_late(self) -> LockTimeout:
        holder = self.holder()
        waited = "" if not self._timeout_s else f" after {self._timeout_s:g} s"
        who = f"held by {holder}" if holder else "held by another process"
        return LockTimeout(
            f"{self.path} is locked{waited}: {who}",
            hint="Wait for it to finish, or end it"
            + (f": kill {holder.pid}" if holder and holder.host == os.uname().nodename else "."),
        )


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _own_command() -> str:
    # The program and its verb only: further arguments may hold a token.
    verb = next(iter(sys.argv[1:]), "")
    return f"{Path(sys.argv[0]).name} {'' if verb.startswith('-') else verb}".strip()[:80]
