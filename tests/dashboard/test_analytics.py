"""The analytics page over gold tables: charts, their tables and CSV, and the choice of a range."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from playwright.sync_api import expect
import pytest

from dashboard_sites import PATIENCE_MS, Site, start_site, stop_site, watch
from gold_tables import DAYS, make_gold, write_table
from queueyard.dashboard.charts import CHARTS, Chart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext

pytest_plugins = ("jj_fixtures", "dashboard_fixtures")
pytestmark = pytest.mark.xdist_group("dashboard-texts")
HOSTILE = '"><img src=x onerror=window.hit=1><script>window.hit=1</script>'
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A yard without places, but with a history, whose texts are hostile."""
    root = tmp_path_factory.mktemp("history")
    make_gold(root / ".queueyard" / "pipeline", mark=HOSTILE)
    running = start_site(root, "")
    yield running
    stop_site(running)


def test_every_chart_is_a_picture_and_a_table_and_harmless(
    history: Site, context: BrowserContext, pictures: Path
) -> None:
    watched = watch(context, history.url)

    watched.open("/analytics")

    for chart in CHARTS:
        card = watched.page.locator("section", has=watched.page.locator(f"#c-{chart.name}"))
        expect(card.get_by_role("img", name=chart.title)).to_be_visible()
        card.get_by_text("As a table").click()
        expect(card.locator("tbody tr").first).to_be_visible()
    assert watched.faults_of_access() == []
    assert watched.page.evaluate("window.hit") is None
    assert watched.page.locator("main img, main script").count() == 0
    assert (watched.console, watched.strangers) == ([], [])
    watched.page.screenshot(path=pictures / "analytics-full.png", full_page=True)


def test_a_shorter_range_leaves_the_older_days_out(history: Site, context: BrowserContext) -> None:
    watched = watch(context, history.url)
    watched.open("/analytics")
    landing = watched.page.locator("section", has=watched.page.locator("#c-landing"))
    expect(landing.locator("summary")).to_contain_text(str(DAYS))

    watched.page.get_by_role("radio", name="7d").check()

    expect(landing.locator("summary")).to_contain_text("8")
    expect(watched.page).to_have_url(f"{history.url}/analytics?range=7d&system=")


def test_one_system_shows_its_charts_only(history: Site, context: BrowserContext) -> None:
    watched = watch(context, history.url)
    watched.open("/analytics")

    watched.page.get_by_role("combobox", name="System").select_option("jjq")

    expect(watched.page.locator("#c-landing")).to_be_visible()
    expect(watched.page.locator("#c-sync")).to_have_count(0)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_chart_as_csv_has_the_rows_of_its_table(chart: Chart, history: Site) -> None:
    answer, text = history.ask(f"/analytics/{chart.name}.csv?range=all")

    rows = list(csv.DictReader(StringIO(text)))
    assert answer.headers["content-type"].startswith("text/csv")
    assert rows
    assert tuple(rows[0]) == chart.columns
    assert not any(value.startswith(("=", "@")) for row in rows for value in row.values())


def test_a_new_commit_is_seen_without_a_reload_and_what_is_open_stays_open(
    history: Site, context: BrowserContext
) -> None:
    watched = watch(context, history.url)
    watched.open("/analytics")
    card = watched.page.locator("section", has=watched.page.locator("#c-agents"))
    card.get_by_text("As a table").click()
    expect(card.locator("tbody tr")).to_have_count(3)
    home = history.root / ".queueyard" / "pipeline"
    row = dict.fromkeys(chart_named("agents").columns, 1) | {"source": "/srv/queen", "agent": "newcomer"}

    write_table(home, "agents", [row])

    expect(card.locator("tbody")).to_contain_text("newcomer")
    expect(card.locator("tbody tr")).to_be_visible()
    make_gold(home, mark=HOSTILE)


def chart_named(name: str) -> Chart:
    return next(chart for chart in CHARTS if chart.name == name)


def test_without_a_history_the_page_says_what_to_type(tmp_path: Path) -> None:
    empty = start_site(tmp_path, "")
    try:
        answer, text = empty.ask("/analytics")
    finally:
        stop_site(empty)

    assert answer.status == 200
    assert "queueyard pipeline run" in text
