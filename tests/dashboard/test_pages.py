"""Every page in a real browser: it shows what is there, follows what changes, and does what a button says."""

from __future__ import annotations

from contextlib import contextmanager
import json
import threading
from typing import TYPE_CHECKING

from playwright.sync_api import expect
import pytest

from dashboard_sites import PATIENCE_MS, QUEUE, Site, Watched, watch
from queueyard.panqueue import SyncQueueClient
from queueyard.queen import Queen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Dialog

pytest_plugins = ("jj_fixtures", "dashboard_fixtures")
pytestmark = pytest.mark.xdist_group("dashboard")
PAGES = {
    "overview": "/",
    "queen": "/system/queen",
    "runforge": "/system/runforge",
    "panqueue": "/system/panqueue",
    "jjq": "/system/jjq",
    "ops": "/system/ops",
    "analytics": "/analytics",
    "login": "/login",
}
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def jobs_coming_in(site: Site) -> Iterator[None]:
    """Somebody adds and removes jobs all the time."""
    stop = threading.Event()

    def work() -> None:
        with SyncQueueClient(site.redis) as client:
            queue = client.queue(f"{QUEUE}-coming")
            while not stop.is_set():
                added = queue.add({"mail": "one more"})
                queue.remove(added.id)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_while_everything_changes_and_everybody_can_use_it(
    name: str, site: Site, watched: Watched, pictures: Path
) -> None:
    with jobs_coming_in(site):
        watched.open(PAGES[name])

        expect(watched.page.locator("h1")).to_be_visible()
        assert watched.faults_of_access() == []
        watched.page.screenshot(path=pictures / f"{name}.png", full_page=True)


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_both_colours_are_readable(scheme: str, site: Site, watched: Watched, pictures: Path) -> None:
    watched.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    watched.open("/system/panqueue")

    assert watched.faults_of_access() == []
    watched.page.screenshot(path=pictures / f"panqueue-{scheme}.png")


def test_the_switch_of_colours_is_remembered(watched: Watched) -> None:
    watched.open("/")
    switch = watched.page.get_by_role("button", name="Colours: as the system")
    switch.click()
    watched.page.get_by_role("button", name="Colours: light").click()

    watched.page.reload()

    expect(watched.page.get_by_role("button", name="Colours: dark")).to_be_visible()
    assert watched.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_overview_counts_what_comes_without_a_reload(site: Site, watched: Watched) -> None:
    watched.open("/")
    row = watched.page.locator("tr", has=watched.page.get_by_role("link", name="panqueue", exact=True))
    watched.page.evaluate("window.isTheSamePage = true")
    before = int(row.locator("td.n").first.inner_text().replace(",", ""))

    with SyncQueueClient(site.redis) as client:
        client.queue(f"{QUEUE}-more").add_many(range(7))

    expect(row.locator("td.n").first).to_have_text(str(before + 7))
    assert watched.page.evaluate("window.isTheSamePage") is True


def test_a_message_that_is_sent_appears_and_the_filter_finds_it(site: Site, watched: Watched) -> None:
    watched.open("/system/queen")

    with Queen.open(site.root / "repo", agent="ana", environment={}) as queen:
        queen.send("ben", "the needle is here", subject="haystack")

    messages = watched.page.locator("[data-panel=messages]")
    expect(messages).to_contain_text("the needle is here")
    watched.page.get_by_label("Filter").fill("NEEDLE")
    expect(messages.locator("tbody tr")).to_have_count(1)
    expect(watched.page).to_have_url(f"{site.url}/system/queen?q=NEEDLE&limit=50")
    watched.page.reload()
    expect(messages.locator("tbody tr")).to_have_count(1)


def test_the_filter_stays_in_the_hand_while_the_page_follows(site: Site, watched: Watched) -> None:
    watched.open("/system/panqueue")
    field = watched.page.get_by_label("Filter")
    field.fill("hello 1")
    waiting = watched.page.locator("[data-panel=waiting]")
    expect(waiting.locator("tbody tr")).to_have_count(11)

    with SyncQueueClient(site.redis) as client:
        client.queue(QUEUE).add({"mail": "hello 1 once more"}, key="customer-1")

    expect(waiting.locator("tbody tr")).to_have_count(12)
    expect(field).to_be_focused()
    expect(field).to_have_value("hello 1")


def test_a_failed_job_is_retried_by_its_button(site: Site, watched: Watched) -> None:
    watched.sign_in()
    watched.open("/system/panqueue")
    failed = watched.page.locator("[data-panel=failed]")
    before = failed.locator("tbody tr").count()
    job = failed.locator("tbody tr").first.locator("code").inner_text()

    failed.locator("tbody tr").first.get_by_role("button", name="Retry").click()

    expect(watched.page.locator("#said")).to_contain_text("waits again")
    expect(failed.locator("tbody tr")).to_have_count(before - 1)
    with SyncQueueClient(site.redis) as client:
        assert client.queue(QUEUE).job(job).status == "waiting"


def test_a_queue_is_paused_and_resumed(site: Site, watched: Watched) -> None:
    watched.sign_in()
    watched.open("/system/panqueue")
    row = watched.page.locator("[data-panel=queues] tr", has=watched.page.get_by_text(QUEUE, exact=True))

    row.get_by_role("button", name="Pause").click()

    expect(row).to_contain_text("paused")
    with SyncQueueClient(site.redis) as client:
        assert client.queue(QUEUE).counts().paused
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()


def test_what_is_canceled_is_asked_about_first(site: Site, watched: Watched) -> None:
    watched.sign_in()
    watched.open("/system/queen")
    rows = watched.page.locator("[data-panel=reservations] tbody tr", has=watched.page.get_by_text("docs/**"))
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    watched.page.once("dialog", answer)

    rows.get_by_role("button", name="Release").click()

    expect(rows).to_have_count(0)
    assert asked == ["Release qr-2?"]


def test_a_failed_change_is_retried_and_its_log_is_there(site: Site, watched: Watched) -> None:
    watched.sign_in()
    watched.open("/system/jjq")
    failed = watched.page.locator("[data-panel=failed]")
    expect(failed).to_contain_text("broken")

    failed.get_by_role("link", name="Log of 1").click()
    expect(watched.page.locator("pre")).to_contain_text("--- jjq:")
    watched.page.go_back()
    failed.get_by_role("button", name="Retry").click()

    expect(watched.page.locator("[data-panel=queue]")).to_contain_text("broken")
    expect(failed).to_contain_text("Nothing failed.")


def test_without_the_token_there_is_no_button_and_no_action(
    site: Site, context: BrowserContext, watched: Watched
) -> None:
    watched.open("/system/panqueue")
    expect(watched.page.get_by_role("button", name="Retry")).to_have_count(0)
    other = watch(context, site.url)
    other.open("/system/panqueue")

    status = other.page.evaluate(
        "async (body) => (await fetch('/act', {method: 'POST', body: new URLSearchParams(body)})).status",
        {"place": site.key("panqueue"), "verb": "pause", "noun": "queue", "target": QUEUE},
    )

    assert status == 403
    with SyncQueueClient(site.redis) as client:
        assert not client.queue(QUEUE).counts().paused


def test_everything_can_be_reached_with_the_keyboard(watched: Watched) -> None:
    watched.open("/")
    watched.page.keyboard.press("Tab")
    expect(watched.page.get_by_role("link", name="Skip to content")).to_be_focused()
    reached = set()
    for _ in range(30):
        watched.page.keyboard.press("Tab")
        reached.add(watched.page.evaluate("document.activeElement.textContent.trim()"))

    assert {"Overview", "queen", "Analytics", "◐", "Sign in", "ops"} <= reached


def test_a_phone_shows_it_without_scrolling_sideways(phone: Watched, pictures: Path) -> None:
    for name in ("overview", "panqueue", "analytics"):
        phone.open(PAGES[name])

        width = phone.page.evaluate("document.documentElement.scrollWidth")
        phone.page.screenshot(path=pictures / f"{name}-phone.png")
        assert width <= 390


def test_a_place_that_dies_is_told_and_the_page_goes_on(site: Site, watched: Watched) -> None:
    watched.open("/")
    lab = site.root / "lab" / ".runforge" / "queue" / "queue.json"
    whole = lab.read_bytes()

    lab.write_bytes(b"{ torn")
    try:
        row = watched.page.locator("tr", has=watched.page.get_by_role("link", name="runforge", exact=True))
        expect(row.locator("[data-well=no]")).to_be_visible()
        expect(watched.page.locator("tr.why").first).to_contain_text("queue.json")
    finally:
        lab.write_bytes(whole)

    expect(watched.page.locator("tr.why")).to_have_count(0)


def test_the_overview_as_json_says_the_same(site: Site) -> None:
    answer, text = site.ask("/api/overview")

    assert answer.status == 200
    assert [one["system"] for one in json.loads(text)["glances"]] == ["queen", "runforge", "panqueue", "jjq", "ops"]


def test_a_button_that_is_held_is_not_taken_away(site: Site, watched: Watched) -> None:
    watched.sign_in()
    watched.open("/system/panqueue")
    row = watched.page.locator("[data-panel=queues] tr", has=watched.page.get_by_text(QUEUE, exact=True))
    button = row.get_by_role("button", name="Pause")
    button.hover()
    ticks = "() => new Promise((done) => document.body.addEventListener('tick', done, {once: true}))"

    watched.page.mouse.down()
    button.evaluate("(one) => { one.isHeld = true; }")
    with SyncQueueClient(site.redis) as client:
        client.queue(f"{QUEUE}-meanwhile").add(1)
    for _ in range(3):
        watched.page.evaluate(ticks)
    is_held = button.evaluate("(one) => one.isHeld === true")
    watched.page.mouse.up()

    assert is_held
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
