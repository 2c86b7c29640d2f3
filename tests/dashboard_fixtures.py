"""The dashboard as its user meets it: the real script, a real Chromium, a yard of real systems.

A test module asks for these with `pytest_plugins = ("jj_fixtures", "dashboard_fixtures")`.
"""

from __future__ import annotations

import os
from pathlib import Path
import shutil
from typing import TYPE_CHECKING

import pytest

import busy_yard
from dashboard_sites import ARGUMENTS, PATIENCE_MS, PROGRAMS, QUEUE, Site, Watched, start_site, stop_site, watch
from queueyard.kernel.events import System
from queueyard.yard.places import Place
from servers import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, BrowserContext


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Server]:
    """A server of our own: the page shows every queue of it."""
    server = Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, valkey_server: Server, failed_template: Path) -> Iterator[Site]:
    """A yard with something in every system, and its dashboard, which lets people act."""
    root = tmp_path_factory.mktemp("yard")
    repository = shutil.copytree(failed_template, root / "home", symlinks=True)
    places = [
        busy_yard.make_queen(root / "repo"),
        busy_yard.make_runforge(root / "lab"),
        busy_yard.make_panqueue(valkey_server.url, QUEUE),
        Place(system=System.JJQ, at=str(repository / "repo")),
        busy_yard.make_ops(root / "client"),
    ]
    busy_yard.list_places(root, places)
    running = start_site(root, valkey_server.url, "--allow-actions", JJ_CONFIG=str(repository / "jj.toml"))
    yield running
    stop_site(running)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real Chromium. Without it a test is skipped, saying so; in CI it fails.

    Not for the whole session: while it is there, this thread has an event loop, and other tests want their own.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        reason = "there is no Chromium here: python tools/fetch_parts.py chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield running
        running.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 860})
    made.set_default_timeout(PATIENCE_MS)
    yield made
    made.close()


@pytest.fixture
def watched(context: BrowserContext, site: Site) -> Iterator[Watched]:
    """A new page of the dashboard. When the test ends, it has complained of nothing and asked nobody else."""
    found = watch(context, site.url)
    yield found
    assert found.console == []
    assert found.strangers == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots stay after the tests: QUEUEYARD_SCREENSHOTS, else below build/."""
    named = os.environ.get("QUEUEYARD_SCREENSHOTS")
    folder = Path(named) if named else Path(__file__).parents[1] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def phone(browser: Browser, site: Site) -> Iterator[Watched]:
    """A page on a screen that is 390 points wide."""
    made = browser.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True)
    yield watch(made, site.url)
    made.close()
