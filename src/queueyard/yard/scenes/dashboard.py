"""The whole yard on one web page of this machine; on a terminal it opens, and stays until Enter."""

from __future__ import annotations

from importlib.util import find_spec
import sys
from typing import TYPE_CHECKING
from urllib.request import urlopen

from queueyard.yard.scenes.stage import PartMissing

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage

_PACKAGES = ("starlette", "uvicorn", "deltalake", "pyarrow")
_SYSTEMS = ("queen", "runforge", "panqueue", "jjq", "ops")
_ANSWER_TIMEOUT_S = 30.0


def show_dashboard(stage: Stage) -> None:
    if any(find_spec(name) is None for name in _PACKAGES):
        raise PartMissing("the dashboard needs its server", hint="Type: pip install 'queueyard[dashboard]'")
    is_watched = sys.stdin.isatty() and sys.stdout.isatty()
    stage.say("What goes on now, and the tables, as a web page of this machine.")
    server = stage.start(f"queueyard dashboard --port 0{' --open' if is_watched else ''}", log="dashboard.log")
    url = stage.wait_for_line(server, "dashboard.log", "listening on ")
    with urlopen(url, timeout=_ANSWER_TIMEOUT_S) as answer:  # noqa: S310  our own server
        page = answer.read().decode()
    stage.out.text(f"    {url}: {len(page):,} characters")
    for system in _SYSTEMS:
        stage.expect(system in page or system not in stage.shown, f"the overview does not show {system}")
    if is_watched:
        input("Look around; Enter ends the demo. ")
    server.stop(grace_s=20.0)
