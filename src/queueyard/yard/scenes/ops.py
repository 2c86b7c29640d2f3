"""A folder is pushed; its server is killed halfway, comes back, and nothing is lost or sent twice."""

from __future__ import annotations

from importlib.util import find_spec
import json
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.yard.scenes.stage import PartMissing

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.ops.worker import Sent
    from queueyard.yard.scenes.stage import Stage

_FILES = 500
_START_TIMEOUT_S = 30.0


def show_ops(stage: Stage) -> None:
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise PartMissing("ops needs its server", hint="Type: pip install 'queueyard[ops]'")
    from queueyard.ops import Ops, resume  # noqa: PLC0415  these packages are extras
    from queueyard.ops.errors import PushStopped  # noqa: PLC0415

    notes = stage.folder / "notes"
    notes.mkdir()
    for number in range(_FILES):
        (notes / f"{number:04d}.md").write_text(f"note {number}\n" * 20, encoding="utf-8")
    stage.say(f"A folder of {_FILES} files goes to a server in ten batches.")
    server = stage.start("jolli-ops serve --port 0 --data server", log="serve.log")
    url = _url(stage.folder / "serve.log")
    home = {"JOLLI_HOME": str(stage.folder / "jolli")}
    ops = Ops.open(notes, environment=home, server=url, batch_ops=50, retry_for="0s")
    planned = ops.plan(message="first version")
    stage.out.text(f"    {planned.ops} ops in {planned.batches} batches are on disk")

    def kill_halfway(sent: Sent) -> None:
        if sent.batch_index == sent.total_batches // 2:
            server.stop(grace_s=0.0)

    try:
        resume(ops, on_sent=kill_halfway)
    except PushStopped as stopped:
        stage.out.text(f"    the server was killed; {stopped.pending_ops} ops stay queued")
    else:
        stage.expect(False, "the push did not notice that its server was gone")
    stage.say("The server is back; what was not answered is sent, and nothing else.")
    again = stage.start(f"jolli-ops serve --port {url.rpartition(':')[2]} --data server", log="again.log")
    _url(stage.folder / "again.log")
    done = resume(ops)
    stage.out.text(f"    {done.batches} batches sent, {done.applied} ops applied")
    stage.expect(
        _texts_on(url) == {path.name: path.read_text() for path in notes.iterdir()}, "the server has other files"
    )
    stage.type("jolli-ops export --data server --to feed", contains=str(_FILES))
    again.stop(grace_s=20.0)


def _url(log: Path) -> str:
    """Where the server listens, as soon as it says so."""
    deadline = SYSTEM_CLOCK.monotonic() + _START_TIMEOUT_S
    while SYSTEM_CLOCK.monotonic() < deadline:
        words = log.read_text(encoding="utf-8").split()
        if "data" in words:
            return words[2].rstrip(",")
        SYSTEM_CLOCK.sleep(0.05)
    raise PartMissing("the ops server did not start", hint=f"Look: cat {log}")


def _texts_on(url: str) -> dict[str, str]:
    from urllib.request import Request, urlopen  # noqa: PLC0415

    body = json.dumps({"sinceCursor": 0}).encode()
    request = Request(f"{url}/v1/sync/pull", body, {"Content-Type": "application/json"})  # noqa: S310  our own server
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return {file["serverPath"]: file["content"] for file in json.load(answer)["changes"]}
