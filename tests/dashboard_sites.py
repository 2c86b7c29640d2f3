"""A running dashboard and a watched page of it, for tests and pictures."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
import json
from pathlib import Path
import re
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scripts import clean_environment, find_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request

TOKEN = "a-token-for-the-tests-only"
QUEUE = "mails"
#: how long a page may take on a busy machine until it shows what it should
PATIENCE_MS = 30_000
_AXE = Path(__file__).parent / "dashboard" / "vendor" / "axe.min.js"
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
#: for a machine without a display, and so that the browser itself asks nobody for anything
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Site:
    """One running dashboard, and the yard behind it."""

    url: str
    root: Path
    redis: str
    process: subprocess.Popen[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[HTTPResponse, str]:
        """One request by hand; `Host_` becomes the header Host."""
        line = HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.strip("_").replace("_", "-"): value for name, value in headers.items()}
        try:
            line.request(method, path, body, named)
            answer = line.getresponse()
            return answer, answer.read().decode()
        finally:
            line.close()

    def act(self, verb: str, noun: str, *target: str, place: str, **headers: str) -> tuple[HTTPResponse, str]:
        """Press a button by hand, with the token."""
        fields = [f"place={place}", f"verb={verb}", f"noun={noun}", *(f"target={word}" for word in target)]
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-www-form-urlencoded"} | headers
        return self.ask("/act", method="POST", body="&".join(fields), **sent)

    def key(self, system: str) -> str:
        """How the page of a system names its first place."""
        _, text = self.ask(f"/system/{system}")
        found = re.search(r'id="p-([0-9a-f]{12})"', text)
        assert found, text
        return found[1]


def start_site(root: Path, redis: str, *words: str, **environment: str) -> Site:
    """Start the dashboard of a yard; it listens when this returns."""
    process = subprocess.Popen(
        [find_script("queueyard"), "dashboard", "--port", "0", "--refresh-s", "0.3", "--json", *words],
        cwd=root,
        env=clean_environment(root, QUEUEYARD_DASHBOARD_TOKEN=TOKEN, **environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = "".join(process.stdout.readline() for _ in range(3))
    return Site(url=json.loads(told)["url"], root=root, redis=redis, process=process)


def stop_site(site: Site) -> None:
    with site.process:
        site.process.terminate()
        assert site.process.wait(timeout=30) == 0


@contextmanager
def serving_ops(data: Path) -> Iterator[str]:
    """A real ops server while the block runs; its address."""
    process = subprocess.Popen(
        [find_script("jolli-ops"), "serve", "--port", "0", "--data", str(data), "--space", "default", "--json"],
        cwd=data.parent,
        env=clean_environment(data.parent),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        told = "".join(process.stdout.readline() for _ in range(4))
        try:
            yield json.loads(told)["url"]
        finally:
            process.terminate()


@dataclass
class Watched:
    """A page, and everything that it should not have done."""

    page: Page
    url: str
    console: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)
        self.page.wait_for_selector("#pulse[data-state=on]")

    def sign_in(self) -> None:
        self.page.goto(f"{self.url}/login")
        self.page.get_by_label("Token").fill(TOKEN)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url(f"{self.url}/")

    def faults_of_access(self) -> list[str]:
        """What axe-core calls serious or critical."""
        # Playwright evaluates in its own world, so that the page's policy against foreign scripts stays in force.
        self.page.evaluate(_AXE.read_text(encoding="utf-8") + "\n;null")
        found: list[dict[str, Any]] = self.page.evaluate("async () => (await axe.run()).violations")
        return [
            f"{one['id']}: {node['html']}"
            for one in found
            if one["impact"] in {"serious", "critical"}
            for node in one["nodes"]
        ]


def watch(context: BrowserContext, url: str) -> Watched:
    found = Watched(page=context.new_page(), url=url)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            found.console.append(message.text)

    def on_request(request: Request) -> None:
        if urlsplit(request.url).hostname != "127.0.0.1":
            found.strangers.append(request.url)

    found.page.on("console", on_console)
    found.page.on("pageerror", lambda fault: found.console.append(str(fault)))
    found.page.on("request", on_request)
    return found
