"""Whatever a client sends: the documented status and code, a problem document, and nothing applied."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
import socket
import sqlite3
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import zstandard

from queueyard.ops.problems import CATALOGUE
from unit.ops.support.running import Response, RunningServer, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    words = "--max-body-bytes 200000 --max-decompressed-bytes 400000 --max-ops 50 --max-content-bytes 100000"
    with running_server(tmp_path_factory.mktemp("server"), *words.split(), "--body-timeout-s", "1") as server:
        yield server


@pytest.fixture
def space(server: RunningServer) -> str:
    return server.new_space()


def refused(server: RunningServer, space: str, response: Response) -> tuple[int, str]:
    """Status and code of a refusal that is told as it should be and has changed nothing."""
    assert response.headers["content-type"] == "application/problem+json"
    told = response.json
    assert (told["status"], told["status"]) == (response.status, CATALOGUE[told["code"]].status)
    assert told["type"] == f"urn:queueyard:ops:{told['code']}"
    assert told["title"] == CATALOGUE[told["code"]].title
    assert server.feed(space=space) == []
    return response.status, told["code"]


class TestTheShape:
    @pytest.mark.parametrize("field", ["requestId", "batchIndex", "totalBatches", "ops"])
    def test_every_field_of_the_request_is_needed(self, server: RunningServer, space: str, field: str) -> None:
        sent = batch(op(1))
        del sent[field]

        assert refused(server, space, server.push(sent, space=space)) == (422, "invalid_request")

    @pytest.mark.parametrize("field", ["opId", "type", "fileId", "serverPath", "baseVersion"])
    def test_every_field_of_an_op_is_needed(self, server: RunningServer, space: str, field: str) -> None:
        sent = batch(op(1), op(2, **{field: None}))

        assert refused(server, space, server.push(sent, space=space)) == (422, "invalid_request")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("requestId", 5),
            ("requestId", ""),
            ("requestId", "a b"),
            ("requestId", "x" * 65),
            ("requestId", "R\n"),
            ("requestId", "../R"),
            ("batchIndex", "1"),
            ("batchIndex", 1.5),
            ("batchIndex", -1),
            ("batchIndex", True),
            ("batchIndex", 2**60),
            ("totalBatches", "5"),
            ("totalBatches", None),
            ("ops", {}),
            ("ops", None),
            ("ops", [5]),
            ("createdAt", "now"),
            ("message", 5),
            ("message", "x" * 2001),
        ],
    )
    def test_a_wrong_type_in_the_request_is_refused(
        self, server: RunningServer, space: str, field: str, value: Any
    ) -> None:
        sent = {**batch(op(1)), field: value}

        assert refused(server, space, server.push(sent, space=space)) == (422, "invalid_request")

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("opId", 5),
            ("opId", ""),
            ("opId", "a/b"),
            ("opId", "x" * 129),
            ("type", "rename"),
            ("fileId", 5),
            ("serverPath", ["a"]),
            ("baseVersion", "3"),
            ("baseVersion", -1),
            ("baseVersion", 1.0),
            ("content", 5),
            ("contentHash", 5),
        ],
    )
    def test_a_wrong_type_in_an_op_is_refused_with_the_place_of_it(
        self, server: RunningServer, space: str, field: str, value: Any
    ) -> None:
        sent = batch(op(1), op(2))
        sent["ops"][1][field] = value

        response = server.push(sent, space=space)

        assert refused(server, space, response) == (422, "invalid_request")
        assert "at `$.ops[" in response.json["detail"]

    @pytest.mark.parametrize(("index", "total"), [(0, 1), (2, 1), (6, 5), (1, 0)])
    def test_the_index_counts_from_1_to_the_total(
        self, server: RunningServer, space: str, index: int, total: int
    ) -> None:
        sent = batch(op(1), index=index, total=total)

        assert refused(server, space, server.push(sent, space=space)) == (422, "batch_index_out_of_range")

    def test_two_ops_with_one_id_are_refused(self, server: RunningServer, space: str) -> None:
        sent = batch(op(1), op(2, opId="OP1"))

        assert refused(server, space, server.push(sent, space=space)) == (422, "duplicate_op_id")

    def test_fields_that_nobody_knows_are_ignored(self, server: RunningServer, space: str) -> None:
        sent = {**batch({**op(1), "colour": "red"}), "size": 5}

        assert server.push(sent, space=space).status == 200

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"\xff",
            b'{"requestId":"\xff"}',
            b"\xef\xbb\xbf{}",
            b'{"requestId":"\\ud800"}',
            b"[" * 100_000,
        ],
    )
    def test_what_is_no_json_in_utf_8_is_refused(self, server: RunningServer, space: str, body: bytes) -> None:
        status, code = refused(server, space, server.push(body, space=space))

        assert (status, code) in {(400, "malformed_json"), (422, "invalid_request")}
        assert status == 400 or body.startswith(b"[[")

    def test_invalid_utf_8_within_a_text_is_refused(self, server: RunningServer, space: str) -> None:
        body = json.dumps(batch(op(1, content="HERE"))).encode().replace(b"HERE", b"\xc3\x28")

        assert refused(server, space, server.push(body, space=space)) == (400, "malformed_json")


class TestTheKey:
    def test_another_payload_under_a_used_key_is_refused(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1)), space=space)

        response = server.push(batch(op(1, content="other")), space=space)

        assert (response.status, response.code) == (422, "idempotency_key_reused")
        assert [one["content"] for one in server.pull(space=space)["changes"]] == ["text 1"]

    def test_the_order_of_ops_is_part_of_the_payload(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1), op(2)), space=space)

        assert server.push(batch(op(2), op(1)), space=space).code == "idempotency_key_reused"

    def test_white_space_and_the_order_of_keys_are_not(self, server: RunningServer, space: str) -> None:
        first = server.push(batch(op(1)), space=space)
        body = json.dumps(batch(dict(reversed(op(1).items()))), indent=3).encode()

        again = server.push(body, space=space)

        assert (again.status, again.body) == (200, first.body)

    def test_another_total_is_refused(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1), total=3), space=space)

        next_one = server.push(batch(op(2), index=2, total=4), space=space)
        same_one = server.push(batch(op(1), total=4), space=space)

        assert (next_one.status, next_one.code) == (422, "total_batches_changed")
        assert (same_one.status, same_one.code) == (422, "total_batches_changed")
        assert len(server.feed(space=space)) == 1

    def test_a_batch_out_of_order_is_refused_and_told_which_one_comes(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1), total=5), space=space)

        response = server.push(batch(op(3), index=3, total=5), space=space)

        assert (response.status, response.code, response.json["expectedIndex"]) == (409, "out_of_order", 2)

    def test_the_first_batch_is_number_1(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(op(2), index=2, total=5), space=space)

        assert refused(server, space, response) == (409, "out_of_order")
        assert response.json["expectedIndex"] == 1

    def test_an_expired_key_is_refused_and_never_applied_again(self, server: RunningServer, space: str) -> None:
        server.push(batch(op(1)), space=space)
        with sqlite3.connect(server.data / "ledger.sqlite3") as line:
            line.execute("UPDATE batch SET answer = NULL WHERE request_id = 'REQ1'")
        line.close()

        response = server.push(batch(op(1)), space=space)

        assert (response.status, response.code) == (410, "expired")
        assert len(server.feed(space=space)) == 1

    def test_a_key_belongs_to_its_space(self, server: RunningServer, space: str) -> None:
        other = server.new_space()

        first = server.push(batch(op(1)), space=space)
        second = server.push(batch(op(1, content="other")), space=other)

        assert (first.status, second.status) == (200, 200)
        assert "idempotent-replay" not in second.headers

    def test_a_refused_batch_does_not_use_its_key(self, server: RunningServer, space: str) -> None:
        refused(server, space, server.push(batch(op(1, type="rename")), space=space))

        assert server.push(batch(op(1)), space=space).status == 200


class TestOneOp:
    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"contentHash": "0" * 64}, "bad_hash"),
            ({"contentHash": "abcd"}, "bad_hash"),
            ({"contentHash": ""}, "bad_hash"),
            ({"content": None}, "content_missing"),
            ({"type": "delete"}, "content_unexpected"),
            ({"content": "x" * 100_001}, "content_too_large"),
            ({"fileId": ""}, "bad_file_id"),
            ({"fileId": "a/b"}, "bad_file_id"),
            ({"fileId": "a..b"}, "bad_file_id"),
            ({"fileId": "x" * 129}, "bad_file_id"),
            ({"fileId": "a\0b"}, "bad_file_id"),
            ({"serverPath": ""}, "bad_path"),
            ({"serverPath": "../../etc/passwd"}, "bad_path"),
            ({"serverPath": "/etc/passwd"}, "bad_path"),
            ({"serverPath": "a\\..\\b"}, "bad_path"),
            ({"serverPath": "a\0b"}, "bad_path"),
            ({"serverPath": "notes/CON"}, "bad_path"),
            ({"serverPath": "x" * 1025}, "path_too_long"),
            ({"serverPath": ".git/hooks/post-merge"}, "reserved_path"),
        ],
    )
    def test_it_is_rejected_and_the_others_are_applied(
        self, server: RunningServer, space: str, fields: dict[str, Any], code: str
    ) -> None:
        response = server.push(batch(op(1), op(2, **fields), op(3)), space=space)

        assert response.status == 200
        results = response.json["results"]
        assert [result["status"] for result in results] == ["applied", "rejected", "applied"]
        assert (results[1]["opId"], results[1]["code"]) == ("OP2", code)
        assert [entry["opId"] for entry in server.feed(space=space)] == ["OP1", "OP3"]
        [refusal] = server.ask("GET", "/v1/sync/audit", space=space).json["entries"]
        assert (refusal["opId"], refusal["status"], refusal["code"]) == ("OP2", "rejected", code)


class TestTheBody:
    def test_a_body_above_the_limit_is_refused(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(*(op(n, content="x" * 90_000) for n in range(3))), space=space)

        assert refused(server, space, response) == (413, "body_too_large")
        assert response.json["maxBodyBytes"] == 200_000

    def test_a_body_without_a_length_is_counted_as_it_comes(self, server: RunningServer, space: str) -> None:
        response = chunked(server, space, [b"x" * 50_000] * 5)

        assert refused(server, space, response) == (413, "body_too_large")

    def test_too_many_ops_are_refused(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(*map(op, range(51))), space=space)

        assert refused(server, space, response) == (413, "too_many_ops")

    @pytest.mark.parametrize("encoding", ["gzip", "zstd"])
    def test_a_compressed_body_is_the_same_body(self, server: RunningServer, space: str, encoding: str) -> None:
        plain = json.dumps(batch(op(1))).encode()

        first = server.push(packed(plain, encoding), space=space, Content_Encoding=encoding)
        again = server.push(plain, space=space)

        assert (first.status, again.status) == (200, 200)
        assert again.body == first.body
        assert again.headers["idempotent-replay"] == "true"

    @pytest.mark.parametrize("encoding", ["gzip", "zstd"])
    def test_a_bomb_is_refused_before_it_is_unpacked(self, server: RunningServer, space: str, encoding: str) -> None:
        before = resident_bytes(server.pid)
        bomb = packed(b" " * (150 << 20), encoding)
        assert len(bomb) < 200_000

        response = server.push(bomb, space=space, Content_Encoding=encoding)

        assert refused(server, space, response) == (413, "body_too_large")
        assert resident_bytes(server.pid) - before < 50 << 20

    @pytest.mark.parametrize("encoding", ["gzip", "zstd"])
    @pytest.mark.parametrize("broken", ["garbage", "cut", "empty"])
    def test_a_broken_stream_is_refused(self, server: RunningServer, space: str, encoding: str, broken: str) -> None:
        whole = packed(json.dumps(batch(op(1, content="many words " * 500))).encode(), encoding)
        body = {"garbage": b"garbage" * 10, "cut": whole[: len(whole) // 2], "empty": b""}[broken]

        response = server.push(body, space=space, Content_Encoding=encoding)

        status, code = refused(server, space, response)
        assert (status, code) in {(400, "malformed_encoding"), (400, "malformed_json")}

    def test_a_body_in_a_few_gzip_members_is_taken_and_one_in_very_many_is_not(
        self, server: RunningServer, space: str
    ) -> None:
        """Unpacking so many would keep the server busy for minutes."""
        whole = json.dumps(batch(op(1))).encode()
        few = gzip.compress(whole[:20]) + gzip.compress(whole[20:])
        many = gzip.compress(b"") * 100 + gzip.compress(whole)

        refusal = refused(server, space, server.push(many, space=space, Content_Encoding="gzip"))
        taken = server.push(few, space=space, Content_Encoding="gzip")

        assert refusal == (400, "malformed_encoding")
        assert taken.status == 200

    def test_an_encoding_that_nobody_knows_is_refused(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(op(1)), space=space, Content_Encoding="br")

        assert refused(server, space, response) == (415, "unsupported_encoding")

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    def test_a_form_of_a_web_page_is_refused(self, server: RunningServer, space: str, kind: str) -> None:
        response = server.push(batch(op(1)), space=space, Content_Type=kind)

        assert refused(server, space, response) == (415, "unsupported_media_type")

    def test_a_body_that_does_not_come_is_given_up(self, server: RunningServer, space: str) -> None:
        response = chunked(server, space, [b'{"requestId"'], finish=False)

        assert refused(server, space, response) == (408, "body_timeout")


class TestTheRest:
    def test_an_unknown_space_is_refused(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(op(1)), space="nowhere")

        assert refused(server, space, response) == (404, "unknown_space")

    @pytest.mark.parametrize("name", ["../x", "a b", "x" * 65, ";DROP"])
    def test_what_is_no_name_of_a_space_is_unknown(self, server: RunningServer, space: str, name: str) -> None:
        assert refused(server, space, server.push(batch(op(1)), space=name)) == (404, "unknown_space")

    @pytest.mark.parametrize(
        ("method", "path", "status", "code"),
        [
            ("GET", "/v1/sync/push", 405, "method_not_allowed"),
            ("DELETE", "/v1/sync/feed", 405, "method_not_allowed"),
            ("GET", "/", 404, "unknown_route"),
            ("GET", "/v1/sync/requests/", 404, "unknown_route"),
            ("GET", "/v1/sync/requests/NONE", 404, "unknown_request"),
            ("GET", "/v1/sync/requests/..%2f", 404, "unknown_route"),
            ("GET", "/v1/sync/feed?after=x", 400, "malformed_query"),
            ("GET", "/v1/sync/feed?after=-1", 400, "malformed_query"),
            ("GET", "/v1/sync/feed?limit=0", 400, "malformed_query"),
            ("GET", "/v1/sync/feed?after=99999999999999999999", 400, "malformed_query"),
            ("GET", "/v1/sync/feed?content=yes", 400, "malformed_query"),
            ("GET", "/v1/sync/audit?limit=many", 400, "malformed_query"),
        ],
    )
    def test_every_other_address_answers_with_a_problem(
        self, server: RunningServer, space: str, method: str, path: str, status: int, code: str
    ) -> None:
        assert refused(server, space, server.ask(method, path, space=space)) == (status, code)

    @pytest.mark.parametrize("body", [b'{"sinceCursor":-1}', b'{"sinceCursor":"1"}', b'{"limit":0}', b"[]"])
    def test_a_pull_of_the_wrong_shape_is_refused(self, server: RunningServer, space: str, body: bytes) -> None:
        response = server.ask("POST", "/v1/sync/pull", body, space=space)

        assert refused(server, space, response) == (422, "invalid_request")

    def test_a_client_name_with_control_characters_is_refused(self, server: RunningServer, space: str) -> None:
        response = server.push(batch(op(1)), space=space, X_Jolli_Client="a\tb")

        assert refused(server, space, response) == (400, "malformed_header")


def packed(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(body)
    return zstandard.ZstdCompressor().compress(body)


def chunked(server: RunningServer, space: str, chunks: list[bytes], *, finish: bool = True) -> Response:
    """A push whose body has no declared length; without `finish` its end never comes."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname or "", address.port or 0), timeout=30) as line:
        line.sendall(
            f"POST /v1/sync/push HTTP/1.1\r\nHost: localhost\r\nX-Jolli-Space: {space}\r\n"
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        for chunk in chunks:
            line.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        if finish:
            line.sendall(b"0\r\n\r\n")
        told = b""
        while part := line.recv(65_536):
            told += part
            head, _, body = told.partition(b"\r\n\r\n")
            lengths = [row.split(b":")[1] for row in head.split(b"\r\n") if row.lower().startswith(b"content-length")]
            if lengths and len(body) >= int(lengths[0]):
                break
    head, _, body = told.partition(b"\r\n\r\n")
    first, *rows = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (row.partition(":") for row in rows)}
    return Response(status=int(first.split()[1]), headers=headers, body=body)


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(row.split()[1]) << 10 for row in status.splitlines() if row.startswith("VmHWM"))
