"""The rest of the command line: status, pending, config, doctor, export, and how all of it talks."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from scripts import run_script
from unit.ops.support.running import RunningServer, ScriptClient, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def space(server: RunningServer) -> str:
    return server.new_space()


@pytest.fixture
def client(server: RunningServer, space: str, tmp_path: Path) -> ScriptClient:
    return ScriptClient(tmp_path / "client", server.url, space)


class TestLooking:
    def test_status_tells_what_waits(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("plan", "-m", "why")

        [report] = client.json("status")
        everywhere = client.json("status", "--all")
        table = client.run("status").stdout

        assert (report["pending_ops"], report["pending_batches"], report["requests"]) == (1, 1, 1)
        assert everywhere == [report]
        assert "1 in 1 batch" in table

    def test_status_asks_the_server_only_when_told_to(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("plan")

        assert client.json("status", "--remote")[0]["server"]["maxOps"] == 500
        assert client.run("status", JOLLI_SERVER="http://127.0.0.1:9").code == 0

    def test_looking_makes_no_files(self, client: ScriptClient) -> None:
        for words in (["status"], ["pending", "list"], ["dead", "list"], ["conflicts"], ["doctor"], ["config"]):
            assert client.run(*words).code == 0, words

        assert not (client.home / "jolli").exists()

    def test_pending_requests_can_be_listed_shown_and_dropped(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("plan", "-m", "first")
        client.write("b.md", "text")
        second = client.json("plan")["request_id"]

        listed = client.json("pending", "list")
        shown = client.json("pending", "show", second)
        client.json("pending", "drop", listed[0]["request_id"])
        left = client.json("pending", "list")

        assert [(one["message"], one["pending_ops"]) for one in listed] == [("first", 1), (None, 1)]
        assert [(one["batch_index"], one["serverPath"]) for one in shown] == [(1, "b.md")]
        assert [one["request_id"] for one in left] == [second]

    def test_what_was_dropped_is_planned_again(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("pending", "drop", client.json("plan")["request_id"])

        assert client.json("push")["applied"] == 1

    def test_an_unknown_request_is_told_what_to_type(self, client: ScriptClient) -> None:
        refused = client.run("pending", "show", "none", "--json")

        assert (refused.code, refused.fault["hint"]) == (1, "List what is queued: jolli-ops pending list")

    def test_every_setting_says_where_it_comes_from(self, client: ScriptClient, space: str) -> None:
        client.write(".jolli/ops.toml", "batch_ops = 50\n")

        told = client.json("config", "--origin", JOLLI_COMPRESS="gzip")

        assert told["batch_ops"]["value"] == 50
        assert told["batch_ops"]["origin"].endswith(".jolli/ops.toml")
        assert told["compress"] == {"value": "gzip", "origin": "environment"}
        assert told["space"] == {"value": space, "origin": "environment"}
        assert told["retry_for"]["origin"] == "default"

    def test_all_wrong_settings_are_told_at_once(self, client: ScriptClient) -> None:
        client.write(".jolli/ops.toml", 'batch_ops = "many"\ncolour = 1\n')

        refused = client.run("status", JOLLI_TIMEOUT_S="soon")

        assert refused.code == 1
        for word in ("batch_ops", "colour", "JOLLI_TIMEOUT_S"):
            assert word in refused.stderr

    def test_batches_can_be_sent_compressed(self, server: RunningServer, client: ScriptClient, space: str) -> None:
        for encoding in ("gzip", "zstd"):
            client.write(f"{encoding}.md", "text " * 1000)

            assert client.json("push", "--compress", encoding)["applied"] == 1
        assert len(server.feed(space=space)) == 2

    def test_a_refusal_of_the_caller_stops_the_push_and_spends_nothing(self, client: ScriptClient) -> None:
        client.write("a.md", "text")

        refused = client.run("push", "--space", "nowhere", "--json")

        assert (refused.code, refused.fault["status"], refused.fault["code"]) == (1, 404, "unknown_space")
        assert client.json("status", "--space", "nowhere")[0]["pending_ops"] == 1


class TestDoctor:
    def test_a_healthy_queue_is_well(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("push")

        assert client.run("doctor").stderr == "Everything is well.\n"

    def test_it_finds_what_is_wrong_and_mends_what_it_can(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        client.json("plan")
        [manifest] = client.scope.glob("*.manifest.json")
        manifest.write_text("{")
        manifest.chmod(0o644)

        sick = client.run("doctor", "--json")
        push = client.run("push")
        mended = client.run("doctor", "--fix", "--json")
        pushed = client.json("push")

        assert (sick.code, {one["check"] for one in sick.json}) == (1, {"modes", "manifests"})
        assert push.code == 1
        assert "jolli-ops doctor --fix" in push.stderr
        assert [one["fixed"] for one in mended.json if one["check"] in {"modes", "manifests"}] == [True, True]
        assert pushed["applied"] == 1

    def test_it_finds_all_that_is_corrupt_at_once(self, client: ScriptClient) -> None:
        for name in ("a.md", "b.md"):
            client.write(name, f"text of {name}")
            client.json("plan")
        letter = client.scope / "dead" / "letter.json"
        letter.parent.mkdir(mode=0o700, exist_ok=True)
        corrupt = [*client.scope.glob("*.manifest.json"), client.scope / "workspace.json", letter]
        for path in corrupt:
            path.write_text("{")
            path.chmod(0o600)

        sick = client.run("doctor", "--json")

        assert [one["check"] for one in sick.json] == ["manifests", "manifests", "documents", "documents"]
        assert all(any(str(path) in one["problem"] for one in sick.json) for path in corrupt)
        assert all(one["advice"] for one in sick.json)

    def test_a_server_that_is_not_there_is_told(self, client: ScriptClient) -> None:
        client.write("a.md", "text")
        dead: dict[str, Any] = {"JOLLI_SERVER": "http://127.0.0.1:9"}
        client.json("plan", **dead)

        told = client.run("doctor", "--json", **dead)

        assert (told.code, [one["check"] for one in told.json]) == (1, ["server"])

    def test_the_books_of_a_server_are_checked(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            server.push(batch(op(1), op(2), total=2))
            well = run_script("jolli-ops", "doctor", "--data", str(server.data), cwd=tmp_path)
        with sqlite3.connect(server.data / "ledger.sqlite3") as line:
            line.execute("DELETE FROM change WHERE seq = 1")
            line.execute("DELETE FROM blob WHERE id = 2")
            line.execute("UPDATE request SET done = 2")
        line.close()

        sick = run_script("jolli-ops", "doctor", "--data", str(server.data), "--json", cwd=tmp_path)

        assert well.code == 0
        assert (sick.code, [one["check"] for one in sick.json]) == (1, ["density", "texts", "progress"])


class TestExport:
    def export(self, server: RunningServer, target: Path, space: str, *words: str) -> Any:
        answer = run_script(
            "jolli-ops",
            *("export", "--data", str(server.data), "--to", str(target), "--space", space, "--json", *words),
            cwd=target.parent,
        )
        assert answer.code == 0, answer
        [done] = answer.json
        return done

    def lines(self, folder: Path, stream: str) -> list[dict[str, Any]]:
        manifest = json.loads((folder / "_manifest.json").read_bytes())
        found = []
        for segment in manifest[stream]:
            body = (folder / segment["name"]).read_bytes()
            assert hashlib.sha256(body).hexdigest() == segment["sha256"]
            assert len(body) == segment["bytes"]
            found += [json.loads(line) for line in body.splitlines()]
        return found

    def test_each_run_adds_what_is_new(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        server.push(batch(*map(op, range(25))), space=space)
        first = self.export(server, tmp_path / "feed", space, "--rows", "10")
        server.push(batch(op(99), op(1, opId="LATE"), request="R2"), space=space)
        second = self.export(server, tmp_path / "feed", space, "--rows", "10")
        third = self.export(server, tmp_path / "feed", space, "--rows", "10")

        folder = tmp_path / "feed" / space
        assert [len(first["segments"]), len(second["segments"]), third["segments"]] == [3, 1, []]
        assert first["segments"][0] == "changes-000000000001-000000000010.jsonl"
        assert (second["changes"], second["audit"], third["changes"]) == (1, 0, 0)
        changes = self.lines(folder, "changes")
        assert changes == server.feed(space=space)
        assert [one["seq"] for one in changes] == list(range(1, 27))

    def test_conflicts_and_rejections_have_segments_of_their_own(
        self, server: RunningServer, space: str, tmp_path: Path
    ) -> None:
        server.push(batch(op(1), op(2, serverPath="../x")), space=space)

        done = self.export(server, tmp_path / "feed", space)

        assert (done["changes"], done["audit"]) == (1, 1)
        [refusal] = self.lines(tmp_path / "feed" / space, "audit")
        assert (refusal["opId"], refusal["code"]) == ("OP2", "bad_path")

    def test_texts_come_along_when_asked_for(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        server.push(batch(op(1), op(2, type="delete", content=None)), space=space)

        self.export(server, tmp_path / "feed", space, "--content")

        assert [one["content"] for one in self.lines(tmp_path / "feed" / space, "changes")] == ["text 1"]

    def test_without_a_server_there_is_nothing_to_export(self, tmp_path: Path) -> None:
        refused = run_script("jolli-ops", "export", "--data", "nowhere", "--to", "feed", cwd=tmp_path)

        assert refused.code == 1
        assert "there is no server data in nowhere" in refused.stderr


class TestSpaces:
    def test_they_can_be_made_and_listed_while_the_server_runs(self, server: RunningServer) -> None:
        where = ("--data", str(server.data))
        made = run_script("jolli-ops", "space", "create", "fresh", *where, "--json", cwd=server.data.parent)
        again = run_script("jolli-ops", "space", "create", "fresh", *where, "--json", cwd=server.data.parent)
        server.push(batch(op(1)), space="fresh")
        listed = run_script("jolli-ops", "space", "list", *where, "--json", cwd=server.data.parent)

        assert (made.json["created"], again.json["created"]) == (True, False)
        assert [one["head"] for one in listed.json if one["slug"] == "fresh"] == [1]

    @pytest.mark.parametrize("name", ["../x", "a b", "", "x" * 65])
    def test_what_is_no_name_is_refused(self, tmp_path: Path, name: str) -> None:
        assert run_script("jolli-ops", "space", "create", name, cwd=tmp_path).code == 2
