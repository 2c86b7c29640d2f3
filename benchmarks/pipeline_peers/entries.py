"""A Valkey of one's own, with event streams as panqueue writes them."""

from __future__ import annotations

from contextlib import contextmanager
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import redis

from queueyard.panqueue.embedded import find_binary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_QUEUES = ("mail", "render", "index")
_KINDS = ("queued", "started", "succeeded")
_PER_MILLISECOND = 20
_PER_CALL = 2_000
_FIRST_MS = 1_772_000_000_000
_START_TIMEOUT_S = 20.0


@contextmanager
def filled_server(folder: Path, count: int) -> Iterator[str]:
    """The URL of a server with so many entries in all."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(find_binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            with redis.Redis(port=port) as client:
                _wait_for(client)
                _fill(client, count)
            yield f"redis://127.0.0.1:{port}"
        finally:
            server.kill()


def _wait_for(client: redis.Redis) -> None:
    end = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            client.ping()
        except redis.ConnectionError:
            if time.monotonic() > end:
                sys.exit("the server does not answer")
            time.sleep(0.02)
        else:
            return


def _fill(client: redis.Redis, count: int) -> None:
    for begin in range(0, count, _PER_CALL):
        calls = client.pipeline(transaction=False)
        for number in range(begin, min(begin + _PER_CALL, count)):
            job, kind = divmod(number, len(_KINDS))
            entry: dict[str | bytes, str] = {
                "kind": _KINDS[kind],
                "item": f"{job:08x}-{job * 2_654_435_761 % (1 << 32):08x}",
                "attempt": "1",
                "group": f"tenant-{job % 20:02d}",
                "actor": f"worker-{job % 12:02d}",
            }
            moment = f"{_FIRST_MS + number // _PER_MILLISECOND}-{number % _PER_MILLISECOND}"
            calls.xadd(f"{{q:{_QUEUES[job % len(_QUEUES)]}}}:events", entry, id=moment)  # type: ignore[arg-type]
        calls.execute()
