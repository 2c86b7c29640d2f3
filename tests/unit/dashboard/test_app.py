"""What the application answers when something is wrong with itself."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from queueyard.dashboard import pages
from queueyard.dashboard.app import Dashboard
from queueyard.dashboard.gold import Gold
from queueyard.dashboard.guard import Keys
from queueyard.kernel.events import System
from queueyard.yard.details import queen
from queueyard.yard.details.parts import Wanted
from queueyard.yard.places import Place, Yard
from servers import in_loop

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Bug(Exception):
    """Nobody foresaw it."""


def broken_yard() -> Yard:
    raise Bug


async def answer_of(app: Any, path: str) -> tuple[int, dict[str, str], str]:
    """One GET, by hand; an exception that the server would log is swallowed."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "scheme": "http",
        "server": ("localhost", 80),
        "root_path": "",
    }
    with suppress(Bug):
        await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], headers, b"".join(one.get("body", b"") for one in said[1:]).decode()


@in_loop
async def test_a_bug_is_answered_with_the_policy_and_without_its_details() -> None:
    app = Dashboard(broken_yard, Gold("nowhere"), Keys()).app

    status, headers, text = await answer_of(app, "/log/000000000000/x")

    assert status == 500
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "Something went wrong" in text
    assert "Bug" not in text


def test_a_place_that_breaks_the_page_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(at: str, wanted: Wanted) -> queen.QueenDetails:
        if at == "bad":
            raise Bug
        return known(at, wanted)

    known = queen.look
    monkeypatch.setattr(queen, "look", look)
    (tmp_path / ".beads").mkdir()
    places = [Place(system=System.QUEEN, at="bad"), Place(system=System.QUEEN, at=str(tmp_path))]

    bad, good = pages.sections(Yard(root="", places=places), System.QUEEN, Wanted())

    assert bad.problem is not None
    assert (good.problem, len(good.panels)) == (None, 5)
