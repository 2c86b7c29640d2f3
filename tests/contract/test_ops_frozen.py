"""Queues, databases and exports that an earlier version wrote are understood by every later one."""

from __future__ import annotations

from contextlib import closing
import json
from pathlib import Path
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from queueyard.ops.home import scope_folder
from queueyard.ops.records import Scope
from unit.ops.support.running import RunningServer, ScriptClient, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = Path(__file__).parents[1] / "data" / "ops"
TOKEN = "jo_0123456789ab_frozen"


@pytest.fixture(params=["ledger.sql", "ledger-2.sql"])
def old_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningServer]:
    """A server on a frozen database; its answers are kept however old they are."""
    folder = tmp_path / "data"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "ledger.sqlite3")) as line:
        line.executescript((DATA / "server" / request.param).read_text(encoding="utf-8"))
    with running_server(tmp_path, "--keep-answers", "36500d") as server:
        yield server


def test_a_batch_of_an_old_database_gets_its_first_answer_again(old_server: RunningServer) -> None:
    for number in (1, 2):
        again = old_server.push((DATA / "server" / f"batch-{number}.json").read_bytes())

        assert (again.status, again.headers["idempotent-replay"]) == (200, "true")
        assert again.body == (DATA / "server" / f"answer-{number}.json").read_bytes()


def test_an_old_database_goes_on_counting(old_server: RunningServer) -> None:
    before = old_server.feed()

    restored = old_server.push(batch(op(9, fileId="FILE1", serverPath="notes/1.md", baseVersion=2), request="NEW"))

    assert [entry["seq"] for entry in before] == [1, 2, 3]
    assert {one["fileId"]: one.get("content") for one in old_server.pull()["changes"]} == {
        "FILE1": "text 9",
        "FILE2": "two\n",
    }
    assert (restored.json["results"][0]["newVersion"], restored.json["newCursor"]) == (3, 4)


def test_an_old_token_lets_its_holder_in(old_server: RunningServer) -> None:
    right = old_server.ask("GET", "/v1/sync/limits", Authorization=f"Bearer {TOKEN}")
    wrong = old_server.ask("GET", "/v1/sync/limits", Authorization=f"Bearer {TOKEN}x")

    assert (right.status, wrong.status) == (200, 401)


def test_an_old_export_is_continued(old_server: RunningServer, tmp_path: Path) -> None:
    target = tmp_path / "feed"
    shutil.copytree(DATA / "export", target / "default")
    old_server.push(batch(op(9), request="NEW"))
    client = ScriptClient(tmp_path / "client", old_server.url)

    [told] = [
        one
        for one in client.json("export", "--data", str(old_server.data), "--to", str(target))
        if one["folder"].endswith("default")
    ]

    assert told["segments"] == ["changes-000000000004-000000000004.jsonl"]
    assert (told["last_change"], told["last_audit"]) == (4, 2)


def test_an_old_queue_is_resumed_at_the_batch_that_has_no_answer(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url)
        scope = Scope(server=server.url, space="default", workspace=str(client.workspace.resolve()))
        folder = scope_folder(client.home / "jolli", scope)
        shutil.copytree(DATA / "client", folder)
        write_the_files_of_then(client)
        answered = sorted(folder.glob("REQ-*-000001.json"))
        assert server.push(answered[0].read_bytes()).status == 200

        resumed = client.json("resume")
        pushed = client.json("push")

        assert (resumed["batches"], resumed["applied"]) == (2, 35)
        assert pushed["plan"]["paths"] == []
        assert [letter["op"]["serverPath"] for letter in client.json("dead", "list")] == ["nine.md"]


def write_the_files_of_then(client: ScriptClient) -> None:
    client.write("known.md", "known\n")
    for number in range(60):
        client.write(f"{number:03d}.md", f"text {number}\n")


def test_a_scope_is_looked_for_where_it_always_was() -> None:
    scope = Scope(server="http://127.0.0.1:3001", space="docs", workspace="/home/ana/notes")

    assert scope_folder(Path("/home/ana/.jolli"), scope).name == "127.0.0.1_3001-docs-notes-f8265986fc0f"


def test_the_example_of_the_spec_is_a_batch(tmp_path: Path) -> None:
    """Its hash is no hash of its text, and its file is not there: the batch is taken, the op is not."""
    with running_server(tmp_path) as server:
        answer = server.push((DATA / "spec_batch.json").read_bytes())
        without_hash = json.loads((DATA / "spec_batch.json").read_bytes())
        del without_hash["ops"][0]["contentHash"]
        second = server.push({**without_hash, "batchIndex": 2})

    assert (answer.status, second.status) == (200, 200)
    assert answer.json["results"][0]["code"] == "bad_hash"
    assert (second.json["results"][0]["status"], second.json["results"][0]["serverVersion"]) == ("conflict", 0)
