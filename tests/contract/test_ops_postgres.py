"""Two server processes on one PostgreSQL: whichever answers, the answers are the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from unit.ops.support.postgres import Postgres, running_postgres
from unit.ops.support.running import RunningServer, ScriptClient, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as running:
        yield running


@pytest.fixture(scope="module")
def servers(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RunningServer]]:
    folder = tmp_path_factory.mktemp("servers")
    with (
        running_server(folder / "one", "--database", postgres.address) as one,
        running_server(folder / "two", "--database", postgres.address) as two,
    ):
        yield [one, two]


def test_a_request_goes_on_at_another_server(servers: list[RunningServer]) -> None:
    answers = [servers[n % 2].push(batch(op(n), index=n, total=6), space="space1") for n in range(1, 7)]
    again = [servers[(n + 1) % 2].push(batch(op(n), index=n, total=6), space="space1") for n in range(1, 7)]

    assert [answer.status for answer in answers] == [200] * 6
    assert [answer.body for answer in again] == [answer.body for answer in answers]
    assert all(answer.headers["idempotent-replay"] == "true" for answer in again)
    assert servers[0].feed(space="space1") == servers[1].feed(space="space1")


def test_both_at_once_make_one_dense_feed(servers: list[RunningServer]) -> None:
    def send(client: int) -> list[int]:
        return [
            servers[(client + index) % 2]
            .push(batch(op(f"{client}-{index}"), request=f"C{client}", index=index, total=8), space="space2")
            .status
            for index in range(1, 9)
        ]

    with ThreadPoolExecutor(8) as pool:
        statuses = [status for of_client in pool.map(send, range(8)) for status in of_client]

    feed = servers[0].feed(space="space2")
    assert statuses == [200] * 64
    assert [entry["seq"] for entry in feed] == list(range(1, 65))
    assert len({entry["opId"] for entry in feed}) == 64


def test_a_client_pushes_and_pulls_through_either(servers: list[RunningServer], tmp_path: Path) -> None:
    writer = ScriptClient(tmp_path / "writer", servers[0].url, "space3")
    reader = ScriptClient(tmp_path / "reader", servers[1].url, "space3")
    writer.write("a.md", "text")

    writer.json("push")
    reader.json("pull")

    assert (reader.workspace / "a.md").read_text() == "text"


def test_after_a_crash_of_the_database_the_servers_find_it_again(
    servers: list[RunningServer], postgres: Postgres
) -> None:
    before = servers[0].push(batch(op(1), total=2), space="space4")

    postgres.restart()
    statuses = {servers[0].push(batch(op(2), index=2, total=2), space="space4").status for _ in range(20)}
    again = servers[1].push(batch(op(1), total=2), space="space4")

    assert 200 in statuses
    assert statuses <= {200, 503}
    assert again.status in {200, 503}
    assert again.status == 503 or again.body == before.body
    assert [entry["opId"] for entry in wait_for_feed(servers[1], "space4")] == ["OP1", "OP2"]


def wait_for_feed(server: RunningServer, space: str) -> list[dict[str, object]]:
    """The feed, from a server whose reading lines may have to be opened anew first."""
    for _ in range(20):
        response = server.ask("GET", "/v1/sync/feed", space=space)
        if response.status == 200:
            entries: list[dict[str, object]] = response.json["entries"]
            return entries
    pytest.fail("the server does not find its database again")


def test_the_address_is_told_without_its_password(tmp_path: Path) -> None:
    server = RunningServer(tmp_path / "data", "--database", "postgresql://ops:canary-word@127.0.0.1:9/ops")

    with pytest.raises(AssertionError, match="it did not start"):
        server.start()

    told = server.log_path.read_text()
    assert "127.0.0.1" in told
    assert "canary-word" not in told
