"""A TCP proxy that understands just enough HTTP to break it: one fault per exchange, from a list.

Faults: `drop` (hang up before the request reaches the server), `lose` (let the server answer, then hang up), `cut`
(pass on half of the answer), `twice` (send the request twice, answer with the second answer), `slow` (pass it on in
small pieces), `hold` (take the request and never pass it on), `swallow` (let the server answer, and never pass that
on); the last two set `held`, and end when the client is gone. Anything else passes through.
"""

from __future__ import annotations

from contextlib import closing, suppress
import socket
import threading
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType


class FaultyProxy:
    """Stands between a client and a server as long as the block runs."""

    def __init__(self, server: str, faults: list[str]) -> None:
        """`faults`: one per exchange, in order; when they are used up, everything passes."""
        address = urlsplit(server)
        self._server = (address.hostname or "", address.port or 80)
        self._faults = list(faults)
        self._guard = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        #: (fault or "pass", first line of the request)
        self.seen: list[tuple[str, str]] = []
        #: a client waits for an answer that will not come
        self.held = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Closing alone does not wake a thread that waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError):
            client.settimeout(30)
            while (request := _message(client)) is not None:
                if not self._exchange(client, request):
                    return

    def _exchange(self, client: socket.socket, request: bytes) -> bool:
        """Whether the connection goes on."""
        with self._guard:
            fault = self._faults.pop(0) if self._faults else "pass"
            self.seen.append((fault, request.partition(b"\r\n")[0].decode()))
        if fault == "drop":
            return False
        if fault == "hold":
            return self._hold(client)
        answer = self._ask(request, in_pieces=fault == "slow")
        if fault == "twice":
            answer = self._ask(request)
        if fault == "swallow":
            return self._hold(client)
        if fault == "lose" or answer is None:
            return False
        if fault == "cut":
            client.sendall(answer[: len(answer) // 2 + 1])
            return False
        client.sendall(answer)
        return True

    def _hold(self, client: socket.socket) -> bool:
        self.held.set()
        client.recv(1)
        return False

    def _ask(self, request: bytes, *, in_pieces: bool = False) -> bytes | None:
        with closing(socket.create_connection(self._server, timeout=30)) as server:
            if in_pieces:
                step = max(1, len(request) // 7)
                for start in range(0, len(request), step):
                    server.sendall(request[start : start + step])
            else:
                server.sendall(request)
            return _message(server)


def _message(line: socket.socket) -> bytes | None:
    """One whole HTTP message with a Content-Length, or None if the other side hung up before it was whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = line.recv(65_536)
        if not part:
            return None
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(row.partition(b":")[2]) for row in head.split(b"\r\n") if row.lower().startswith(b"content-length:")), 0
    )
    while len(body) < length:
        part = line.recv(65_536)
        if not part:
            return None
        body += part
    return head + b"\r\n\r\n" + body
