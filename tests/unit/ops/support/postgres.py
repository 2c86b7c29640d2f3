"""A real PostgreSQL, started for the tests from what Debian installs, on a socket in a folder of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
import importlib.util
import os
from pathlib import Path
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS = "/usr/lib/postgresql"


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
    """An empty database server. Without one the test is skipped; where one is required it fails."""
    programs = _find_programs()
    if programs is None:
        _do_without("PostgreSQL is not installed: apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        _do_without("psycopg is not installed: pip install 'queueyard[postgres]'")
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    owner = _owner()
    try:
        shutil.chown(folder, owner, owner) if owner else None
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
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    return next((path.parent for path in sorted(Path(_PROGRAMS).glob("*/bin/initdb"), reverse=True)), None)


def _owner() -> str | None:
    """PostgreSQL refuses to run as root; its own user is there once it is installed."""
    return "postgres" if os.geteuid() == 0 else None


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
    if os.environ.get("CI") == "true" and os.environ.get("QUEUEYARD_REQUIRE_POSTGRES"):
        pytest.fail(reason)
    pytest.skip(reason)
