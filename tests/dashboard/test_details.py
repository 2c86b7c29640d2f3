"""What one place holds, read from real systems, and nothing written while looking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import busy_yard
from queueyard.kernel.errors import QueueyardError
from queueyard.yard.details import jjq, ops, panqueue, queen, runforge
from queueyard.yard.details.parts import Wanted
from servers import own_server

if TYPE_CHECKING:
    from pathlib import Path

    from jj_repositories import Repository

pytest_plugins = ("jj_fixtures",)
ALL = Wanted(limit=1_000)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_queen_tells_agents_with_what_waits_for_them(tmp_path: Path) -> None:
    place = busy_yard.make_queen(tmp_path / "repo", messages=12)
    before = contents(tmp_path)

    found = queen.look(place.at, ALL)

    assert {row.agent: row.unread for row in found.agents.rows} == {"ana": 2, "ben": 2, "cleo": 2, "dora": 2}
    assert {row.agent: (row.assigned, row.reserved) for row in found.agents.rows}["ana"] == (1, 1)
    assert [row.state for row in found.messages.rows] == ["unread"] * 8 + ["read"] * 4
    assert [row.pattern for row in found.reservations.rows] == list(busy_yard._PATTERNS)
    assert contents(tmp_path) == before


def test_queen_tells_who_is_on_whose_files(tmp_path: Path) -> None:
    place = busy_yard.make_queen(tmp_path / "repo")
    with (tmp_path / "repo" / ".beads" / "queen_reservations.jsonl").open("a") as stream:
        stream.write(
            '{"id":"qr-9","created_at":"2026-01-01T00:00:00Z","expires_at":"2999-01-01T00:00:00Z",'
            '"pattern":"src/*/theme.css","agent":"eve","status":"active","exclusive":true}\n'
        )

    (row,) = queen.look(place.at, ALL).overlaps.rows

    assert {row.holder, row.other} == {"ana", "eve"}
    assert (row.clash, row.example) == ("blocks", "src/ui/theme.css")


def test_runforge_tells_groups_with_their_share(tmp_path: Path) -> None:
    place = busy_yard.make_runforge(tmp_path / "lab", runs=30)
    before = contents(tmp_path)

    found = runforge.look(place.at, ALL)

    assert (found.queued.total, found.running.total, found.failed.total, found.ended.total) == (12, 6, 6, 6)
    assert sum(row.share or 0 for row in found.groups.rows) == pytest.approx(1.0)
    assert found.fairness == pytest.approx(1.0)
    assert {row.reason for row in found.failed.rows if row.run_id == "run-0001"} == {"out of memory at depth 1"}
    assert contents(tmp_path) == before


def test_a_run_has_a_log_and_nothing_else_has(tmp_path: Path) -> None:
    place = busy_yard.make_runforge(tmp_path / "lab")

    assert runforge.log(place.at, "run-0003").text.startswith("epoch 1: loss 0.3\n")
    for name in ("no-such-run", "../../../etc", ""):
        with pytest.raises(QueueyardError):
            runforge.log(place.at, name)


def test_of_a_long_log_the_end_is_shown(tmp_path: Path) -> None:
    place = busy_yard.make_runforge(tmp_path / "lab")
    log = tmp_path / "lab" / ".ml" / "runs" / "run-0003" / "logs.txt"
    log.write_bytes(b"x" * 200_000 + b"\xffthe end")

    found = runforge.log(place.at, "run-0003")

    assert found.text.endswith("\N{REPLACEMENT CHARACTER}the end")
    assert found.left_out == 200_008 - 64 * 1024


def test_panqueue_tells_queues_keys_and_jobs() -> None:
    with own_server() as server:
        busy_yard.make_panqueue(server.url, "mails", jobs=70, failing=6)

        found = panqueue.look(server.url, Wanted(limit=20))
        filtered = panqueue.look(server.url, Wanted(text="HELLO 6", limit=20))

    (row,) = found.queues.rows
    assert (row.queue, row.mode, row.state, row.waiting, row.failed) == ("mails", "keyed", "open", 70, 6)
    assert (len(found.waiting.rows), found.waiting.total) == (20, 70)
    assert sum(key.waiting for key in found.keys.rows) == 70
    assert {job.reason for job in found.failed.rows} == {"the line was busy"}
    assert filtered.waiting.total == 11


def test_jjq_tells_what_waits_failed_and_landed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JJ_CONFIG", str(repository.home / "jj.toml"))
    repository.push("lands")
    repository.push("breaks", {"bad": "x\n"})
    repository.jjq("run", "--all")
    repository.push("waits")

    found = jjq.look(str(repository.root), ALL)

    assert found.trunk == "main"
    assert [(row.id, row.state, row.subject) for row in found.queue.rows] == [(3, "queued", "waits")]
    assert [(row.id, row.reason, row.subject) for row in found.failed.rows] == [(2, "check", "breaks")]
    assert [(row.id, row.subject) for row in found.landed.rows] == [(1, "lands")]
    assert "--- jjq:" in jjq.log(str(repository.root), "2").text


def test_ops_tells_requests_and_dead_letters(tmp_path: Path) -> None:
    place = busy_yard.make_ops(tmp_path, files=60)

    found = ops.look_at_home(place.at, ALL)

    (request,) = found.requests.rows
    assert (request.batches, request.left, request.ops_left, request.message) == (3, 3, 60, "spring cleaning")
    assert {row.code for row in found.dead.rows} == {"content_too_large"}


def test_an_ops_server_tells_what_it_applied_and_refused(tmp_path: Path) -> None:
    from dashboard_sites import serving_ops

    with serving_ops(tmp_path / "data") as url:
        busy_yard.push_to(url, tmp_path / "home", files=30)

        found = ops.look_at_server(url, Wanted(limit=10))

    assert (len(found.changes.rows), found.changes.total) == (10, 30)
    assert found.changes.rows[0].number == 30
    assert {row.state for row in found.refusals.rows} == {"conflict"}


@pytest.mark.parametrize("look", [queen.look, runforge.look, jjq.look])
def test_a_place_that_is_not_there_is_an_error_with_a_hint(look: object, tmp_path: Path) -> None:
    assert callable(look)
    with pytest.raises(QueueyardError):
        look(str(tmp_path / "nowhere"), ALL)
