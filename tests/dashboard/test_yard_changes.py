"""The yard may change, and places may be gone: the dashboard follows, and one bad place spoils no other."""

from __future__ import annotations

from http.client import HTTPConnection
import json
from typing import TYPE_CHECKING, Any

import busy_yard
from dashboard_sites import Site, start_site, stop_site
from queueyard.kernel.events import System
from queueyard.yard.places import Place
from servers import free_port, wait_until

if TYPE_CHECKING:
    from pathlib import Path


def glances(site: Site) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(site.ask("/api/overview")[1])["glances"]
    return found


def test_a_place_that_is_added_is_seen_without_a_restart(tmp_path: Path) -> None:
    site = start_site(tmp_path, "")
    try:
        _, before = site.ask("/")
        busy_yard.list_places(tmp_path, [busy_yard.make_queen(tmp_path / "repo")])
        # While somebody watches, it looks often.
        watching = HTTPConnection("127.0.0.1", site.port, timeout=60)
        watching.request("GET", "/live")
        wait_until(lambda: len(glances(site)) == 1, "the new place is not seen", 60)
        watching.close()
    finally:
        stop_site(site)

    assert "queueyard add" in before


def test_a_server_that_is_not_there_is_told_and_the_others_are_shown(tmp_path: Path) -> None:
    nowhere = f"redis://127.0.0.1:{free_port()}"
    queen = busy_yard.make_queen(tmp_path / "repo")
    busy_yard.list_places(tmp_path, [Place(system=System.PANQUEUE, at=nowhere), queen])
    site = start_site(tmp_path, "")
    try:
        found = glances(site)
        overview, text = site.ask("/")
        page, problem = site.ask("/system/panqueue")
        other, letters = site.ask("/system/queen")
    finally:
        stop_site(site)

    assert [(one["is_well"], one["waiting"] > 0) for one in found] == [(False, False), (True, True)]
    assert (overview.status, page.status, other.status) == (200, 200, 200)
    assert 'class="why"' in text
    assert 'class="problem"' in problem
    assert "May I touch theme.css?" in letters


def test_a_list_of_places_that_makes_no_sense_is_told_on_the_page(tmp_path: Path) -> None:
    site = start_site(tmp_path, "")
    try:
        (tmp_path / "queueyard.toml").write_text("[[place\n")
        answer, text = site.ask("/system/queen")
    finally:
        stop_site(site)

    assert answer.status == 409
    assert "queueyard.toml" in text
