"""seccomp: system calls that a sandboxed process may no longer make, as a filter program for the kernel.

The program is a list of small tests, written here in Python and handed to the kernel as it is; nothing is compiled. It
refuses what leads out of the sandbox or into other processes, and lets ordinary programs work.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
import errno
import platform
import struct

from queueyard.panqueue.executors import syscalls

_NO_NEW_PRIVILEGES = 38
_SET_FILTER = 1
_ALL_THREADS = 1

_LOAD, _IF_EQUAL, _IF_GREATER, _IF_SET, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW, _FAIL_WITH, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER_AT, _MACHINE_AT = 0, 4
_X32 = 0x3FFFFFFF

_CLONE_THREAD = 0x00010000
#: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_CLONE_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_INET, _INET6, _STREAM, _TYPE_BITS, _TCP = 2, 10, 1, 0xF, 6
_FAST_OPEN = 0x20000000
_TYPE_AHEAD, _CONSOLE_PASTE = 0x5412, 0x541C
#: F_SETOWN, F_SETSIG, F_SETOWN_EX and the same by ioctl: a file that sends signals to another process
_FILE_OWNERS, _SOCKET_OWNERS = (8, 10, 15), (0x8901, 0x8902)

#: other processes, the kernel, other ways to reach files, memory that no limit counts, being a server
_NEVER = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "migrate_pages"),
    *("move_pages", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr", "setpriority"),
    *("ioprio_set", "shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl", "semget", "semop", "semctl"),
    *("semtimedop", "mq_open", "mq_unlink", "io_uring_setup", "io_uring_enter", "io_uring_register", "bpf"),
    *("perf_event_open", "userfaultfd", "add_key", "request_key", "keyctl", "mount", "umount2", "move_mount"),
    *("open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "pivot_root"),
    *("chroot", "unshare", "setns", "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("open_by_handle_at", "name_to_handle_at", "swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "syslog", "sethostname", "setdomainname"),
    *("vhangup", "fanotify_init", "personality", "memfd_create", "memfd_secret", "iopl", "ioperm", "modify_ldt"),
    # Landlock does not ask who listens on a socket that was never bound.
    *("bind", "listen", "accept", "accept4"),
)
#: Landlock does not ask who changes owner, mode, times and attributes of a file by its path
_METADATA = (
    *("chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "utimensat", "futimesat"),
    *("setxattr", "lsetxattr", "setxattrat", "removexattr", "lremovexattr", "removexattrat", "file_setattr"),
)
#: calls whose first argument says which process gets a signal
_SIGNALS = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """What differs between policies."""

    processes: bool = False
    programs: bool = False
    #: sockets for TCP; others never
    tcp: bool = False
    #: owner, mode, times and attributes of files by their paths
    metadata: bool = False
    #: None: to whom the process sees; else to this one only
    signals_to: int | None = None


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_available() -> bool:
    """Whether this kernel takes such programs, and we know its numbers."""
    if not syscalls.is_known_machine():
        return False
    action = ctypes.c_uint32(_FAIL_WITH)
    try:
        return syscalls.call("seccomp", 2, 0, ctypes.byref(action)) == 0
    except OSError:
        return False


def restrict(allowed: Allowed) -> None:
    """Give up the calls; for this process, its threads and all that it starts. OSError if the kernel refuses."""
    load(program(allowed))


def load(code: bytes) -> None:
    """Hand a program to the kernel."""
    syscalls.prctl(_NO_NEW_PRIVILEGES, 1)
    handed = _Program(len(code) // 8, code)
    syscalls.call("seccomp", _SET_FILTER, _ALL_THREADS, ctypes.byref(handed))


def program(allowed: Allowed) -> bytes:
    """The filter as the kernel reads it."""
    refused = [*_NEVER]
    refused += () if allowed.metadata else _METADATA
    refused += () if allowed.programs else ("execve", "execveat")
    refused += () if allowed.processes else ("fork", "vfork")
    refused += () if allowed.signals_to is None else ("tkill", "pidfd_send_signal")
    parts = [
        *_only_this_machine(),
        *(step for name in refused for step in refuse(name)),
        # glibc then uses clone, whose flags can be looked at.
        *refuse("clone3", errno.ENOSYS),
        *_when("clone", _clone(forks=allowed.processes)),
        *_when("socket", _socket(tcp=allowed.tcp)),
        *_when("prlimit64", [*_argument(0), _step(_IF_EQUAL, 0, 1, 0), _fail(errno.EPERM)]),
        *_when("ioctl", [*_argument(1), *_refuse_values(_TYPE_AHEAD, _CONSOLE_PASTE, *_SOCKET_OWNERS)]),
        *_when("fcntl", [*_argument(1), *_refuse_values(*_FILE_OWNERS)]),
        *(step for name in _SIGNALS for step in _only_to(name, allowed.signals_to)),
        # TCP Fast Open connects without asking Landlock.
        *_when("sendto", _refuse_flag(3, _FAST_OPEN)),
        *_when("sendmsg", _refuse_flag(2, _FAST_OPEN)),
        *_when("sendmmsg", _refuse_flag(3, _FAST_OPEN)),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(parts)


def refuse(name: str, with_error: int = errno.EPERM) -> list[bytes]:
    """Steps that let one call fail, whatever its arguments; none where the machine has no such call."""
    return _when(name, [_fail(with_error)])


def only_refusing(*names: str) -> bytes:
    """A program that refuses these calls and allows all others."""
    steps = [_step(_LOAD, _NUMBER_AT), *(step for name in names for step in refuse(name)), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _only_this_machine() -> list[bytes]:
    _, audit = syscalls.MACHINES[platform.machine()]
    return [
        _step(_LOAD, _MACHINE_AT),
        _step(_IF_EQUAL, audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        _step(_IF_GREATER, _X32, 0, 1),
        _step(_RETURN, _KILL),
        # What was invented later is answered as an older kernel would.
        _step(_IF_GREATER, syscalls.NEWEST, 0, 1),
        _fail(errno.ENOSYS),
    ]


def _clone(*, forks: bool) -> list[bytes]:
    steps = [*_argument(0), _step(_IF_SET, _CLONE_NAMESPACES, 0, 1), _fail(errno.EPERM)]
    return steps if forks else [*steps, _step(_IF_SET, _CLONE_THREAD, 1, 0), _fail(errno.EPERM)]


def _socket(*, tcp: bool) -> list[bytes]:
    if not tcp:
        return [_fail(errno.EACCES)]
    return [
        *(*_argument(0), _step(_IF_EQUAL, _INET, 2, 0), _step(_IF_EQUAL, _INET6, 1, 0), _fail(errno.EACCES)),
        *(*_argument(1), _step(_AND, _TYPE_BITS), _step(_IF_EQUAL, _STREAM, 1, 0), _fail(errno.EACCES)),
        # Not MPTCP or SCTP: Landlock looks at TCP only.
        *(*_argument(2), _step(_IF_EQUAL, 0, 2, 0), _step(_IF_EQUAL, _TCP, 1, 0), _fail(errno.EACCES)),
    ]


def _only_to(name: str, pid: int | None) -> list[bytes]:
    return [] if pid is None else _when(name, [*_argument(0), _step(_IF_EQUAL, pid, 1, 0), _fail(errno.EPERM)])


def _refuse_flag(argument: int, flag: int) -> list[bytes]:
    return [*_argument(argument), _step(_IF_SET, flag, 0, 1), _fail(errno.EPERM)]


def _refuse_values(*values: int) -> list[bytes]:
    return [step for value in values for step in (_step(_IF_EQUAL, value, 0, 1), _fail(errno.EPERM))]


def _when(name: str, steps: list[bytes]) -> list[bytes]:
    """Steps that are taken for one call only; behind them the number of the call is loaded again."""
    number = syscalls.number_of(name)
    if number is None:
        return []
    body = [*steps, _step(_LOAD, _NUMBER_AT)] if len(steps) > 1 else steps
    return [_step(_IF_EQUAL, number, 0, len(body)), *body]


def _argument(place: int) -> list[bytes]:
    # The lower half: all that is compared here fits into it, and the kernel ignores the rest of an int.
    return [_step(_LOAD, 16 + 8 * place)]


def _fail(number: int) -> bytes:
    return _step(_RETURN, _FAIL_WITH | number)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
