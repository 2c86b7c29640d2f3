"""A push of a thousand files whose server is killed halfway: it is resumed, and nothing is lost or sent for nothing.

Run it anywhere: python examples/ops_killed_server.py
"""

from __future__ import annotations

import json
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

from queueyard.ops import Ops, resume
from queueyard.ops.errors import PushStopped

if TYPE_CHECKING:
    from queueyard.ops.worker import Sent


def start_server(data: Path, port: str = "0") -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and where it listens."""
    command = [sys.executable, "-m", "queueyard.ops.cli", "serve", "--port", port, "--data", str(data)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, server.stdout.readline().split()[2].rstrip(",")


def texts_on(url: str) -> dict[str, str]:
    """Everything that the server has."""
    body = json.dumps({"sinceCursor": 0}).encode()
    with urlopen(Request(f"{url}/v1/sync/pull", body, {"Content-Type": "application/json"})) as answer:
        return {file["serverPath"]: file["content"] for file in json.load(answer)["changes"]}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        notes, data = Path(name, "notes"), Path(name, "server")
        notes.mkdir()
        for number in range(1000):
            (notes / f"{number:04d}.md").write_text(f"note {number}\n" * 20)

        server, url = start_server(data)
        ops = Ops.open(notes, environment={"JOLLI_HOME": f"{name}/home"}, server=url, batch_ops=50, retry_for="0s")
        planned = ops.plan(message="first version")
        print(f"queued {planned.ops} ops in {planned.batches} batches")

        def kill_halfway(sent: Sent) -> None:
            if sent.batch_index == sent.total_batches // 2:
                server.kill()
                server.communicate()

        try:
            resume(ops, on_sent=kill_halfway)
        except PushStopped as stopped:
            print(f"the server was killed; {stopped.pending_ops} ops in {stopped.pending_batches} batches stay queued")

        server, _ = start_server(data, url.rpartition(":")[2])
        done = resume(ops)
        print(f"the server is back; sent the other {done.batches} batches, {done.applied} ops applied")

        here = {path.name: path.read_text() for path in notes.iterdir()}
        print(f"the server has what the folder has: {texts_on(url) == here}")
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    main()
