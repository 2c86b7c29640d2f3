"""The server: versions, tombstones, conflicts, paths, pulling, the feed, limits, pressure and shutdown."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
import hashlib
from http.client import HTTPConnection
import json
import signal
import socket
import sqlite3
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from unit.ops.support.running import Response, RunningServer, batch, op, running_server

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


class Pushing:
    """Pushes one batch after the other, each a request of its own."""

    def __init__(self, server: RunningServer, space: str) -> None:
        self.server = server
        self.space = space
        self._count = 0

    def __call__(self, *ops: dict[str, Any]) -> list[dict[str, Any]]:
        """The results."""
        self._count += 1
        response = self.server.push(batch(*ops, request=f"R{self._count}"), space=self.space)
        assert response.status == 200, response
        results: list[dict[str, Any]] = response.json["results"]
        return results

    def files(self) -> dict[str, tuple[str, int, str | None]]:
        changes = self.server.pull(space=self.space)["changes"]
        return {one["fileId"]: (one["serverPath"], one["version"], one.get("content")) for one in changes}


@pytest.fixture
def push(server: RunningServer, space: str) -> Pushing:
    return Pushing(server, space)


class TestThePushResponse:
    def test_it_has_one_result_per_op_in_order_and_names_the_batch(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(op(1), op(2), total=2, createdAt=1700000000000, message="why"), space=space)

        assert response.json == {
            "requestId": "REQ1",
            "batchIndex": 1,
            "totalBatches": 2,
            "batchId": "REQ1:1",
            "results": [
                {"opId": "OP1", "fileId": "FILE1", "status": "applied", "newVersion": 1},
                {"opId": "OP2", "fileId": "FILE2", "status": "applied", "newVersion": 1},
            ],
            "newCursor": 2,
        }

    def test_without_a_header_the_default_space_is_meant(self, server: RunningServer) -> None:
        server.push(batch(op(1), request="OF-THE-DEFAULT"))

        assert "OF-THE-DEFAULT" in {entry["requestId"] for entry in server.feed(space="default")}

    def test_an_empty_batch_is_answered_and_counts(self, server: RunningServer, space: str) -> None:
        first = server.push(batch(total=2), space=space)
        second = server.push(batch(op(1), index=2, total=2), space=space)

        assert (first.json["results"], second.status) == ([], 200)

    def test_progress_can_be_asked_for(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1), total=2), space=space)
        halfway = server.ask("GET", "/v1/sync/requests/REQ1", space=space).json
        server.push(batch(op(2), index=2, total=2), space=space)
        done = server.ask("GET", "/v1/sync/requests/REQ1", space=space).json

        assert (halfway["doneBatches"], halfway["expectedIndex"], halfway["complete"]) == (1, 2, False)
        assert (done["doneBatches"], done["expectedIndex"], done["complete"]) == (2, 3, True)


class TestVersions:
    def test_each_change_counts_on(self, push: Pushing) -> None:
        push(op(1))
        [second] = push(op(1, baseVersion=1, content="new"))

        assert second["newVersion"] == 2
        assert push.files() == {"FILE1": ("notes/1.md", 2, "new")}

    def test_a_stale_change_is_a_conflict_and_changes_nothing(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, baseVersion=1, content="theirs"))
        [mine] = push(op(1, baseVersion=1, content="mine"))

        assert mine["status"] == "conflict"
        assert (mine["serverVersion"], mine["serverHash"]) == (2, hashlib.sha256(b"theirs").hexdigest())
        assert push.files()["FILE1"][2] == "theirs"

    def test_a_delete_leaves_a_tombstone_and_a_restore_counts_on(self, push: Pushing) -> None:
        push(op(1))
        [deleted] = push(op(1, type="delete", baseVersion=1, content=None))
        gone = push.server.pull(1, space=push.space)["changes"]
        [restored] = push(op(1, baseVersion=2, content="back"))

        assert (deleted["newVersion"], restored["newVersion"]) == (2, 3)
        assert gone == [{"fileId": "FILE1", "serverPath": "notes/1.md", "version": 2, "deleted": True}]
        assert push.files() == {"FILE1": ("notes/1.md", 3, "back")}
        assert [entry["op"] for entry in push.server.feed(space=push.space)] == ["c", "d", "c"]

    def test_an_edit_of_what_was_deleted_is_a_conflict_that_says_so(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, type="delete", baseVersion=1, content=None))
        [edit] = push(op(1, baseVersion=1, content="edit"))

        assert (edit["status"], edit["serverVersion"], edit["serverDeleted"]) == ("conflict", 2, True)

    def test_deleting_twice_or_what_never_was_is_applied_and_writes_nothing(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, type="delete", baseVersion=1, content=None))
        results = push(
            op(1, type="delete", baseVersion=1, content=None), op(9, type="delete", baseVersion=4, content=None)
        )

        assert [(one["status"], one["unchanged"], one["newVersion"]) for one in results] == [
            ("applied", True, 2),
            ("applied", True, 0),
        ]
        assert len(push.server.feed(space=push.space)) == 2

    def test_a_change_whose_answer_was_lost_for_good_finds_itself(self, push: Pushing) -> None:
        push(op(1))
        [again] = push(op(1))

        assert (again["status"], again["newVersion"], again["unchanged"]) == ("applied", 1, True)


class TestPaths:
    @pytest.mark.parametrize("path", ["notes/1.md", "NOTES/1.MD", "notes/1.md/below", "notes"])
    def test_a_path_belongs_to_one_file_whatever_its_case_and_no_file_is_a_folder(
        self, push: Pushing, path: str
    ) -> None:
        push(op(1))
        [second] = push(op(2, serverPath=path))

        assert (second["status"], second["code"], second["serverFileId"]) == ("conflict", "path_taken", "FILE1")
        assert list(push.files()) == ["FILE1"]

    def test_one_spelling_is_kept(self, push: Pushing) -> None:
        push(op(1, serverPath="cafe\u0301.md"))
        [second] = push(op(2, serverPath="CAF\u00c9.md"))

        assert push.files()["FILE1"][0] == "caf\u00e9.md"
        assert second["code"] == "path_taken"

    def test_within_a_batch_a_freed_path_can_be_taken(self, push: Pushing) -> None:
        push(op(1, serverPath="a"), op(2, serverPath="b/c"))

        results = push(
            op(1, baseVersion=1, serverPath="d", content="moved"),
            op(3, serverPath="a"),
            op(2, type="delete", baseVersion=1, content=None),
            op(4, serverPath="b"),
        )

        assert [one["status"] for one in results] == ["applied"] * 4
        assert {path for path, _, _ in push.files().values()} == {"a", "b", "d"}

    def test_a_move_tells_where_it_came_from(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, baseVersion=1, serverPath="moved.md"))

        moved = push.server.feed(space=push.space)[1]

        assert (moved["op"], moved["serverPath"], moved["previousPath"]) == ("u", "moved.md", "notes/1.md")

    def test_the_path_of_a_deleted_file_is_free(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, type="delete", baseVersion=1, content=None))
        [second] = push(op(2, serverPath="notes/1.md"))
        [back] = push(op(1, baseVersion=2))

        assert second["status"] == "applied"
        assert (back["status"], back["code"]) == ("conflict", "path_taken")

    def test_a_text_is_stored_once_however_many_have_it(self, push: Pushing) -> None:
        push(op(1, content="the very same"), op(2, content="the very same"), op(3, content="another"))
        push(op(1, baseVersion=1, content="another"))

        with sqlite3.connect(push.server.data / "ledger.sqlite3") as line:
            rows = line.execute(
                "SELECT COUNT(*) FROM blob WHERE content IN (CAST('the very same' AS BLOB), CAST('another' AS BLOB))"
            ).fetchall()
        line.close()
        assert rows == [(2,)]


class TestPullingAndTheFeed:
    def test_the_first_pull_is_everything_that_is_there(self, push: Pushing) -> None:
        push(op(1), op(2))
        push(op(2, type="delete", baseVersion=1, content=None))

        pulled = push.server.pull(space=push.space)

        assert [one["fileId"] for one in pulled["changes"]] == ["FILE1"]
        assert pulled["changes"][0]["contentHash"] == hashlib.sha256(b"text 1").hexdigest()
        assert (pulled["newCursor"], pulled["more"]) == (3, False)

    def test_later_pulls_give_the_latest_state_of_what_changed(self, push: Pushing) -> None:
        push(op(1), op(2), op(3))
        push(op(1, baseVersion=1, content="b"))
        push(op(1, baseVersion=2, content="c"), op(3, type="delete", baseVersion=1, content=None))

        pulled = push.server.pull(3, space=push.space)

        assert [(one["fileId"], one["version"], one["deleted"]) for one in pulled["changes"]] == [
            ("FILE1", 3, False),
            ("FILE3", 2, True),
        ]
        assert push.server.pull(pulled["newCursor"], space=push.space)["changes"] == []

    def test_pages_follow_each_other_without_a_gap(self, push: Pushing) -> None:
        push(*(op(number) for number in range(25)))

        cursor, found, more = 0, [], True
        while more:
            body = json.dumps({"sinceCursor": cursor, "limit": 10}).encode()
            page = push.server.ask("POST", "/v1/sync/pull", body, space=push.space).json
            found += [one["fileId"] for one in page["changes"]]
            cursor, more = page["newCursor"], page["more"]
            assert len(page["changes"]) <= 10

        assert found == [f"FILE{number}" for number in range(25)]

    def test_a_page_is_bounded_in_bytes(self, push: Pushing) -> None:
        for number in range(3):
            push(op(number, content="x" * 3_500_000))

        page = push.server.pull(space=push.space)

        assert (len(page["changes"]), page["more"]) == (2, True)
        assert push.server.pull(page["newCursor"], space=push.space)["more"] is False

    def test_an_entry_of_the_feed_tells_everything_but_the_text(self, push: Pushing) -> None:
        response = push.server.push(batch(op(1)), space=push.space, X_Jolli_Client="laptop")
        assert response.status == 200

        [entry] = push.server.feed(space=push.space)
        accepted_at = entry.pop("acceptedAt")

        assert accepted_at.endswith("Z")
        assert entry == {
            "seq": 1,
            "space": push.space,
            "op": "c",
            "fileId": "FILE1",
            "version": 1,
            "baseVersion": 0,
            "serverPath": "notes/1.md",
            "contentHash": hashlib.sha256(b"text 1").hexdigest(),
            "size": 6,
            "requestId": "REQ1",
            "batchIndex": 1,
            "opId": "OP1",
            "clientId": "laptop",
            "schemaVersion": 1,
        }

    def test_the_feed_gives_pages_and_texts_where_asked(self, push: Pushing) -> None:
        push(*(op(number) for number in range(5)))

        page = push.server.ask("GET", "/v1/sync/feed?after=1&limit=2&content=true", space=push.space).json

        assert [(entry["seq"], entry["content"]) for entry in page["entries"]] == [(2, "text 1"), (3, "text 2")]
        assert (page["last"], page["head"]) == (3, 5)

    def test_conflicts_and_rejections_are_in_the_audit_stream_only(self, push: Pushing) -> None:
        push(op(1))
        push(op(1, opId="LATE", content="late"), op(2, serverPath="../x"))

        entries = push.server.ask("GET", "/v1/sync/audit", space=push.space).json["entries"]

        assert [(one["seq"], one["opId"], one["status"], one["code"]) for one in entries] == [
            (1, "LATE", "conflict", "version"),
            (2, "OP2", "rejected", "bad_path"),
        ]
        assert len(push.server.feed(space=push.space)) == 1


class TestTheHouse:
    def test_limits_are_published(self, server: RunningServer) -> None:
        limits = server.ask("GET", "/v1/sync/limits").json

        assert limits == {
            "maxOps": 500,
            "maxBodyBytes": 10_485_760,
            "maxDecompressedBytes": 41_943_040,
            "maxContentBytes": 8_388_608,
            "maxPathBytes": 1024,
            "answersKeptDays": 30.0,
            "encodings": ["gzip", "zstd"],
        }

    def test_it_says_that_it_is_alive_and_ready(self, server: RunningServer) -> None:
        assert server.ask("GET", "/healthz").json == {"status": "alive"}
        assert server.ask("GET", "/readyz").json == {"status": "ready"}

    def test_it_counts_what_it_does(self, push: Pushing) -> None:
        push(op(1), op(2, serverPath="../x"))

        response = push.server.ask("GET", "/metrics")
        text = response.body.decode()

        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        for name in (
            'jolli_ops_requests_total{route="/v1/sync/push",status="200"}',
            'jolli_ops_ops_total{status="applied"}',
            'jolli_ops_ops_total{status="rejected"}',
            'jolli_ops_batches_total{outcome="applied"}',
            'jolli_ops_request_seconds_count{route="/v1/sync/push"}',
            "jolli_ops_waiting_batches",
        ):
            [value] = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith(name)]
            assert float(value) >= (0 if "waiting" in name else 1)

    def test_the_document_describes_every_route(self, server: RunningServer) -> None:
        document = server.ask("GET", "/openapi.json").json

        assert document["openapi"] == "3.1.0"
        assert set(document["paths"]) == {
            "/v1/sync/push",
            "/v1/sync/pull",
            "/v1/sync/requests/{requestId}",
            "/v1/sync/limits",
            "/v1/sync/feed",
            "/v1/sync/audit",
        }


class TestManyAtOnce:
    def test_the_same_batch_from_many_at_once_is_applied_once(self, server: RunningServer, space: str) -> None:
        body = json.dumps(batch(*(op(number) for number in range(100)))).encode()

        with ThreadPoolExecutor(16) as pool:
            responses = list(pool.map(lambda _: server.push(body, space=space), range(32)))

        answers = {response.body for response in responses if response.status == 200}
        others = {(response.status, response.code) for response in responses if response.status != 200}
        assert len(answers) == 1
        assert others <= {(409, "in_progress")}
        assert len(server.feed(space=space)) == 100

    def test_a_client_that_sends_slowly_does_not_keep_others_waiting(self, server: RunningServer, space: str) -> None:
        lines = [slow_line(server, space) for _ in range(20)]
        try:
            assert server.push(batch(op(1)), space=space).status == 200
        finally:
            for line in lines:
                line.close()

    def test_spaces_are_apart(self, server: RunningServer) -> None:
        one, other = server.new_space(), server.new_space()

        server.push(batch(op(1)), space=one)
        server.push(batch(op(1, content="other"), request="R2"), space=other)

        assert [entry["seq"] for entry in server.feed(space=one) + server.feed(space=other)] == [1, 1]


class TestPressure:
    def test_who_comes_when_too_much_is_under_way_is_told_to_come_back(self, tmp_path: Path) -> None:
        with running_server(tmp_path, "--max-waiting-bytes", "20000") as server:
            response = server.push(batch(op(1, content="x" * 30_000)))

            assert (response.status, response.code, response.headers["retry-after"]) == (503, "overloaded", "1")
            assert server.push(batch(op(1))).status == 200

    def test_with_a_full_row_some_wait_some_are_sent_away_and_none_is_lost(self, tmp_path: Path) -> None:
        with running_server(tmp_path, "--max-waiting", "2") as server:

            def one(number: int) -> Response:
                ops = [op(f"{number}-{inner}") for inner in range(50)]
                return server.push(batch(*ops, request=f"R{number}"))

            with ThreadPoolExecutor(16) as pool:
                responses = list(pool.map(one, range(48)))

            done = [response for response in responses if response.status == 200]
            away = [response for response in responses if response.status != 200]
            assert {(one.status, one.code) for one in away} <= {(503, "overloaded")}
            assert all(int(one.headers["retry-after"]) >= 1 for one in away)
            assert len(server.feed()) == 50 * len(done)


class TestShutdown:
    def test_a_request_that_is_under_way_is_finished_and_answered(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            body = json.dumps(batch(op(1))).encode()
            address = urlsplit(server.url)
            line = HTTPConnection(address.hostname or "", address.port, timeout=30)
            line.putrequest("POST", "/v1/sync/push")
            line.putheader("Content-Type", "application/json")
            line.putheader("Content-Length", str(len(body)))
            line.endheaders()
            line.send(body[:10])
            assert server.ask("GET", "/healthz").status == 200  # by now the other request has begun
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            refused_when_draining(server)

            line.send(body[10:])
            response = line.getresponse()
            answer = json.loads(response.read())
            stopping.join()
            line.close()
            server.start()

            assert (response.status, answer["results"][0]["status"]) == (200, "applied")
            assert len(server.feed()) == 1

    def test_it_ends_with_code_0_and_starts_again_where_it_was(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            first = server.push(batch(op(1)))

            code = server.stop()
            server.start()

            assert code == 0
            assert server.push(batch(op(1))).body == first.body

    def test_what_was_answered_survives_a_kill(self, tmp_path: Path) -> None:
        with running_server(tmp_path) as server:
            answers = [server.push(batch(op(n), index=n, total=9)).body for n in range(1, 6)]

            server.stop(signal.SIGKILL)
            server.start()

            assert [server.push(batch(op(n), index=n, total=9)).body for n in range(1, 6)] == answers
            assert [entry["seq"] for entry in server.feed()] == [1, 2, 3, 4, 5]


def slow_line(server: RunningServer, space: str) -> socket.socket:
    """A client that has announced a body and sends nothing of it."""
    address = urlsplit(server.url)
    line = socket.create_connection((address.hostname or "", address.port or 0), timeout=30)
    line.sendall(
        f"POST /v1/sync/push HTTP/1.1\r\nHost: localhost\r\nX-Jolli-Space: {space}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{".encode()
    )
    return line


def refused_when_draining(server: RunningServer) -> None:
    """Return as soon as the server takes no new connections."""
    for _ in range(1000):
        try:
            server.ask("GET", "/healthz")
        except OSError:
            return
    pytest.fail("it still takes connections")
