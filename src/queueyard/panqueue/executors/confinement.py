"""A process locks itself in: limits, capabilities, Landlock, seccomp, in this order, and no way back.

Called by a child before it loads a line of the handler's code. Standard library only.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
import os
import resource
import sys

from queueyard.panqueue.executors import landlock, seccomp, syscalls

_DIE_WITH_PARENT, _SIGKILL = 1, 9
_CAPABILITIES_VERSION_3 = 0x20080522
_ALL = (1 << 64) - 1
#: with one of these, the kernel lets root read the environment of any process
_SYS_ADMIN, _PERFMON = 1 << 21, 1 << 38
_MOST_OPEN_FILES = 256
_MIB = 1 << 20
#: threads of the child itself, and what bubblewrap leaves in the namespace
_OWN_TASKS = 8


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """What is left to a child, in terms of paths, ports and numbers."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    execute: tuple[str, ...]
    ports: tuple[int, ...]
    #: the version of Landlock to be used; 0: none
    landlock: int
    #: whether the child stands in namespaces of its own
    namespaces: bool
    processes: int
    memory_mb: int
    cpu_s: int | None


def enter(left: Confinement) -> None:
    """Give up everything else. OSError if the kernel refuses; then nothing of the handler may be run."""
    _limit(left)
    _drop_capabilities(_ALL)
    if left.landlock:
        landlock.restrict(read=left.read, write=left.write, execute=left.execute, ports=left.ports, up_to=left.landlock)
    seccomp.restrict(
        seccomp.Allowed(
            processes=left.processes > 0,
            programs=bool(left.execute),
            tcp=bool(left.ports),
            metadata=left.namespaces,
            signals_to=None if left.namespaces else os.getpid(),
        )
    )


def die_with_parent() -> None:
    """A worker that is killed leaves no child behind that does not listen."""
    if sys.platform == "linux":
        syscalls.prctl(_DIE_WITH_PARENT, _SIGKILL)


def hide_parent() -> None:
    """A child that is not locked in may do much, but not read the worker's memory, environment and descriptors."""
    if landlock.version():
        _drop_capabilities(_SYS_ADMIN | _PERFMON)
        landlock.hide_parent()


def limit_processor_time(cpu_s: int) -> None:
    """So many seconds from now on; then the kernel kills."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = cpu_s + int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _limit(left: Confinement) -> None:
    memory = left.memory_mb * _MIB
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_MOST_OPEN_FILES, _MOST_OPEN_FILES))
    if left.processes:
        most = left.processes + _OWN_TASKS
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    if left.cpu_s is not None:
        limit_processor_time(left.cpu_s)


def _drop_capabilities(which: int) -> None:
    """Root without these powers; what it starts does not get them back, because privileges can no longer be gained."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION_3, 0)
    # Effective, permitted and inheritable ones, first the lower halves of all, then the upper.
    sets = (ctypes.c_uint32 * 6)()
    syscalls.call("capget", ctypes.byref(header), ctypes.byref(sets))
    for place in range(6):
        sets[place] &= ~(which >> (32 if place >= 3 else 0)) & 0xFFFFFFFF
    syscalls.call("capset", ctypes.byref(header), ctypes.byref(sets))
