"""A folder is pushed; its server is killed halfway, comes back, and nothing is lost or sent twice."""

from __future__ import annotations

from importlib.util import find_spec
import json
from typing import TYPE_CHECKING

from queueyard.yard.scenes.stage import PartMissing

if TYPE_CHECKING:
    from queueyard.kernel.proc import Child
    from queueyard.ops.worker import Sent
    from queueyard.yard.scenes.stage import Stage

_FILES = 500


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
    url = _url(stage, server, "serve.log")
    home = {"JOLLI_HOME": str(stage.folder / "jolli")}
    ops = Ops.open(notes, environment=home, server=url, batch_ops=50, retry_for="0s")
    planned = ops.plan(message="qy-1: first version")
    stage.out.text(f"    {planned.ops} ops in {planned.batches} batches are on disk")

    def kill_halfway(sent: Sent) -> None:
        bar.advance(note=f"batch {sent.batch_index}")
        if sent.batch_index == sent.total_batches // 2:
            server.stop(grace_s=0.0)

    with stage.out.progress("push", planned.batches) as bar:
        try:
            resume(ops, on_sent=kill_halfway)
        except PushStopped as stopped:
            left = stopped.pending_ops
        else:
            left = 0
    stage.out.text(f"    the server was killed; {left} ops stay queued")
    stage.expect(0 < left < _FILES, "the push did not notice that its server was gone")
    stage.say("The server is back; what was not answered is sent, and nothing else.")
    again = stage.start(f"jolli-ops serve --port {url.rpartition(':')[2]} --data server", log="again.log")
    _url(stage, again, "again.log")
    done = resume(ops)
    stage.out.text(f"    {done.batches} batches sent, {done.applied} ops applied")
    stage.expect(
        _texts_on(url) == {path.name: path.read_text() for path in notes.iterdir()}, "the server has other files"
    )
    stage.type("jolli-ops export --data server --to feed", contains=str(_FILES))
    again.stop(grace_s=20.0)
    stage.type("queueyard add ops feed", contains="added")
    stage.type("queueyard add ops jolli", contains="added")


def _url(stage: Stage, server: Child, log: str) -> str:
    return stage.wait_for_line(server, log, "listening on ").partition(",")[0]


def _texts_on(url: str) -> dict[str, str]:
    from urllib.request import Request, urlopen  # noqa: PLC0415

    body = json.dumps({"sinceCursor": 0}).encode()
    request = Request(f"{url}/v1/sync/pull", body, {"Content-Type": "application/json"})  # noqa: S310  our own server
    with urlopen(request, timeout=30) as answer:  # noqa: S310
        return {file["serverPath"]: file["content"] for file in json.load(answer)["changes"]}
