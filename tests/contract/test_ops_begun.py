"""What a client sends ahead has no effect until its last byte is there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from queueyard.ops.errors import TransportFailed
from queueyard.ops.transport import HttpTransport
from queueyard.ops.worker import PUSH_PATH
from unit.ops.support.running import RunningServer, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from queueyard.ops.transport import Begun


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(tmp_path) as server:
        yield server


@pytest.fixture
def transport(server: RunningServer) -> Iterator[HttpTransport]:
    transport = HttpTransport(server.url)
    yield transport
    transport.close()


def body(index: int, end: bytes = b"\n") -> bytes:
    return json.dumps(batch(op(index, content="x" * 300_000), index=index, total=3)).encode() + end


@pytest.mark.parametrize("end", [b"\n", b"", b" "], ids=["newline", "bracket", "space"])
def test_a_batch_that_was_begun_is_applied_when_it_is_finished(
    server: RunningServer, transport: HttpTransport, end: bytes
) -> None:
    """With a newline at its end it is understood before it is whole, which nobody should notice."""
    begun = transport.begin("POST", PUSH_PATH, body(1, end))
    before = server.feed()

    assert begun is not None
    reply = begun.finish()

    assert before == []
    assert reply.status == 200
    assert [entry["fileId"] for entry in server.feed()] == ["FILE1"]


@pytest.mark.parametrize(
    ("nearly", "last", "code"),
    [(b"{", b"\n", "malformed_json"), (b"{}", b"\n", "invalid_request"), (body(1, b""), b"x", "malformed_json")],
    ids=["cut", "empty", "too much"],
)
def test_what_makes_no_sense_is_refused_when_it_is_finished(
    server: RunningServer, transport: HttpTransport, nearly: bytes, last: bytes, code: str
) -> None:
    begun = transport.begin("POST", PUSH_PATH, nearly + last)

    assert begun is not None
    assert begun.finish().code == code
    assert server.feed() == []


def test_the_next_batch_is_begun_while_one_is_under_way(server: RunningServer, transport: HttpTransport) -> None:
    first = transport.begin("POST", PUSH_PATH, body(1))
    second: list[Begun | None] = []

    assert first is not None
    statuses = [first.finish(lambda: second.append(transport.begin("POST", PUSH_PATH, body(2)))).status]
    assert second[0] is not None
    statuses += [second[0].finish().status, transport.exchange("POST", PUSH_PATH, body(3)).status]

    assert statuses == [200, 200, 200]
    assert [entry["seq"] for entry in server.feed()] == [1, 2, 3]


def test_a_batch_whose_client_is_gone_was_never_sent(server: RunningServer, transport: HttpTransport) -> None:
    transport.begin("POST", PUSH_PATH, body(1))
    transport.close()

    again = transport.exchange("POST", PUSH_PATH, body(1))

    assert (again.status, again.headers.get("idempotent-replay")) == (200, None)
    assert server.stop() == 0


def test_what_was_given_up_is_sent_as_a_whole(server: RunningServer, transport: HttpTransport) -> None:
    begun = transport.begin("POST", PUSH_PATH, body(1))
    refused = transport.exchange("GET", "/v1/sync/requests/NONE")

    assert begun is not None
    reply = begun.finish()

    assert (refused.status, reply.status) == (404, 200)
    assert len(server.feed()) == 1


def test_a_batch_that_was_begun_is_still_taken_by_a_server_that_goes_down(
    server: RunningServer, transport: HttpTransport
) -> None:
    begun = transport.begin("POST", PUSH_PATH, body(1))
    assert begun is not None
    assert server.feed() == []

    server.ask_to_stop()
    reply = begun.finish()

    assert reply.status == 200
    assert server.wait() == 0


def test_nothing_is_begun_where_nobody_listens(server: RunningServer, transport: HttpTransport) -> None:
    server.stop()

    assert transport.begin("POST", PUSH_PATH, body(1)) is None
    with pytest.raises(TransportFailed):
        transport.exchange("POST", PUSH_PATH, body(1))
