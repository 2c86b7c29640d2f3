"""Ten thousand jobs, a thousand messages, two hundred runs: the pages stay small and leave nothing uncounted."""

from __future__ import annotations

import csv
from io import StringIO
import json
from typing import TYPE_CHECKING

import pytest

import busy_yard
from dashboard_sites import Site, start_site, stop_site
from servers import own_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("dashboard-texts")
JOBS, MESSAGES, RUNS = 10_000, 1_000, 200
LARGEST_PAGE_BYTES = 300_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("large")
    with own_server() as server:
        places = [
            busy_yard.make_queen(root / "repo", messages=MESSAGES),
            busy_yard.make_runforge(root / "lab", runs=RUNS),
            busy_yard.make_panqueue(server.url, "mails", jobs=JOBS),
        ]
        busy_yard.list_places(root, places)
        running = start_site(root, server.url)
        yield running
        stop_site(running)


@pytest.mark.parametrize("path", ["/", "/system/queen", "/system/runforge", "/system/panqueue", "/analytics"])
def test_every_page_is_small(path: str, large: Site) -> None:
    answer, text = large.ask(path)

    assert answer.status == 200
    assert len(text.encode()) < LARGEST_PAGE_BYTES


def test_the_overview_counts_all_of_it(large: Site) -> None:
    _, text = large.ask("/api/overview")

    found = {one["system"]: one for one in json.loads(text)["glances"]}
    assert found["panqueue"]["waiting"] == JOBS
    assert found["panqueue"]["failed"] == 6
    assert found["queen"]["waiting"] == sum(number % 3 != 0 for number in range(MESSAGES))
    assert found["runforge"]["waiting"] + found["runforge"]["running"] == 2 * RUNS // 5 + RUNS // 5


def test_a_table_says_how_much_it_leaves_out(large: Site) -> None:
    _, text = large.ask("/system/panqueue")

    assert "50 of 10,000 shown" in text


def test_a_table_as_csv_has_more_rows_than_the_page(large: Site) -> None:
    _, text = large.ask(f"/system/queen/{large.key('queen')}/messages.csv")

    assert len(list(csv.DictReader(StringIO(text)))) == MESSAGES
