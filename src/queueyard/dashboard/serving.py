"""Starting and stopping the web server: where it listens, and how it goes down."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
import socket
from typing import TYPE_CHECKING

import uvicorn

from queueyard.kernel.errors import explaining
from queueyard.kernel.lifecycle import Phase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.dashboard.app import Dashboard
    from queueyard.dashboard.settings import DashboardSettings
    from queueyard.kernel.lifecycle import Lifecycle

_GRACE_S = 5


def serve(
    dashboard: Dashboard, settings: DashboardSettings, lifecycle: Lifecycle, *, on_listening: Callable[[str], None]
) -> None:
    """Serve until the lifecycle says otherwise. StorageFailed if the port is taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named so that asyncio knows it for TCP and sends an answer's head and body without waiting for an
    # acknowledgement in between: that is 40 ms for each answer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with explaining("listen on", f"{settings.host}:{settings.port}"):
            listener.bind((settings.host, settings.port))
            listener.listen()
        config = uvicorn.Config(
            dashboard.app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=_GRACE_S,
        )
        host, port = listener.getsockname()[:2]
        on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
        asyncio.run(_run(config, listener, lifecycle, dashboard))


async def _run(config: uvicorn.Config, listener: socket.socket, lifecycle: Lifecycle, dashboard: Dashboard) -> None:
    server = _Quiet(config)
    loop = asyncio.get_running_loop()
    leaving: set[asyncio.Task[None]] = set()

    def on_phase() -> None:
        phase = lifecycle.acknowledge()
        if phase is not Phase.RUNNING:
            # Streams of events would else hold the server open for as long as somebody watches.
            leaving.add(loop.create_task(dashboard.live.close()))
            server.should_exit = True
            server.force_exit = phase is Phase.STOPPING

    loop.add_reader(lifecycle.fileno(), on_phase)
    try:
        on_phase()
        await server.serve(sockets=[listener])
    finally:
        loop.remove_reader(lifecycle.fileno())


class _Quiet(uvicorn.Server):
    """The signals are ours: they move the lifecycle, and the lifecycle moves the server."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
