"""The program of a child: lock oneself in, load the handler, and run one job after the other.

Started by file name in isolated mode, with the channel as its standard input. Until the first message has said where
Python's packages are, the standard library is all there is. Everything behind `confinement.enter` is untrusted.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any


def main() -> None:
    channel = _take_channel()
    hello: dict[str, Any] = json.loads(_receive(channel))
    sys.path[:] = hello["path"]

    from queueyard.panqueue.executors import confinement, messages  # noqa: PLC0415
    from queueyard.panqueue.executors.calling import Calls  # noqa: PLC0415
    from queueyard.panqueue.executors.handlers import Handler  # noqa: PLC0415

    try:
        _lock_in(channel, hello, confinement)
        calls = Calls(Handler(*hello["handler"]), keeps_result=hello["keeps_result"])
    except BaseException as fault:  # noqa: BLE001  whatever a module raises while it is loaded
        channel.sendall(messages.frame(messages.Broken(_told(fault, is_locked_in=hello["confinement"] is not None))))
        return
    channel.sendall(messages.frame(messages.Ready()))
    calls.listen(lambda: messages.read_by_child(_receive(channel)), lambda note: channel.sendall(messages.frame(note)))
    while (answer := calls.next_answer()) is not None:
        channel.sendall(messages.frame(answer))


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


def _receive(channel: socket.socket) -> bytes:
    """One message. EOFError once the parent is gone."""
    length = int.from_bytes(_exactly(channel, 4), "big")
    return _exactly(channel, length)


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
