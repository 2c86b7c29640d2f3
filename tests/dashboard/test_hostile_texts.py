"""Whatever an agent or a job can say is shown as text, on every page, as a table and in spreadsheets."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from playwright.sync_api import expect
import pytest

import busy_yard
from dashboard_sites import Site, start_site, stop_site, watch
from jj_repositories import copy_of
from queueyard.kernel.events import System
from queueyard.yard.places import Place
from servers import own_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext

pytest_plugins = ("jj_fixtures", "dashboard_fixtures")
pytestmark = pytest.mark.xdist_group("dashboard-texts")
HOSTILE = "\"'><img src=x onerror=window.hit=1><script>window.hit=1</script>{{7*7}}"
#: a queue may be called anything without braces
QUEUE = "mails" + HOSTILE.replace("{", "(").replace("}", ")")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, failed_template: Path) -> Iterator[Site]:
    """A yard in which every text of every system is an attempt."""
    root = tmp_path_factory.mktemp("hostile")
    repository = copy_of(failed_template, root / "home")
    repository.push(f"waits {HOSTILE}", {"waits.txt": "x\n"})
    repository.push(f"breaks {HOSTILE}", {"bad": "x\n"})
    assert repository.jjq("run", "--all").code == 1
    repository.push(f"waits too {HOSTILE}", {"more.txt": "x\n"})
    with own_server() as server:
        places = [
            busy_yard.make_queen(root / "repo", mark=HOSTILE),
            busy_yard.make_runforge(root / "lab", mark=HOSTILE),
            busy_yard.make_panqueue(server.url, QUEUE, mark=HOSTILE),
            Place(system=System.JJQ, at=str(repository.root)),
            busy_yard.make_ops(root / "client", mark=HOSTILE),
        ]
        busy_yard.list_places(root, places)
        running = start_site(root, server.url, "--allow-actions", JJ_CONFIG=str(repository.home / "jj.toml"))
        yield running
        stop_site(running)


#: page -> panels, each with a text that must be there to read
SHOWN = {
    "queen": ["agents", "messages", "assignments", "reservations"],
    "runforge": ["groups", "running", "failed", "queued", "ended"],
    "panqueue": ["queues", "keys", "failed", "waiting"],
    "jjq": ["queue", "failed", "landed"],
    "ops": ["requests", "dead"],
}


@pytest.mark.parametrize("system", SHOWN)
def test_it_shows_as_text_and_does_nothing(system: str, hostile: Site, context: BrowserContext, pictures: Path) -> None:
    watched = watch(context, hostile.url)
    watched.sign_in()

    watched.open(f"/system/{system}")

    for panel in SHOWN[system]:
        expect(watched.page.locator(f"[data-panel={panel}] tbody")).to_contain_text("<img src=x onerror=window.hit=1>")
    assert watched.page.evaluate("window.hit") is None
    assert watched.page.locator("main img, main script").count() == 0
    assert watched.console == []
    watched.page.screenshot(path=pictures / f"hostile-{system}.png")


def test_a_log_shows_as_text(hostile: Site, context: BrowserContext) -> None:
    watched = watch(context, hostile.url)
    watched.open("/system/runforge")

    watched.page.locator("[data-panel=failed]").get_by_role("link", name="Log of").first.click()

    expect(watched.page.locator("pre")).to_contain_text("<script>window.hit=1</script>")
    assert watched.page.evaluate("window.hit") is None


def test_what_was_searched_for_shows_as_text(hostile: Site, context: BrowserContext) -> None:
    watched = watch(context, hostile.url)

    watched.open("/system/queen?q=%22%3E%3Cimg%20src%3Dx%20onerror%3Dwindow.hit%3D1%3E&place=%3Cscript%3E")

    expect(watched.page.get_by_label("Filter")).to_have_value('"><img src=x onerror=window.hit=1>')
    assert watched.page.evaluate("window.hit") is None


@pytest.mark.parametrize(
    "path", ["/system/%3Cscript%3E", "/log/%3Cscript%3E/x", "/%3Cscript%3E", "/analytics/%3Cb%3E.csv"]
)
def test_an_address_is_never_repeated_as_markup(path: str, hostile: Site) -> None:
    answer, text = hostile.ask(path)

    assert answer.status == 404
    assert "<script>" not in text
    assert "<b>" not in text


def test_a_path_in_an_address_stays_within_the_logs(hostile: Site) -> None:
    key = hostile.key("runforge")

    for item in ("..%2F..%2F..%2Fetc%2Fpasswd", "../../../../etc/passwd", "%2Fetc%2Fpasswd", "run-0001%00"):
        answer, text = hostile.ask(f"/log/{key}/{item}")

        assert answer.status in {404, 409}
        assert "root:" not in text


def test_no_cell_of_a_spreadsheet_is_a_formula(hostile: Site) -> None:
    with_formula = hostile.root / "repo" / ".beads" / "queen_messages.jsonl"
    with with_formula.open("a", encoding="utf-8") as stream:
        stream.write('{"id":"qm-f","from":"=1+1","to":"@x","subject":"+2","body":"-3","read":false}\n')

    _, text = hostile.ask(f"/system/queen/{hostile.key('queen')}/messages.csv")

    rows = list(csv.DictReader(StringIO(text)))
    (row,) = [row for row in rows if row["sender"].endswith("=1+1")]
    assert (row["sender"], row["to"], row["subject"], row["body"]) == ("'=1+1", "'@x", "'+2", "'-3")
