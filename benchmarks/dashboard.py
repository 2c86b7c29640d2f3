"""How long the dashboard takes to answer with 10,000 queued jobs, 1,000 messages and 200 runs in the yard.

Run: make bench, or python benchmarks/dashboard.py. The limit: the data of the overview in under 300 ms of server time,
with a look at every place behind it, which the page itself never waits for. Beside it in the same run: the file of the
style sheet over the same connection, which says what a request costs by itself.
"""

from __future__ import annotations

from functools import partial
from http.client import HTTPConnection
import os
from pathlib import Path
import statistics
import sys
import tempfile

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import msgspec

import busy_yard
from dashboard_sites import Site, start_site, stop_site
import measuring
from servers import own_server

_JOBS, _MESSAGES, _RUNS = 10_000, 1_000, 200
_LIMIT_MS = 300.0
_LARGEST_KB = 300.0
_ROUNDS = 30
_PATHS = {
    "a request by itself": "/static/dashboard.css",
    "overview": "/",
    "panqueue": "/system/panqueue",
    "panqueue, filtered": "/system/panqueue?q=hello%2042",
    "queen": "/system/queen",
    "runforge": "/system/runforge",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, own_server() as server:
        root = Path(folder)
        places = [
            busy_yard.make_queen(root / "repo", messages=_MESSAGES),
            busy_yard.make_runforge(root / "lab", runs=_RUNS),
            busy_yard.make_panqueue(server.url, "mails", jobs=_JOBS),
        ]
        busy_yard.list_places(root, places)
        site = start_site(root, server.url)
        try:
            measure(site)
        finally:
            stop_site(site)
    measuring.finish()


def measure(site: Site) -> None:
    line = HTTPConnection("127.0.0.1", site.port)
    sizes: dict[str, int] = {}
    looks: list[float] = []

    def fetch(name: str) -> None:
        line.request("GET", _PATHS[name])
        sizes[name] = len(line.getresponse().read())

    def look() -> None:
        line.request("GET", "/api/overview")
        looks.append(msgspec.json.decode(line.getresponse().read())["took_ms"])

    print(f"{_JOBS:,} jobs, {_MESSAGES:,} messages, {_RUNS} runs; {_ROUNDS} rounds; {os.cpu_count()} cores")
    took = measuring.interleaved({name: partial(fetch, name) for name in _PATHS} | {"the look": look}, rounds=_ROUNDS)
    for name in _PATHS:
        at_most = _LARGEST_KB if name != "a request by itself" else None
        measuring.report(f"{name}: server time", took[name] * 1000, "ms")
        measuring.report(f"{name}: size", sizes[name] / 1000, "kB", at_most=at_most)
    look_ms = statistics.median(looks)
    measuring.report("one look at all places", look_ms, "ms")
    measuring.report("overview and the look behind it", took["overview"] * 1000 + look_ms, "ms", at_most=_LIMIT_MS)


if __name__ == "__main__":
    main()
