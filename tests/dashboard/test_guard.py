"""Who may ask, over a real connection: names, origins, tokens, and what a browser may do with the answers."""

from __future__ import annotations

from http.client import HTTPConnection
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from dashboard_sites import QUEUE, TOKEN, Site, start_site, stop_site
from queueyard.panqueue import SyncQueueClient
from scripts import clean_environment, find_script, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = ("jj_fixtures", "dashboard_fixtures")
pytestmark = pytest.mark.xdist_group("dashboard")
PATHS = ("/", "/system/queen", "/analytics", "/api/overview", "/static/dashboard.js", "/nowhere", "/login")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_policy(path: str, site: Site) -> None:
    answer, _ = site.ask(path)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("path", ["/", "/system/panqueue", "/system/jjq", "/analytics", "/login"])
def test_no_page_has_a_script_or_a_style_within(path: str, site: Site) -> None:
    _, text = site.ask(path)

    assert re.findall(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", text) == []


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::2]"])
def test_a_name_that_is_not_ours_is_refused(name: str, site: Site) -> None:
    answer, text = site.ask("/api/overview", Host_=name)

    assert answer.status == 421
    assert "glances" not in text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:9"])
def test_the_names_of_loopback_are_ours(name: str, site: Site) -> None:
    answer, _ = site.ask("/api/overview", Host_=name)

    assert answer.status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site", "Origin": "http://127.0.0.1"},
        {"Sec_Fetch_Site": "same-site"},
    ],
    ids=["origin", "null", "cross-site", "same-site"],
)
def test_a_change_from_elsewhere_is_refused_even_with_the_token(headers: dict[str, str], site: Site) -> None:
    answer, _ = site.act("pause", "queue", QUEUE, place=site.key("panqueue"), **headers)

    assert answer.status == 403
    assert not _is_paused(site)


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_a_change_without_the_token_is_refused(token: str, site: Site) -> None:
    answer, _ = site.act("pause", "queue", QUEUE, place=site.key("panqueue"), Authorization=token)

    assert answer.status == 403
    assert not _is_paused(site)


def test_a_cookie_of_another_token_is_worth_nothing(site: Site) -> None:
    cookie = f"queueyard-dashboard={'0' * 64}"
    origin = site.url

    answer, _ = site.ask("/act", method="POST", body="verb=pause", Cookie=cookie, Origin=origin)

    assert answer.status == 403


@pytest.mark.parametrize(
    ("verb", "noun", "target", "status"),
    [
        ("explode", "queue", [QUEUE], 400),
        ("retry", "universe", [QUEUE], 400),
        ("pause", "job", ["a", "b"], 409),
        ("pause", "queue", [], 409),
        ("retry", "job", [QUEUE, "no-such-job"], 409),
    ],
)
def test_what_cannot_be_done_is_refused_in_words(
    verb: str, noun: str, target: list[str], status: int, site: Site
) -> None:
    answer, text = site.act(verb, noun, *target, place=site.key("panqueue"))

    assert answer.status == status
    assert "Traceback" not in text


def test_a_place_that_is_not_in_the_yard_is_not_found(site: Site) -> None:
    answer, _ = site.act("pause", "queue", QUEUE, place="0" * 12)

    assert answer.status == 404


def test_a_form_that_is_too_large_is_refused(site: Site) -> None:
    answer, _ = site.ask("/login", method="POST", body="token=" + "x" * 100_000, Origin=site.url)

    assert answer.status == 413


def test_the_token_opens_by_header_too(site: Site) -> None:
    key = site.key("panqueue")

    paused, said = site.act("pause", "queue", QUEUE, place=key)
    resumed, _ = site.act("resume", "queue", QUEUE, place=key)

    assert (paused.status, resumed.status) == (200, 200)
    assert "is paused" in said


@pytest.fixture(scope="module")
def read_only(site: Site) -> Iterator[Site]:
    """The same yard, shown without --allow-actions."""
    running = start_site(site.root, site.redis)
    yield running
    stop_site(running)


def test_without_leave_nothing_can_be_changed_even_with_the_token(read_only: Site) -> None:
    answer, text = read_only.act("pause", "queue", QUEUE, place=read_only.key("panqueue"))

    assert answer.status == 403
    assert "--allow-actions" in text
    assert not _is_paused(read_only)


def test_beyond_this_machine_everything_needs_the_token(site: Site) -> None:
    beyond = start_site(site.root, site.redis, "--host", "0.0.0.0", "--name", "yard.example.org")
    try:
        page, _ = beyond.ask("/", Accept="text/html", Host_="yard.example.org")
        data, text = beyond.ask("/api/overview")
        static, _ = beyond.ask("/static/dashboard.css")
        known, _ = beyond.ask("/api/overview", Authorization=f"Bearer {TOKEN}")
    finally:
        stop_site(beyond)

    assert (page.status, page.headers["location"]) == (303, "/login")
    assert (data.status, "glances" in text) == (401, False)
    assert (static.status, known.status) == (200, 200)


@pytest.mark.parametrize("words", [("--host", "0.0.0.0"), ("--host", "::"), ("--name", "yard.example.org")])
def test_beyond_this_machine_it_does_not_start_without_a_token(words: tuple[str, str], tmp_path: Path) -> None:
    answer = run_script("queueyard", "dashboard", *words, "--json", cwd=tmp_path)

    assert answer.code == 1
    assert answer.fault["kind"] == "NotLoopback"


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short\n")

    answer = run_script("queueyard", "dashboard", "--token-file", "token", "--json", cwd=tmp_path)

    assert answer.code == 1
    assert answer.fault["kind"] == "BadSettings"


def test_where_no_token_is_set_one_is_made_and_opens(tmp_path: Path) -> None:
    running = subprocess.Popen(
        [find_script("queueyard"), "dashboard", "--port", "0", "--allow-actions"],
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with running:
        assert running.stdout is not None
        assert running.stderr is not None
        url = running.stdout.readline().split()[-1]
        token = running.stderr.readline().split()[-1]
        made = Site(url=url, root=tmp_path, redis="", process=running)
        answer, _ = made.ask("/login", method="POST", body=f"token={token}", Origin=url)
        running.terminate()

    assert answer.status == 303
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    assert running.returncode == 0


def test_a_password_in_an_address_is_never_shown(tmp_path: Path, site: Site) -> None:
    secret = "hunter2-the-secret"
    url = site.redis.replace("redis://", f"redis://somebody:{secret}@")
    (tmp_path / "queueyard.toml").write_text(f'[[place]]\nsystem = "panqueue"\nat = "{url}"\n')
    with_secret = start_site(tmp_path, url)
    try:
        texts = [with_secret.ask(path)[1] for path in ("/", "/system/panqueue", "/api/overview")]
    finally:
        stop_site(with_secret)

    assert all(site.redis.removeprefix("redis://") in text for text in texts)
    assert not any(secret in text for text in texts)


def test_a_stream_that_somebody_watches_does_not_hold_the_end_up(tmp_path: Path) -> None:
    short = start_site(tmp_path, "")
    line = HTTPConnection("127.0.0.1", short.port, timeout=60)
    line.request("GET", "/live")
    stream = line.getresponse()
    assert stream.readline().startswith(b"retry:")

    stop_site(short)

    assert stream.read().endswith(b"\n\n")
    line.close()


def _is_paused(site: Site) -> bool:
    with SyncQueueClient(site.redis) as client:
        return client.queue(QUEUE).counts().paused
