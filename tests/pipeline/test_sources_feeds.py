"""The change feed and the audit stream of a real server: every entry once, and clear words where it refuses."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
import json
import threading
from typing import TYPE_CHECKING

import pytest

from pipeline.streams_support import as_text, batch, micro_batches
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.feed_client import Feed, feeds_of, look, pages
from queueyard.pipeline.sources.feeds import read_range
from queueyard.pipeline.sources.sequences import Range, plan
from unit.ops.support.running import RunningServer, op, running_server
from unit.ops.support.running import batch as ops_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = 1 << 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def space(server: RunningServer) -> str:
    return server.new_space()


def push(server: RunningServer, space: str, request: str, *numbers: int) -> None:
    """Create files; those that are there already meet a conflict."""
    ops = [op(number, opId=f"{request}-{number}", content=f"of {request}") for number in numbers]
    response = server.push(ops_batch(*ops, request=request), space=space)
    assert response.status == 200, response


def planned(server: RunningServer, space: str) -> list[Range]:
    return plan({}, look(feeds_of(f"{server.url}#{space}"), None), most_entries=ALL)[0]


class TestWithoutSpark:
    def test_heads_of_both_feeds_are_seen(self, server: RunningServer, space: str) -> None:
        push(server, space, "R1", 1, 2)
        push(server, space, "R2", 1)

        found = look(feeds_of(f"{server.url}#{space}"), None)

        assert [(one.place, one.space, one.kind, one.head) for one in found] == [
            (server.url, space, "changes", 2),
            (server.url, space, "audit", 1),
        ]

    def test_the_first_entry_tells_one_feed_from_another(self, server: RunningServer, space: str) -> None:
        other = server.new_space()
        for name in (space, other):
            push(server, name, "R1", 1)
        before = look(feeds_of(f"{server.url}#{space},{other}"), None)
        push(server, space, "R2", 2)

        after = look(feeds_of(f"{server.url}#{space},{other}"), None)

        changes, audit, of_other, _ = [one.first for one in after]
        assert [one.first for one in before] == [changes, None, of_other, None]
        assert audit is None
        assert changes != of_other

    def test_entries_are_what_the_server_says_with_their_numbers(self, server: RunningServer, space: str) -> None:
        push(server, space, "R1", 1, 2, 3)

        [changes] = planned(server, space)
        [found] = read_range(changes, None)

        assert found.column("position").to_pylist() == [1, 2, 3]
        assert [json.loads(raw) for raw in found.column("raw").to_pylist()] == server.feed(space=space)

    def test_an_address_without_spaces_means_the_default_space(self) -> None:
        assert feeds_of("http://127.0.0.1:3001") == [
            Feed(place="http://127.0.0.1:3001", space="default", kind="changes"),
            Feed(place="http://127.0.0.1:3001", space="default", kind="audit"),
        ]

    def test_spaces_stand_behind_the_address(self) -> None:
        assert [feed.space for feed in feeds_of("http://127.0.0.1:3001/#docs, notes,docs")] == [
            *("docs", "docs"),
            *("notes", "notes"),
        ]

    @pytest.mark.parametrize(
        "address",
        [
            "ftp://host",
            "http://",
            "http://host/path",
            "http://me:secret@host",
            "http://host?space=x",
            "http://me:se/secret@host",
            "http://me:secret#more@host",
            "http://me:secret?more@host",
            "http://[::1",
            "http://host#docs,\u0434\u043e\u043a\u0438",
        ],
    )
    def test_what_is_no_address_of_a_server_is_refused(self, address: str) -> None:
        with pytest.raises(SourceFailed) as refused:
            feeds_of(address)

        assert "secret" not in f"{refused.value}{refused.value.hint}"

    def test_a_space_that_there_is_not_is_refused_with_the_next_command(self, server: RunningServer) -> None:
        with pytest.raises(SourceFailed, match="nowhere") as refused:
            look(feeds_of(f"{server.url}#nowhere"), None)

        assert refused.value.hint

    def test_a_wrong_token_is_refused_and_not_repeated(self, server: RunningServer, space: str) -> None:
        with pytest.raises(SourceFailed, match="401") as refused:
            look(feeds_of(f"{server.url}#{space}"), "a-wrong-token")

        assert "JOLLI_TOKEN" in (refused.value.hint or "")
        assert "a-wrong-token" not in f"{refused.value}{refused.value.hint}"

    @pytest.mark.parametrize("token", ["a-to\nken", "a-to\u20acken", "a-to\x00ken"])
    def test_a_token_that_can_be_none_is_refused_and_not_repeated(self, token: str) -> None:
        with pytest.raises(SourceFailed, match="JOLLI_TOKEN") as refused:
            look(feeds_of("http://127.0.0.1:1"), token)

        assert [part for part in ("a-to", "ken\n") if part in f"{refused.value}{refused.value.hint}"] == []
        assert refused.value.__cause__ is None

    def test_a_host_that_has_no_name_is_refused(self) -> None:
        with pytest.raises(SourceFailed, match="no answer"):
            look(feeds_of("http://a..b:1"), None)

    def test_a_token_does_not_leave_the_machine_in_clear_text(self) -> None:
        with pytest.raises(SourceFailed, match="clear text"):
            look(feeds_of("http://192.0.2.1:3001"), "token")

    def test_a_server_that_is_not_there_is_refused_with_the_next_command(self) -> None:
        with pytest.raises(SourceFailed, match="no answer") as refused:
            look(feeds_of("http://127.0.0.1:1"), None)

        assert "jolli-ops status" in (refused.value.hint or "")

    def test_entries_that_are_gone_are_refused(self, server: RunningServer, space: str) -> None:
        push(server, space, "R1", 1)
        beyond = Range(place=server.url, space=space, kind="changes", generation=0, after=0, upto=5)

        with pytest.raises(SourceFailed, match="no entry 2"):
            list(pages(beyond, None))

    def test_a_redirection_is_not_followed(self) -> None:
        asked: list[str] = []

        class Redirecting(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(302)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody wants to read it."""

        with HTTPServer(("127.0.0.1", 0), Redirecting) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            with pytest.raises(SourceFailed, match="302"):
                look(feeds_of(f"http://127.0.0.1:{other.server_port}")[:1], "token")
            other.shutdown()

        assert asked == ["/v1/sync/feed?after=0&limit=1"]


class TestThroughSpark:
    def test_a_batch_gives_both_feeds(self, spark: SparkSession, server: RunningServer, space: str) -> None:
        push(server, space, "R1", 1, 2)
        push(server, space, "R2", 2)

        rows = batch(spark, "queueyard_feeds", ranges=as_text(planned(server, space)))

        assert [tuple(row)[:6] for row in rows] == [
            ("ops.audit", server.url, f"{space}/audit", 0, 1, 0),
            ("ops.changes", server.url, f"{space}/changes", 0, 1, 0),
            ("ops.changes", server.url, f"{space}/changes", 0, 2, 0),
        ]

    def test_a_stream_goes_on_from_its_checkpoint(
        self, spark: SparkSession, server: RunningServer, space: str, tmp_path: Path
    ) -> None:
        options = {"feeds": as_text(feeds_of(f"{server.url}#{space}"))}
        push(server, space, "R1", 1, 2)
        first = micro_batches(spark, tmp_path, "queueyard_feeds", **options)

        push(server, space, "R2", 3)
        second = micro_batches(spark, tmp_path, "queueyard_feeds", **options)

        assert len(first) == 2
        assert [json.loads(raw)["seq"] for raw in second] == [1, 2, 3]
