"""Landlock: a process gives up, for itself and all that it starts, every file and port that it does not name.

Rights are those of the kernel's version 7 and before; a kernel that knows fewer is asked for fewer. What Landlock does
not see: UDP, sockets with a path, the metadata of files. `seccomp.py` covers these.
"""

from __future__ import annotations

import ctypes
import os
import stat
from typing import TYPE_CHECKING

from queueyard.panqueue.executors import syscalls

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERSION = 1
_PATH_RULE, _PORT_RULE = 1, 2
_NO_NEW_PRIVILEGES = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE = 1 << 4 | 1 << 5
_MAKE_DIR, _MAKE_REG, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = 1 << 7, 1 << 8, 1 << 10, 1 << 11, 1 << 12
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

_READ = _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _REMOVE | _MAKE_DIR | _MAKE_REG | _MAKE_FIFO | _MAKE_SYM | _REFER | _TRUNCATE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: rights over files by version: 13 at first, then one more with versions 2, 3 and 5
_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

FIRST_WITH_TRUNCATE = 3
FIRST_WITH_PORTS = 4
FIRST_WITH_SIGNALS = 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def version() -> int:
    """The version that this kernel speaks; 0 if it has none, or it is switched off."""
    if not syscalls.is_known_machine():
        return 0
    try:
        return syscalls.call("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def restrict(
    *, read: Iterable[str], write: Iterable[str], execute: Iterable[str], ports: Iterable[int], up_to: int
) -> None:
    """Keep these, give up the rest; for ever. A path that is gone is not kept. OSError if the kernel refuses.

    `up_to`: use nothing that came after this version.
    """
    spoken = min(version(), up_to)
    files = (1 << _RIGHTS_OF_VERSION.get(spoken, 16)) - 1
    net = _BIND_TCP | _CONNECT_TCP if spoken >= FIRST_WITH_PORTS else 0
    scoped = _ABSTRACT_SOCKETS | _SIGNALS if spoken >= FIRST_WITH_SIGNALS else 0
    ruleset = _make(files, net, scoped)
    try:
        for paths, rights in ((read, _READ), (write, _WRITE), (execute, _READ | _EXECUTE)):
            for path in paths:
                _keep_path(ruleset, path, rights & files)
        for port in ports if net else ():
            rule = _PortRule(_CONNECT_TCP, port)
            syscalls.call("landlock_add_rule", ruleset, _PORT_RULE, ctypes.byref(rule), 0)
        _enter(ruleset)
    finally:
        os.close(ruleset)


def hide_parent() -> None:
    """Give up nothing but other processes: their memory, environment and descriptors cannot be read any more."""
    # A ruleset cannot be empty: the right to make block devices is one that no ordinary program uses.
    ruleset = _make(_MAKE_BLOCK, 0, 0)
    try:
        _enter(ruleset)
    finally:
        os.close(ruleset)


def _make(files: int, net: int, scoped: int) -> int:
    asked = _Ruleset(files, net, scoped)
    # Older kernels know a shorter struct, and refuse a longer one only if the rest is not zero.
    return syscalls.call("landlock_create_ruleset", ctypes.byref(asked), ctypes.sizeof(asked), 0)


def _enter(ruleset: int) -> None:
    syscalls.prctl(_NO_NEW_PRIVILEGES, 1)
    syscalls.call("landlock_restrict_self", ruleset, 0)


def _keep_path(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        rule = _PathRule(rights, descriptor)
        syscalls.call("landlock_add_rule", ruleset, _PATH_RULE, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
