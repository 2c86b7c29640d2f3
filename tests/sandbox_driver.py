"""Builds a small world, tries every probe in it with and without a sandbox, and prints both answers as JSON.

A program of its own, so that the tests can run it as another user: python sandbox_driver.py LEVEL, where LEVEL is
namespaces, landlock, namespaces-alone for a kernel that has no Landlock, or landlock-3 for one whose Landlock knows
neither ports nor signals.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
import ctypes
import json
import os
from pathlib import Path
import socket
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any
import uuid

import msgspec

from queueyard.panqueue.errors import PanqueueError
from queueyard.panqueue.executors import Policy, Sandbox
from queueyard.panqueue.executors.machine import Machine, this_machine
from queueyard.panqueue.jobs import Held
from queueyard.panqueue.queues import Queue
from queueyard.panqueue.records import KEEP_RESULTS
import sandbox_probes

if TYPE_CHECKING:
    from collections.abc import Iterator

_SET_PTRACER, _ANYBODY = 0x59616D61, -1
QUEUE: Queue[Any, Any] = Queue("probes", keep_completed=KEEP_RESULTS)


def machine_of(level: str) -> Machine:
    """This machine, with some of its parts left out."""
    here = this_machine()
    match level:
        case "namespaces":
            return here
        case "namespaces-alone":
            return msgspec.structs.replace(here, landlock=0)
        case _:
            version = 3 if level == "landlock-3" else here.landlock
            return msgspec.structs.replace(here, bubblewrap=None, trouble="left out", landlock=version)


def held(payload: Any) -> Held[Any]:
    return Held("1", QUEUE.id, 1, 0, None, "token", None, False, msgspec.json.encode(payload), None, 0.0, 0.0)


@contextmanager
def a_world() -> Iterator[dict[str, Any]]:
    """Files inside and outside, and servers that greet whoever gets through."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pq-world-")))
        for name in ("in", "out"):
            (folder / name).mkdir()
        (folder / "in" / "file").write_text("allowed")
        (folder / "secret").write_text("secret")
        (folder / "outside").write_text("outside")
        (folder / "in" / "link").symlink_to(folder / "secret")
        port = _greeter(stack, "127.0.0.1", 0)
        _greeter(stack, "127.0.0.2", port)
        udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        abstract = f"pq-{uuid.uuid4().hex}"
        _greeter(stack, str(folder / "in" / "s"))
        _greeter(stack, "\0" + abstract)
        yield {
            "allowed_file": str(folder / "in" / "file"),
            "out": str(folder / "out"),
            "secret": str(folder / "secret"),
            "outside_file": str(folder / "outside"),
            "planted_link": str(folder / "in" / "link"),
            "parent": os.getpid(),
            "port": port,
            "other_port": _greeter(stack, "127.0.0.1", 0),
            "udp_port": udp.getsockname()[1],
            "unix": str(folder / "in" / "s"),
            "abstract": abstract,
        }


def _greeter(stack: ExitStack, address: str, port: int | None = None) -> int:
    family = socket.AF_UNIX if port is None else socket.AF_INET
    listener = stack.enter_context(socket.socket(family))
    listener.bind(address if port is None else (address, port))
    listener.listen(64)

    def greet() -> None:
        while True:
            try:
                line, _ = listener.accept()
            except OSError:
                return
            with line:
                line.sendall(b"hello")

    threading.Thread(target=greet, daemon=True).start()
    return 0 if port is None else int(listener.getsockname()[1])


def policy_for(world: dict[str, Any], level: str) -> Policy:
    host = "*" if level == "landlock" else "127.0.0.1"
    net = () if level == "landlock-3" else (f"{host}:{world['port']}",)
    folder = str(Path(world["allowed_file"]).parent)
    return Policy(read=(folder,), write=(world["out"],), net=net, memory_mb=256)


async def _inside(world: dict[str, Any], level: str) -> dict[str, str]:
    told = {}
    crew = Sandbox(policy_for(world, level), machine=machine_of(level)).crew(QUEUE, sandbox_probes.handle)
    for name in sandbox_probes.PROBES:
        try:
            told[name] = f"{await crew.run(held({'probe': name, 'world': world}))}"
        except PanqueueError as fault:
            told[name] = f"refused: {fault}"
    started = crew.pool.started
    await crew.close()
    return told | {"children": str(started)}


def main(level: str) -> None:
    # Where only parents may trace, the control needs leave to trace its parent.
    ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_long(_ANYBODY), 0, 0, 0)
    with a_world() as world, socket.create_connection(("127.0.0.1", world["port"])) as line:
        line.set_inheritable(True)
        inside = asyncio.run(_inside(world, level))
        control = subprocess.run(
            [sys.executable, sandbox_probes.__file__, json.dumps(world)],
            stdout=subprocess.PIPE,
            close_fds=False,
            check=True,
        )
    print(json.dumps({"inside": inside, "control": json.loads(control.stdout)}))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
