"""The spec, clause by clause, through the real script against the real server: batches, retries, resuming."""

from __future__ import annotations

import hashlib
import json
import re
import signal
from typing import TYPE_CHECKING, Any

import pytest

from scripts import finish
from unit.ops.support.proxy import FaultyProxy
from unit.ops.support.running import RunningServer, ScriptClient, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BATCH_NAME = re.compile(r"REQ-([0-7][0-9A-HJKMNP-TV-Z]{25})-(\d{6})\.json")


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


def write_files(client: ScriptClient, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        client.write(f"{number:03d}.md", f"text {number}\n")


def paths(feed: list[dict[str, Any]]) -> list[str]:
    return [entry["serverPath"] for entry in feed]


class TestTheBatchFiles:
    def test_a_plan_writes_one_file_per_batch_in_the_shape_of_the_spec(self, client: ScriptClient) -> None:
        """spec: Data Model; Chunk into batches; Write each batch to disk."""
        write_files(client, 60)

        planned = client.json("plan", "--batch-ops", "25", "-m", "why")

        names = client.batch_files()
        assert [BATCH_NAME.fullmatch(name)[2] for name in names] == ["000001", "000002", "000003"]  # type: ignore[index]
        wholes = [json.loads((client.scope / name).read_bytes()) for name in names]
        for index, whole in enumerate(wholes, 1):
            assert whole["requestId"] == planned["request_id"]
            assert (whole["batchIndex"], whole["totalBatches"]) == (index, 3)
            assert isinstance(whole["createdAt"], int)
        assert [len(whole["ops"]) for whole in wholes] == [25, 25, 10]
        first = wholes[0]["ops"][0]
        assert (first["type"], first["serverPath"], first["baseVersion"]) == ("upsert", "000.md", 0)
        assert first["content"] == "text 0\n"
        assert first["contentHash"] == hashlib.sha256(b"text 0\n").hexdigest()
        assert {"opId", "fileId"} <= set(first)

    def test_they_are_for_their_owner_only_and_hold_no_token(self, client: ScriptClient) -> None:
        write_files(client, 2)

        client.json("plan", JOLLI_TOKEN="canary-token-text")

        for path in [client.home / "jolli" / "ops", client.scope, *client.scope.rglob("*")]:
            assert path.stat().st_mode & 0o077 == 0, path
            assert path.is_dir() or b"canary-token-text" not in path.read_bytes()

    def test_batches_are_bounded_in_bytes_too(self, client: ScriptClient) -> None:
        for number in range(6):
            client.write(f"{number}.md", "x" * 4_000)

        planned = client.json("plan", "--batch-bytes", "10000")

        assert planned["batches"] == 3
        assert all((client.scope / name).stat().st_size <= 10_000 for name in client.batch_files())

    @pytest.mark.parametrize("count", ["24", "201"])
    def test_a_batch_has_25_to_200_ops(self, client: ScriptClient, count: str) -> None:
        answer = client.run("plan", "--batch-ops", count)

        assert answer.code == 1
        assert "25 to 200" in answer.stderr

    def test_another_space_or_workspace_has_a_folder_of_its_own(self, client: ScriptClient) -> None:
        write_files(client, 1)
        (client.workspace / "sub").mkdir()
        client.write("sub/a.md", "a")

        client.json("plan")
        client.json("plan", "--space", "default")
        client.json("plan", "sub")

        assert len(list((client.home / "jolli" / "ops").iterdir())) == 3


class TestSuggestedTests:
    def test_batch_retry_returns_identical_response(self, server: RunningServer, space: str) -> None:
        """spec: Suggested Tests, first; Idempotency."""
        sent = batch(op(1), op(2, fileId="FILE1"), op(3, serverPath="../up"), total=2)

        first = server.push(sent, space=space)
        second = server.push(batch(op(4), index=2, total=2), space=space)
        again = server.push(sent, space=space)

        assert (first.status, second.status, again.status) == (200, 200, 200)
        assert [result["status"] for result in first.json["results"]] == ["applied", "conflict", "rejected"]
        assert again.body == first.body
        assert ("idempotent-replay" in first.headers, again.headers["idempotent-replay"]) == (False, "true")
        assert len(server.feed(space=space)) == 2

    @pytest.mark.parametrize(("fault", "applied"), [("hold", 50), ("swallow", 75)])
    def test_crash_mid_queue_resumes_at_correct_batch(
        self, server: RunningServer, space: str, tmp_path: Path, fault: str, applied: int
    ) -> None:
        """spec: Suggested Tests, second: killed in the third of four batches, before or after the server has it."""
        with FaultyProxy(server.url, ["pass", "pass", fault]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 100)
            client.json("plan", "--batch-ops", "25")
            pushing = client.start("resume")
            assert proxy.held.wait(30)
            pushing.kill()
            pushing.communicate()
            assert len(server.feed(space=space)) == applied

            resumed = client.json("resume")

        assert [line for _, line in proxy.seen] == ["POST /v1/sync/push HTTP/1.1"] * 5  # one batch was sent twice
        assert (resumed["batches"], resumed["applied"]) == (2, 50)
        assert paths(server.feed(space=space)) == [f"{number:03d}.md" for number in range(100)]
        assert client.batch_files() == []

    def test_mixed_success_failure_preserves_remaining_batch_files(
        self, server: RunningServer, space: str, tmp_path: Path
    ) -> None:
        """spec: Suggested Tests, third; on success delete the file, on failure stop and leave the rest."""
        with FaultyProxy(server.url, ["pass", "pass", *["drop"] * 100]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 100)
            client.json("plan", "--batch-ops", "25")
            names = client.batch_files()

            stopped = client.run("resume", "--retry-for", "300ms")

        assert stopped.code == 75
        assert client.batch_files() == names[2:]
        assert len(server.feed(space=space)) == 50
        assert "50 ops in 2 batches stay queued" in stopped.stderr

    def test_a_server_that_is_away_keeps_nothing_from_the_others(
        self, server: RunningServer, space: str, tmp_path: Path
    ) -> None:
        with FaultyProxy(server.url, ["drop"] * 100) as away:
            client = ScriptClient(tmp_path, server.url, space)
            write_files(client, 1)
            client.json("plan")
            for name in ("first", "second"):
                client.json("plan", JOLLI_SERVER=away.url, JOLLI_SPACE=name)

            done = client.run("resume", "--all", "--retry-for", "300ms")

        assert done.code == 75
        assert "sent 1 batch" in done.stdout
        assert done.stderr.count("1 ops in 1 batch stay queued") == 2
        assert paths(server.feed(space=space)) == ["000.md"]


class TestRetryAndResume:
    def test_only_the_failed_batch_is_sent_again(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        """spec: Retry & Resume Rules, first and second."""
        faults = ["pass", "drop", "lose", "cut", "pass", "twice", "slow"]
        with FaultyProxy(server.url, faults) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 100)

            pushed = client.json("push", "--batch-ops", "25")

        assert (pushed["batches"], pushed["applied"], pushed["retries"]) == (4, 100, 3)
        assert [fault for fault, _ in proxy.seen] == faults
        assert paths(server.feed(space=space)) == [f"{number:03d}.md" for number in range(100)]

    def test_each_try_of_a_batch_is_told_by_its_number(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        with FaultyProxy(server.url, ["pass", "drop", "lose", "pass"]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 50)

            request_id = client.json("plan", "--batch-ops", "25")["request_id"]
            client.json("resume")

        events = [json.loads(line) for line in (client.scope / "events.jsonl").read_bytes().splitlines()]
        told = {
            index: [(one["kind"], one.get("attempt", 1)) for one in events if one["item"] == f"{request_id}:{index}"]
            for index in (1, 2)
        }
        assert told[1] == [("queued", 1), ("started", 1), ("succeeded", 1)]
        assert told[2] == [
            ("queued", 1),
            ("started", 1),
            ("retried", 2),
            ("started", 2),
            ("retried", 3),
            ("started", 3),
            ("succeeded", 3),
        ]
        assert len({one["id"] for one in events}) == len(events)

    def test_a_fully_completed_request_is_a_no_op_on_retry(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        """spec: Retry & Resume Rules, third; on the client and on the server."""
        write_files(client, 3)
        client.json("push", "--keep-completed")
        before = server.feed(space=space)

        resumed = client.json("resume")
        [kept] = sorted((client.scope / "completed").iterdir())
        again = server.push(kept.read_bytes(), space=space)

        assert (resumed["batches"], again.status) == (0, 200)
        assert server.feed(space=space) == before

    def test_what_a_killed_push_has_heard_is_known_to_the_next_command(
        self, server: RunningServer, space: str, tmp_path: Path
    ) -> None:
        with FaultyProxy(server.url, ["pass", "hold"]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 50)
            pushing = client.start("push", "--batch-ops", "25")
            assert proxy.held.wait(30)
            pushing.kill()
            pushing.communicate()
            client.write("000.md", "changed since")

            pulled = client.json("pull")
            pushed = client.json("push")

        assert pulled["conflicts"] == []
        assert (pushed["applied"], pushed["conflicts"]) == (26, 0)
        versions = {entry["serverPath"]: entry["version"] for entry in server.feed(space=space)}
        assert versions == {f"{number:03d}.md": 1 for number in range(50)} | {"000.md": 2}

    def test_completed_batches_are_deleted_or_kept(self, client: ScriptClient) -> None:
        """spec: delete file or move to `completed/`."""
        write_files(client, 2)
        client.json("push")
        assert client.batch_files() == []
        assert not (client.scope / "completed").exists()

        write_files(client, 2, start=2)
        client.json("push", "--keep-completed")

        assert client.batch_files() == []
        assert len(list((client.scope / "completed").iterdir())) == 1

    def test_a_server_that_is_not_there_leaves_everything_queued(self, client: ScriptClient) -> None:
        write_files(client, 3)

        refused = client.run("push", "--retry-for", "0s", JOLLI_SERVER="http://127.0.0.1:9")

        assert refused.code == 75
        assert "3 ops in 1 batch stay queued" in refused.stderr
        assert client.json("status", JOLLI_SERVER="http://127.0.0.1:9")[0]["pending_ops"] == 3

    def test_a_request_that_was_not_queued_whole_is_discarded_and_planned_again(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        write_files(client, 60)
        client.json("plan", "--batch-ops", "25")
        [manifest] = client.scope.glob("*.manifest.json")
        manifest.unlink()

        pushed = client.json("push", "--batch-ops", "25")

        assert pushed["applied"] == 60
        assert len(server.feed(space=space)) == 60
        assert client.batch_files() == []

    def test_a_torn_batch_file_is_set_aside_and_the_rest_goes_on(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        write_files(client, 60)
        client.json("plan", "--batch-ops", "25")
        torn = client.scope / client.batch_files()[1]
        torn.write_bytes(torn.read_bytes()[:-40])

        first = client.run("resume", "--json")
        second = client.json("push")

        assert (first.code, first.json["applied"]) == (0, 35)
        assert "is not what was queued" in first.stderr
        assert [path.name for path in (client.scope / "quarantine").iterdir()] == [torn.name]
        assert second["applied"] == 25
        assert sorted(paths(server.feed(space=space))) == [f"{number:03d}.md" for number in range(60)]

    def test_a_push_plans_again_what_a_torn_batch_file_held(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        write_files(client, 60)
        client.json("plan", "--batch-ops", "25")
        torn = client.scope / client.batch_files()[1]
        torn.write_bytes(torn.read_bytes()[:-40])

        pushed = client.json("push")

        assert (pushed["plan"]["upserts"], pushed["applied"]) == (25, 60)
        assert sorted(paths(server.feed(space=space))) == [f"{number:03d}.md" for number in range(60)]

    def test_requests_are_sent_in_the_order_of_planning(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        client.write("b.md", "first")
        client.json("plan")
        client.write("b.md", "second")
        client.write("a.md", "first")
        client.json("plan")

        client.json("resume")

        told = [(entry["serverPath"], entry["version"]) for entry in server.feed(space=space)]
        assert told == [("b.md", 1), ("b.md", 2), ("a.md", 1)]

    def test_two_pushers_of_one_scope_do_not_meet(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        with FaultyProxy(server.url, ["hold"]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 3)
            client.json("plan")
            pushing = client.start("resume")
            assert proxy.held.wait(30)

            refused = client.run("resume", JOLLI_LOCK_TIMEOUT_S="0.2")

            pushing.kill()
            pushing.communicate()
        assert refused.code == 1
        assert f"held by pid {pushing.pid}" in refused.stderr

    def test_ctrl_c_leaves_the_rest_queued(self, server: RunningServer, space: str, tmp_path: Path) -> None:
        with FaultyProxy(server.url, ["pass", "hold"]) as proxy:
            client = ScriptClient(tmp_path, proxy.url, space)
            write_files(client, 50)
            client.json("plan", "--batch-ops", "25")
            pushing = client.start("resume")
            assert proxy.held.wait(30)

            pushing.send_signal(signal.SIGINT)
            answer = finish(pushing)

            assert answer.code != 0
            assert len(client.batch_files()) == 1
            assert client.json("resume")["applied"] == 25


class TestPoison:
    def test_one_bad_op_does_not_block_the_rest(self, server: RunningServer, client: ScriptClient, space: str) -> None:
        write_files(client, 30)
        client.write("big.md", "x" * 3_000_000)
        with running_server(client.home / "small", "--max-body-bytes", "1000000") as small:
            pushed = client.run(
                "push", "--batch-bytes", "9000000", "--json", JOLLI_SERVER=small.url, JOLLI_SPACE="default"
            )
            feed = small.feed()

            letters = client.json("dead", "list", JOLLI_SERVER=small.url, JOLLI_SPACE="default")

        assert (pushed.code, pushed.json["applied"], pushed.json["rejected"]) == (3, 30, 1)
        assert sorted(paths(feed)) == [f"{number:03d}.md" for number in range(30)]
        [letter] = letters
        assert (letter["code"], letter["status"]) == ("body_too_large", 413)
        assert "big.md (3000000 bytes)" in letter["reason"]

    def test_a_rejected_op_is_a_dead_letter_that_can_be_retried_and_dropped(
        self, server: RunningServer, client: ScriptClient, space: str
    ) -> None:
        ops = [op(1), op(2, contentHash="0" * 64), op(3, serverPath=".git/hooks/x")]

        pushed = client.run("push", "--ops", "-", "--json", stdin=json.dumps(ops))
        letters = client.json("dead", "list")
        retried = client.json("dead", "retry", "OP2")
        resumed = client.run("resume", "--json")
        client.json("dead", "drop", "--all")

        assert (pushed.code, pushed.json["applied"], pushed.json["rejected"]) == (3, 1, 2)
        assert {(letter["op"]["opId"], letter["code"]) for letter in letters} == {
            ("OP2", "bad_hash"),
            ("OP3", "reserved_path"),
        }
        assert retried == {"queued": 1}
        assert (resumed.code, resumed.json["rejected"]) == (3, 1)
        assert client.json("dead", "list") == []

    def test_a_name_that_fits_several_dead_letters_drops_none(self, client: ScriptClient) -> None:
        ops = [op(number, serverPath=f".git/{number}") for number in (1, 2)]
        client.run("push", "--ops", "-", stdin=json.dumps(ops))

        refused = client.run("dead", "drop", "OP")
        unknown = client.run("dead", "drop", "OP1", "OP7")

        assert (refused.code, unknown.code) == (1, 1)
        assert "2 dead letters fit 'OP'" in refused.stderr
        assert "no dead letter 'OP7'" in unknown.stderr
        assert len(client.json("dead", "list")) == 2

    def test_a_file_whose_op_is_dead_is_not_planned_again_until_it_changes(self, client: ScriptClient) -> None:
        client.write("a.md", "fine")
        with running_server(client.home / "small", "--max-content-bytes", "10") as small:
            there = {"JOLLI_SERVER": small.url, "JOLLI_SPACE": "default"}
            client.write("big.md", "x" * 100)
            first = client.run("push", "--json", **there)
            second = client.run("push", "--json", **there)
            client.write("big.md", "small")
            third = client.run("push", "--json", **there)

        assert (first.json["applied"], first.json["rejected"]) == (1, 1)
        assert (second.code, second.json["plan"]["held"]) == (0, ["big.md"])
        assert third.json["applied"] == 1


class TestOpsFromElsewhere:
    @pytest.mark.parametrize(
        "text",
        [
            json.dumps([op(1), op(2)]),
            json.dumps({"ops": [op(1), op(2)]}, indent=2),
            f"{json.dumps(op(1))}\n{json.dumps(op(2))}\n",
        ],
        ids=["array", "object", "lines"],
    )
    def test_they_come_as_an_array_an_object_or_lines(
        self, server: RunningServer, client: ScriptClient, space: str, text: str
    ) -> None:
        file = client.home / "ops.json"
        file.write_text(text)

        pushed = client.json("push", "--ops", str(file))

        assert pushed["applied"] == 2
        assert [entry["opId"] for entry in server.feed(space=space)] == ["OP1", "OP2"]

    def test_one_op_per_file_is_sent(self, server: RunningServer, client: ScriptClient, space: str) -> None:
        ops = [op(1), op(2, fileId="FILE1", serverPath="notes/1.md", content="later"), op(3)]

        planned = client.run("plan", "--ops", "-", "--json", stdin=json.dumps(ops)).json
        client.json("resume")

        assert planned["upserts"] == 2
        assert {one["content"] for one in server.pull(space=space)["changes"]} == {"later", "text 3"}

    @pytest.mark.parametrize("text", ["[", '[{"opId":"1"}]', '[{"opId":1}]', "null", "[" * 5000])
    def test_what_makes_no_sense_is_refused_and_nothing_is_queued(self, client: ScriptClient, text: str) -> None:
        refused = client.run("push", "--ops", "-", stdin=text)

        assert refused.code == 1
        assert "make no sense" in refused.stderr
        assert client.json("status") in ([], [one for one in client.json("status") if one["pending_ops"] == 0])

    def test_a_dry_run_queues_nothing(self, server: RunningServer, client: ScriptClient, space: str) -> None:
        write_files(client, 3)

        told = client.json("push", "--dry-run")

        assert (told["request_id"], told["upserts"]) == (None, 3)
        assert client.batch_files() == []
        assert server.feed(space=space) == []
