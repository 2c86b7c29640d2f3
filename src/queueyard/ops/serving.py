"""Starting and stopping the server: where it listens, with which certificate, and how it goes down.

The first TERM or INT asks for a drain: no new connections, running requests finish, their batches are committed and
answered. A second one, or the end of the grace, ends it at once; what was not answered was not promised.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import ipaddress
from pathlib import Path
import socket
from typing import TYPE_CHECKING

from queueyard.kernel.errors import StorageFailed, explaining
from queueyard.kernel.lifecycle import Lifecycle, Phase
from queueyard.ops.access import has_tokens
from queueyard.ops.database import Database, SqliteDatabase
from queueyard.ops.errors import MissingExtra, NotLoopback
from queueyard.ops.home import make_private_folder
from queueyard.ops.ledger import Ledger
from queueyard.ops.settings import LEDGER_NAME, ServeSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import uvicorn

_KEEP_ALIVE_S = 75
_BACKLOG = 2_048


def open_database(settings: ServeSettings, *, must_exist: bool = False) -> Database:
    """The database that the settings name. StorageFailed if it should be there and is not."""
    if settings.database:
        from queueyard.ops.postgres import PostgresDatabase  # noqa: PLC0415  an extra of its own

        return PostgresDatabase(settings.database)
    path = Path(settings.data) / LEDGER_NAME
    if must_exist and not path.exists():
        raise StorageFailed(f"there is no server data in {settings.data}", hint="Name it: --data DIR")
    make_private_folder(Path(settings.data).absolute())
    return SqliteDatabase(path)


def serve(
    settings: ServeSettings,
    lifecycle: Lifecycle,
    *,
    spaces: tuple[str, ...] = (),
    on_listening: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until the lifecycle says otherwise.

    NotLoopback if it would listen beyond this machine and there is no token, MissingExtra if the libraries are not
    installed.
    """
    try:
        import uvicorn  # noqa: PLC0415

        from queueyard.ops.server import Server  # noqa: PLC0415
    except ImportError as fault:
        raise MissingExtra(f"the server needs {fault.name}", hint="pip install 'queueyard[ops]'") from fault

    database = open_database(settings)
    beyond = not _is_loopback(settings.host)
    _prepare(database, spaces, beyond=beyond)
    server = Server(database, settings, needs_token=settings.require_token or beyond)
    with _listening(settings) as listener:
        server.start()
        try:
            config = uvicorn.Config(
                server.app,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=True,
                lifespan="off",
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, round(settings.grace_s)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
            on_listening(_address(listener, tls=settings.tls_cert is not None))
            asyncio.run(_run(config, listener, lifecycle, on_drain=lambda: setattr(server, "ready", False)))
        finally:
            server.stop()


def _prepare(database: Database, spaces: tuple[str, ...], *, beyond: bool) -> None:
    ledger = Ledger(database)
    try:
        ledger.create()
        ledger.create_spaces(*spaces)
        if beyond and not has_tokens(ledger):
            raise NotLoopback(
                "it would listen beyond this machine, and everybody could write to it: there is no token",
                hint="Make one first: jolli-ops token create --data DIR --name NAME",
            )
    finally:
        ledger.close()


async def _run(
    config: uvicorn.Config, listener: socket.socket, lifecycle: Lifecycle, *, on_drain: Callable[[], None]
) -> None:
    import uvicorn  # noqa: PLC0415

    class Quiet(uvicorn.Server):
        """The signals are ours: they move the lifecycle, and the lifecycle moves the server."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    server = Quiet(config)

    def on_phase() -> None:
        phase = lifecycle.acknowledge()
        if phase is not Phase.RUNNING:
            on_drain()
            server.should_exit = True
            server.force_exit = phase is Phase.STOPPING

    loop = asyncio.get_running_loop()
    loop.add_reader(lifecycle.fileno(), on_phase)
    try:
        on_phase()
        await server.serve(sockets=[listener])
    finally:
        loop.remove_reader(lifecycle.fileno())


@contextmanager
def _listening(settings: ServeSettings) -> Iterator[socket.socket]:
    where = f"{settings.host}:{settings.port}"
    with explaining("listen on", where):
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        # The protocol is named so that asyncio knows it for TCP and sends an answer's head and body without waiting
        # for an acknowledgement in between: that is 40 ms for each batch.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.host, settings.port))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    try:
        yield listener
    finally:
        listener.close()


def _address(listener: socket.socket, *, tls: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
