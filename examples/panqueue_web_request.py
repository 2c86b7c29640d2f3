"""A web request that adds a job and goes on; a worker process runs it. The blocking client, as in Django or Flask.

Run it anywhere: python examples/panqueue_web_request.py. It uses REDIS_URL, or a Valkey of its own in a throw-away
folder, and starts the worker with `panqueue worker`, as you would.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from queueyard.panqueue import Tasks
from queueyard.panqueue.embedded import start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator

tasks = Tasks()


@tasks.task("thumbnails", retries=3, timeout_ms=60_000)
def thumbnail(path: str, width: int = 200) -> str:
    """A plain function runs in a thread of the worker."""
    return f"{path.removesuffix('.png')}-{width}.png"


def handle_request(path: str) -> str:
    """What a view does: add, and answer at once; here it waits, to show the result."""
    job = thumbnail.add_sync(path)
    return str(job.result(timeout_s=30))


@contextmanager
def a_worker() -> Iterator[None]:
    command = [sys.executable, "-m", "queueyard.panqueue.cli", "worker", f"{Path(__file__).stem}:tasks"]
    with subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) as worker:
        yield
        worker.terminate()


@contextmanager
def a_server() -> Iterator[None]:
    if os.environ.get("REDIS_URL"):
        yield
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REDIS_URL"] = start(Path(folder)).url
        yield
        stop(Path(folder))


if __name__ == "__main__":
    with a_server(), a_worker():
        print(handle_request("cat.png"))
        print(handle_request("dog.png"))
        tasks.sync_client.close()
