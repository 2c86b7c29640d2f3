"""Real processes, real kill -9, a real full disk: what was accepted arrives once."""

from __future__ import annotations

from contextlib import closing
import os
import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from scripts import find_script, finish
from unit.ops.support.running import SPACES, RunningServer, ScriptClient, batch, op, running_server
from unit.ops.support.storm import (
    ServerKiller,
    kill_clients,
    suicidal,
    violations,
    violations_of_a_dying_client,
    violations_of_a_dying_pull,
    write_files,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("when", "committed"), [("before", 2), ("after", 3)])
def test_a_server_that_dies_around_a_commit_has_the_batch_whole_or_not_at_all(
    tmp_path: Path, when: str, committed: int
) -> None:
    with running_server(tmp_path, command=suicidal(3, when)) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1")
        write_files(client, 100)
        client.json("plan", "--batch-ops", "25")
        pushing = client.start("resume", "--retry-for", "1m", "--json")

        assert server.wait() == -9
        found = changes_on_disk(server)
        server.start()
        done = finish(pushing)

        assert found == committed * 25
        assert (done.code, done.json["applied"]) == (0, 100)
        assert violations(server, client, 100, space="space1") == []


def test_a_client_that_is_killed_again_and_again_arrives_all_the_same(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1")
        write_files(client, 1_000)
        client.json("plan", "--batch-ops", "25")

        kill_clients(client, random.Random(7), 6)
        client.json("resume")

        assert violations(server, client, 1_000, space="space1") == []


def test_a_client_that_is_killed_at_any_step_arrives_all_the_same(tmp_path: Path) -> None:
    """Every fifteenth step of a push here; `make chaos` takes each of them."""
    died = 0

    with running_server(tmp_path) as server:
        for nth in range(1, SPACES, 15):
            found = violations_of_a_dying_client(server, tmp_path / f"client{nth}", nth)
            if found is None:
                break
            assert found == [], f"step {nth}"
            died += 1

    assert died > 6


def test_a_pull_that_is_killed_at_any_step_leaves_nothing_that_looks_like_the_users(tmp_path: Path) -> None:
    died = 0

    with running_server(tmp_path) as server:
        for nth in range(1, SPACES, 15):
            found = violations_of_a_dying_pull(server, tmp_path / f"pull{nth}", nth)
            if found is None:
                break
            assert found == [], f"step {nth}"
            died += 1

    assert died > 3


def test_a_server_that_is_killed_again_and_again_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1")
        write_files(client, 1_500)
        client.json("plan", "--batch-ops", "25")

        with ServerKiller(server, random.Random(11), most_batches=12, most=4) as killer:
            done = client.run("resume", "--retry-for", "2m", "--json")

        assert killer.kills > 0
        assert (done.code, done.json["applied"]) == (0, 1_500)
        assert violations(server, client, 1_500, space="space1") == []


def test_a_plan_that_does_not_fit_on_the_disk_leaves_nothing_and_the_queue_as_it_was(
    tmp_path: Path, small_disk: Path
) -> None:
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1", JOLLI_HOME=str(small_disk))
        client.write("small.md", "text")
        client.json("plan")
        for number in range(40):
            client.write(f"{number}.md", f"{number}" + "x" * 10_000)

        refused = client.run("push", "--batch-ops", "25", "--json")
        queued = client.json("status")[0]
        left = [path.name for path in small_disk.rglob("REQ-*")]
        sent = client.json("resume")

        assert (refused.code, refused.fault["kind"]) == (1, "StorageFailed")
        assert "No space left" in refused.stderr
        assert (queued["pending_ops"], len(left)) == (1, 2)
        assert sent["applied"] == 1


def test_a_server_that_cannot_write_says_so_and_keeps_what_it_has(tmp_path: Path) -> None:
    small = ["bash", "-c", 'ulimit -f 3000; exec "$0" "$@"', os.fspath(find_script("jolli-ops"))]
    with running_server(tmp_path, command=small) as server:
        answers: list[bytes] = []
        while (response := server.push(large(len(answers) + 1))).status == 200:
            answers.append(response.body)
        refused = server.push(large(len(answers) + 1))
        before = server.feed()
        server.kill()
        server.start()
        after = server.push(large(len(answers) + 1))

        assert 0 < len(answers) < 99
        assert (refused.status, refused.code, "retry-after" in refused.headers) == (503, "storage_failed", True)
        assert len(before) == len(answers)
        assert after.status == 200
        assert [server.push(large(index)).body for index in range(1, len(answers) + 1)] == answers
        assert [entry["seq"] for entry in server.feed()] == list(range(1, len(answers) + 2))


def large(index: int) -> dict[str, object]:
    return batch(op(index, content=f"{index}" + "x" * 100_000), index=index, total=100)


def changes_on_disk(server: RunningServer) -> int:
    with closing(sqlite3.connect(server.data / "ledger.sqlite3")) as line:
        [(count,)] = line.execute("SELECT COUNT(*) FROM change").fetchall()
    return int(count)
