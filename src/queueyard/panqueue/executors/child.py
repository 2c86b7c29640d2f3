"""The program of a child: lock oneself in, load the handler, and run one job after the other.

Started by file name in isolated mode, with the channel as its standard input. Until the first message has said where
Python's packages are, the standard library is all there is. Everything behind `confinement.enter` is untrusted.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.panqueue.executors.calling import Calls
    from queueyard.panqueue.executors.line import Line


def main() -> None:
    channel = _take_channel()
    head, bell = _take_bell(channel)
    hello: dict[str, Any] = json.loads(_exactly(channel, int.from_bytes(head + _exactly(channel, 3), "big")))
    sys.path[:] = hello["path"]

    from queueyard.panqueue.executors import confinement, messages  # noqa: PLC0415
    from queueyard.panqueue.executors.calling import Calls  # noqa: PLC0415
    from queueyard.panqueue.executors.handlers import Handler  # noqa: PLC0415
    from queueyard.panqueue.executors.line import Line  # noqa: PLC0415

    line = Line(channel)
    try:
        _lock_in(channel, hello, confinement)
        calls = Calls(Handler(*hello["handler"]), line, keeps_result=hello["keeps_result"])
    except BaseException as fault:  # noqa: BLE001  whatever a module raises while it is loaded
        line.send(messages.Broken(_told(fault, is_locked_in=hello["confinement"] is not None)))
        return
    threading.Thread(target=_hear, args=(Line(bell), calls), daemon=True, name="panqueue-bell").start()
    line.send(messages.Ready())
    while (answer := calls.next_answer()) is not None:
        line.send(answer)
    calls.close()


def _hear(bell: Line, calls: Calls) -> None:
    """Listen while the handler is busy; only the bell is heard here, so a job costs no change of threads."""
    while True:
        try:
            message: Any = bell.receive()
        except (EOFError, OSError):
            # Nobody waits for what the handler may be doing.
            os._exit(0)
        calls.cancel(message.turn)


def _told(fault: BaseException, *, is_locked_in: bool) -> str:
    told = f"{type(fault).__name__}: {fault}"
    if is_locked_in and isinstance(fault, ModuleNotFoundError | PermissionError):
        return f"{told}; for a module beside the handler, the policy has to name that folder in read"
    return told


def _lock_in(channel: socket.socket, hello: dict[str, Any], confinement: Any) -> None:
    confinement.die_with_parent()
    left = hello["confinement"]
    if left is None:
        confinement.hide_parent()
        return
    if hello["is_proxied"]:
        left["ports"] = [_offer_proxy(channel)]
    confinement.enter(confinement.Confinement(**left))


def _offer_proxy(channel: socket.socket) -> int:
    """Hand the parent a socket that listens in our network, where it will serve as our proxy; gives the port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        socket.send_fds(channel, [b"p"], [listener.fileno()])
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ[name] = f"http://127.0.0.1:{port}"
    return port


def _take_channel() -> socket.socket:
    """Standard input is the channel; whoever reads from it later finds nothing."""
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _take_bell(channel: socket.socket) -> tuple[bytes, socket.socket]:
    """The first byte, and the end of the second line that comes with it."""
    first, (bell,), _, _ = socket.recv_fds(channel, 1, 1)
    os.set_inheritable(bell, False)
    return first, socket.socket(fileno=bell)


def _exactly(channel: socket.socket, count: int) -> bytes:
    parts: list[bytes] = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()
