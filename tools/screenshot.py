"""Makes the pictures in docs/images: the dashboard of a yard at work, and the history of a made-up one.

    python tools/screenshot.py [--into FOLDER]

Everything is real but the work itself: a Valkey with a worker, a runforge daemon, a queen repository, a client of ops
and, where jj is here, a merge queue; for the analytics and the charts of the pipeline, `queueyard pipeline generate`,
one run and its report. It takes about two minutes, most of it Spark. Needs Chromium:
python tools/fetch_parts.py chromium
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import ExitStack, contextmanager
import os
from pathlib import Path
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "tests"))

from playwright.sync_api import sync_playwright  # noqa: E402 - the line above makes the next ones importable

import busy_yard  # noqa: E402
from dashboard_sites import ARGUMENTS, PROGRAMS, start_site, stop_site  # noqa: E402
from jj_repositories import CONFIG, Repository  # noqa: E402
from queueyard.kernel.events import System  # noqa: E402
from queueyard.panqueue import Job, Queue, QueueClient, Worker  # noqa: E402
from queueyard.runforge import RunForge  # noqa: E402
from queueyard.yard.places import Place  # noqa: E402
from servers import own_server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = "20000"
#: the charts of the report that docs/systems/pipeline.md shows
CHARTS = ("throughput", "durations", "fairness", "landing", "contention", "failures")
#: how long the yard works before the picture, so that its lines have something to show
WATCHED_S = 40
WIDTH, OVERVIEW_HEIGHT, ANALYTICS_HEIGHT = 1280, 560, 860
_CHANGES = {"greet": "green", "shout": "red", "wave": "green"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of the documents.")
    parser.add_argument("--into", type=Path, default=CHECKOUT / "docs" / "images", metavar="FOLDER")
    into: Path = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="yard-") as folder:
        root = Path(folder) / "yard"
        make_history(root)
        draw_charts(root, into)
        with working_yard(root) as url:
            take(url, into)


def make_history(root: Path) -> None:
    """The gold tables of a made-up yard."""
    root.mkdir()
    past = root.with_name("past")
    script = Path(sys.executable).with_name("queueyard")
    subprocess.run([script, "pipeline", "generate", str(past), "--events", EVENTS], check=True)
    home = root / ".queueyard" / "pipeline"
    subprocess.run([script, "pipeline", "run", "--yard", str(past), "--home", str(home)], check=True)


def draw_charts(root: Path, into: Path) -> None:
    """What `queueyard pipeline report` makes of that history."""
    folder = root.with_name("report")
    script = Path(sys.executable).with_name("queueyard")
    subprocess.run([script, "pipeline", "report", "--yard", str(root), "--to", str(folder)], check=True)
    for name in CHARTS:
        shutil.copyfile(folder / f"{name}.png", into / f"pipeline-{name}.png")


@contextmanager
def working_yard(root: Path) -> Iterator[str]:
    """A yard in which everybody works, and its dashboard."""
    with ExitStack() as stack:
        server = stack.enter_context(own_server())
        places = [
            busy_yard.make_queen(root / "webshop"),
            _make_lab(root / "lab", stack),
            busy_yard.make_panqueue(server.url, "mails", jobs=400, failing=3),
            busy_yard.make_ops(root / "client"),
        ]
        if shutil.which("jj"):
            places.insert(3, _make_merge_queue(root / "home"))
        busy_yard.list_places(root, places)
        stack.enter_context(_mails_on_their_way(server.url))
        site = start_site(root, server.url)
        stack.callback(stop_site, site)
        yield site.url


def take(url: str, into: Path) -> None:
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        sys.exit("there is no Chromium here; type: python tools/fetch_parts.py chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": WIDTH, "height": OVERVIEW_HEIGHT})
        page.goto(url)
        page.wait_for_timeout(WATCHED_S * 1000)
        page.screenshot(path=into / "dashboard.png")
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": WIDTH, "height": ANALYTICS_HEIGHT})
        page.goto(f"{url}/analytics?range=all")
        page.wait_for_selector("svg.chart")
        page.screenshot(path=into / "dashboard-analytics.png")
        browser.close()
    print(*sorted(os.fspath(path) for path in into.glob("*.png")), sep="\n")


def _make_lab(root: Path, stack: ExitStack) -> Place:
    """Two sweeps of runs that take a few seconds, one of which fails now and then, and their daemon."""
    root.mkdir(parents=True)
    (root / ".runforge").mkdir()
    forge = RunForge.open(root, environment=dict(os.environ))
    for name, command in (("wide", "sleep $S"), ("deep", "sleep $S; test $S != 2 || exit 1")):
        parameters = [{"path": "env.S", "values": [1, 2, 3, 4]}, {"path": "env.RATE", "values": list(range(14))}]
        plan: dict[str, Any] = {
            "group": {"name": name},
            "base_request": {"version": 1, "command": ["sh", "-c", command]},
            "strategy": {"type": "grid", "parameters": parameters},
        }
        forge.enqueue_sweep(plan)
    stack.enter_context(forge.daemon(max_parallel=3))
    return Place(system=System.RUNFORGE, at=str(root))


def _make_merge_queue(home: Path) -> Place:
    """Three changes went through it, one of them red."""
    (home / "tmp").mkdir(parents=True)
    (home / "jj.toml").write_text(CONFIG, encoding="utf-8")
    made = Repository(root=home / "webshop", home=home)
    made.jj("git", "init", "--quiet", str(made.root), cwd=home)
    (made.root / "base.txt").write_text("green\n", encoding="utf-8")
    made.jj("commit", "--quiet", "-m", "base")
    made.jj("bookmark", "create", "--quiet", "main", "-r", "@-")
    made.ok("config", "check_command", "! grep -q red *.txt")
    for name, colour in _CHANGES.items():
        made.push(name, {f"{name}.txt": f"{colour}\n"})
    made.jjq("run", "--all")
    return Place(system=System.JJQ, at=str(made.root))


@contextmanager
def _mails_on_their_way(url: str) -> Iterator[None]:
    """A worker, and somebody who sends in waves."""
    stop = threading.Event()
    queue = Queue("mails", dict[str, Any], mode="keyed", key_concurrency=4)

    async def handle(_: Job[dict[str, Any]]) -> None:
        await asyncio.sleep(0.2)

    async def work() -> None:
        chance = random.Random(1)
        async with QueueClient(url) as client, Worker(queue, handle, url=url, concurrency=8):
            while not stop.is_set():
                wave = [{"mail": number} for number in range(chance.choice([10, 40, 60, 120]))]
                await client.queue(queue).add_many(wave, key=lambda mail: f"customer-{mail['mail'] % 5}")
                await asyncio.sleep(1.5)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


if __name__ == "__main__":
    main()
