"""What a hostile handler would try. Each probe returns something if it succeeds and raises if it is refused.

As a program it runs all probes without any sandbox and prints what came of them: the control.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
from pathlib import Path
import resource
import socket
import stat
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.panqueue import Job

_SEIZE = 0x4206
_NEW_USER = 0x10000000
_MOST_FORKS = 12
_LARGE = 400 << 20


def handle(job: Job[Any]) -> Any:
    """The handler of the tests: runs the probe that the payload names."""
    return PROBES[job.payload["probe"]](job.payload["world"])


def read_allowed(world: dict[str, Any]) -> str:
    return Path(world["allowed_file"]).read_text()


def write_allowed(world: dict[str, Any]) -> int:
    return (Path(world["out"]) / "result").write_text("done")


def read_outside(world: dict[str, Any]) -> str:
    return Path(world["secret"]).read_text()


def see_names_outside(world: dict[str, Any]) -> str:
    names = os.listdir(Path(world["secret"]).parent)  # noqa: PTH208
    if Path(world["secret"]).name not in names:
        raise LookupError(f"only {names}")
    return str(names)


def write_outside(world: dict[str, Any]) -> int:
    return Path(world["outside_file"]).write_text("mine")


def write_into_memory(world: dict[str, Any]) -> int:
    return Path(f"/dev/shm/pq-{os.getpid()}").write_text("mine")


def write_to_what_may_be_read(world: dict[str, Any]) -> int:
    return (Path(world["allowed_file"]).parent / "new").write_text("mine")


def truncate_outside(world: dict[str, Any]) -> str:
    os.truncate(world["outside_file"], 0)
    return "truncated"


def change_mode_outside(world: dict[str, Any]) -> str:
    Path(world["outside_file"]).chmod(0o600)
    return "changed"


def change_times_outside(world: dict[str, Any]) -> str:
    os.utime(world["outside_file"], (1, 1))
    return "changed"


def read_through_dots(world: dict[str, Any]) -> str:
    return (Path(world["allowed_file"]).parent / ".." / Path(world["secret"]).name).read_text()


def read_through_a_link_that_was_there(world: dict[str, Any]) -> str:
    return Path(world["planted_link"]).read_text()


def read_through_a_link_of_ones_own(world: dict[str, Any]) -> str:
    link = Path(world["out"]) / f"link-{os.getpid()}"
    link.symlink_to(world["secret"])
    return link.read_text()


def write_through_a_link_of_ones_own(world: dict[str, Any]) -> int:
    link = Path(world["out"]) / f"target-{os.getpid()}"
    link.symlink_to(world["outside_file"])
    return link.write_text("mine")


def read_through_a_hard_link(world: dict[str, Any]) -> str:
    link = Path(world["out"]) / f"hard-{os.getpid()}"
    link.hardlink_to(world["secret"])
    return link.read_text()


def read_through_the_parents_root(world: dict[str, Any]) -> str:
    return Path(f"/proc/{world['parent']}/root{world['secret']}").read_text()


def read_the_parents_environment(world: dict[str, Any]) -> str:
    return str("MARK" in Path(f"/proc/{world['parent']}/environ").read_text())


def read_the_parents_memory(world: dict[str, Any]) -> str:
    with Path(f"/proc/{world['parent']}/mem").open("rb"):
        return "open"


def list_the_parents_descriptors(world: dict[str, Any]) -> list[str]:
    return os.listdir(f"/proc/{world['parent']}/fd")  # noqa: PTH208


def signal_the_parent(world: dict[str, Any]) -> str:
    os.kill(world["parent"], 0)
    return "reached"


def signal_the_parent_by_a_file(world: dict[str, Any]) -> str:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fcntl.fcntl(ours, fcntl.F_SETOWN, world["parent"])
    return "named as owner"


def limit_the_parent(world: dict[str, Any]) -> str:
    return str(resource.prlimit(world["parent"], resource.RLIMIT_NOFILE))


def trace_the_parent(world: dict[str, Any]) -> str:
    _call("ptrace", _SEIZE, world["parent"], 0, 0)
    return "traced"


def connect_to_another_port(world: dict[str, Any]) -> str:
    return _greeting(socket.create_connection(("127.0.0.1", world["other_port"]), timeout=5))


def connect_to_another_host(world: dict[str, Any]) -> str:
    return _greeting(socket.create_connection(("127.0.0.2", world["port"]), timeout=5))


def tunnel_to_another_port(world: dict[str, Any]) -> str:
    return _greeting(_through_proxy("127.0.0.1", world["other_port"]))


def tunnel_to_another_host(world: dict[str, Any]) -> str:
    return _greeting(_through_proxy("127.0.0.2", world["port"]))


def connect_as_allowed(world: dict[str, Any]) -> str:
    return _greeting(_through_proxy("127.0.0.1", world["port"]))


def send_udp(world: dict[str, Any]) -> str:
    with socket.socket(type=socket.SOCK_DGRAM) as line:
        line.sendto(b"x", ("127.0.0.1", world["udp_port"]))
    return "sent"


def connect_to_a_unix_socket(world: dict[str, Any]) -> str:
    line = socket.socket(socket.AF_UNIX)
    line.connect(world["unix"])
    return _greeting(line)


def connect_to_an_abstract_socket(world: dict[str, Any]) -> str:
    line = socket.socket(socket.AF_UNIX)
    line.connect("\0" + world["abstract"])
    return _greeting(line)


def connect_by_multipath_tcp(world: dict[str, Any]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as line:
        line.connect(("127.0.0.1", world["other_port"]))
    return "connected"


def connect_by_fast_open(world: dict[str, Any]) -> str:
    with socket.socket() as line:
        line.sendto(b"x", 0x20000000, ("127.0.0.1", world["other_port"]))
    return "connected"


def wait_for_visitors(_: dict[str, Any]) -> str:
    with socket.socket() as line:
        line.listen()
    return "listening"


def fork_many(_: dict[str, Any]) -> str:
    """A small bomb: it ends by itself, and leaves nothing."""
    for _number in range(_MOST_FORKS):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
    return "forked"


def start_a_program(_: dict[str, Any]) -> int:
    return os.spawnv(os.P_WAIT, "/bin/true", ["true"])


def become_a_program(_: dict[str, Any]) -> str:
    # Refused, it returns; the control lets a child of its own do it.
    os.execv("/bin/true", ["true"])


def take_memory(_: dict[str, Any]) -> int:
    return len(bytearray(_LARGE))


def take_memory_of_no_process(_: dict[str, Any]) -> str:
    os.close(os.memfd_create("hidden"))
    return "made"


def make_a_user_namespace(_: dict[str, Any]) -> str:
    _call("unshare", _NEW_USER)
    return "made"


def see_the_servers_address(_: dict[str, Any]) -> str:
    found = [name for name, value in os.environ.items() if "MARK" in value]
    if not found:
        raise LookupError("nothing in the environment")
    return ", ".join(found)


def see_open_sockets(_: dict[str, Any]) -> str:
    found = [number for number in range(3, 100) if _is_inet(number)]
    if not found:
        raise LookupError("no descriptor that leads to a network")
    return str(found)


def _is_inet(number: int) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
    except OSError:
        return False
    # Not through socket.socket: it would close what it was given.
    with socket.socket(fileno=os.dup(number)) as line:
        return line.family in {socket.AF_INET, socket.AF_INET6}


def _greeting(line: socket.socket) -> str:
    with line:
        return line.recv(100).decode()


def _through_proxy(host: str, port: int) -> socket.socket:
    """As an HTTP client would, where there is a proxy; else directly."""
    proxy = urlsplit(os.environ.get("https_proxy", "")).port
    if proxy is None:
        return socket.create_connection((host, port), timeout=5)
    line = socket.create_connection(("127.0.0.1", proxy), timeout=5)
    line.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += line.recv(1) or b"\r\n\r\n"
    if b" 200 " not in answer:
        raise PermissionError(answer.decode())
    return line


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*map(ctypes.c_long, arguments)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


PROBES: dict[str, Callable[[dict[str, Any]], Any]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", None) == __name__ and not name.startswith("_")
}
del PROBES["handle"]


def _control(world: dict[str, Any]) -> dict[str, str]:
    """Every probe in a process of its own, without any sandbox: what it returned, or the error."""
    told = {}
    for name, probe in PROBES.items():
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            if name == "become_a_program":
                os.write(theirs, b"became")
                probe(world)
            try:
                os.write(theirs, f"{probe(world)}"[:200].encode())
            except BaseException as fault:  # noqa: BLE001  every refusal is an answer
                os.write(theirs, f"refused: {fault}".encode())
            os._exit(0)
        os.close(theirs)
        os.waitpid(pid, 0)
        told[name] = os.read(ours, 500).decode()
        os.close(ours)
    return told


if __name__ == "__main__":
    print(json.dumps(_control(json.loads(sys.argv[1]))))  # noqa: T201
