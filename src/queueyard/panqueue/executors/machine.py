"""What this machine can enforce, asked of the kernel itself and not of a version number."""

from __future__ import annotations

from functools import cache
import os
import shutil

import msgspec

from queueyard.panqueue.executors import landlock, seccomp

_LONGEST_TRIAL_S = 20.0


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that a sandbox can be made of."""

    #: bubblewrap, if it is here and may make namespaces
    bubblewrap: str | None
    #: why there is none
    trouble: str | None = None
    #: the version of Landlock; 0: none
    landlock: int
    #: whether system calls can be refused
    seccomp: bool
    is_root: bool


@cache
def this_machine() -> Machine:
    """Ask once per process; a few milliseconds."""
    program = shutil.which("bwrap")
    trouble = "bubblewrap is not installed" if program is None else _trouble_with(program)
    return Machine(
        bubblewrap=None if trouble else program,
        trouble=trouble,
        landlock=landlock.version(),
        seccomp=seccomp.is_available(),
        is_root=os.geteuid() == 0,
    )


def _trouble_with(program: str) -> str | None:
    """What bubblewrap says if it may not do here what it is there for."""
    import subprocess  # noqa: PLC0415  costs 10 ms that a worker without sandboxes need not pay

    trial = [program, "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    try:
        done = subprocess.run([*trial, "/bin/true"], capture_output=True, timeout=_LONGEST_TRIAL_S, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired) as fault:
        return f"bubblewrap cannot be used: {fault}"
    if not done.returncode:
        return None
    said = done.stderr.decode("utf-8", "replace").partition("\n")[0]
    return f"bubblewrap may not make namespaces here: {said or f'exit code {done.returncode}'}"
