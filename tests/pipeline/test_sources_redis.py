"""panqueue's event streams out of a real server: every entry once, trimmed ones told, no password anywhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.streams_support import as_text, batch, micro_batches
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.entries import Marks, Plan, plan
from queueyard.pipeline.sources.redis_client import look, place_of
from queueyard.pipeline.sources.redis_streams import read_ranges
from servers import Server, cluster, fresh_id, own_server, raw_redis

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ALL = 1 << 60
PASSWORD = "correct-horse"


@pytest.fixture
def server() -> Iterator[Server]:
    """One of one's own: what is looked for is every stream of a server."""
    with own_server() as server:
        yield server


def secrets_of(server: Server) -> dict[str, str]:
    return {place_of(server.url): server.url}


def tell(server: Server, queue: str, *items: str, **options: Any) -> list[str]:
    """Entries as panqueue writes them; their ids."""
    client = raw_redis(server, decode_responses=True)
    key = f"{{q:{queue}}}:events"
    return [
        client.xadd(key, {"kind": "queued", "item": item, "attempt": "1", "actor": "a"}, **options) for item in items
    ]


def planned(server: Server, marks: Marks | None = None, *, most: int = ALL) -> Plan:
    return plan(marks or {}, look(secrets_of(server)), most_entries=most)


def items(server: Server, found: Plan) -> list[str]:
    batches = read_ranges(found.ranges, secrets_of(server))
    return [json.loads(raw)["item"] for one in batches for raw in one.column("raw").to_pylist()]


class TestPlanningAgainstAServer:
    def test_streams_of_all_queues_are_found_and_nothing_else(self, server: Server) -> None:
        tell(server, "mail", "1")
        tell(server, "tenant}:events", "2")
        raw_redis(server).set("{q:list}:events", "no stream")
        raw_redis(server).xadd("other", {"kind": "queued"})

        found = look(secrets_of(server))

        assert [(seen.key, seen.length, seen.added) for seen in found] == [
            ("{q:mail}:events", 1, 1),
            ("{q:tenant}:events}:events", 1, 1),
        ]

    def test_what_comes_later_is_read_later_and_only_then(self, server: Server) -> None:
        tell(server, "mail", "1", "2")
        first = planned(server)

        tell(server, "mail", "3")
        tell(server, "other", "4")
        second = planned(server, first.marks)

        assert (items(server, first), items(server, second)) == (["1", "2"], ["3", "4"])
        assert planned(server, second.marks).ranges == []

    def test_entries_that_were_trimmed_unread_are_told(self, server: Server) -> None:
        tell(server, "mail", "1", "2")
        marks = planned(server).marks

        tell(server, "mail", *"3456")
        tell(server, "mail", "7", maxlen=2, approximate=False)
        found = planned(server, marks)

        assert (items(server, found), found.lost) == (["6", "7"], 3)

    def test_a_stream_that_was_deleted_and_made_anew_is_read_from_its_start(self, server: Server) -> None:
        tell(server, "mail", *"123")
        marks = planned(server).marks

        raw_redis(server).delete("{q:mail}:events")
        tell(server, "mail", "new", id="5-1")
        found = planned(server, marks)

        assert (items(server, found), found.ranges[0].generation) == (["new"], 1)

    def test_batches_of_limited_size_give_everything_once(self, server: Server) -> None:
        for moment in range(1_000, 1_200):
            tell(server, "mail", str(moment), id=f"{moment}-0")
        marks: Marks = {}
        taken: list[list[str]] = []

        while (step := planned(server, marks, most=70)).ranges:
            taken.append(items(server, step))
            marks = step.marks

        assert [item for part in taken for item in part] == [str(moment) for moment in range(1_000, 1_200)]
        assert len(taken) > 1

    def test_text_that_is_no_unicode_and_a_field_called_id_do_no_harm(self, server: Server) -> None:
        [entry_id] = [raw_redis(server).xadd("{q:odd}:events", {"id": "mine", "item": b"\xff", "kind": "queued"})]

        [found] = read_ranges(planned(server).ranges, secrets_of(server))

        assert json.loads(found.column("raw")[0].as_py()) == {
            "id": entry_id.decode(),
            "item": "\ufffd",
            "kind": "queued",
        }

    def test_ids_that_are_higher_than_a_long_is_are_read_too(self, server: Server) -> None:
        tell(server, "mail", "low", id="12-3")
        tell(server, "mail", "high", id=f"{(1 << 64) - 1}-{(1 << 64) - 1}")

        rows = [row for found in read_ranges(planned(server).ranges, secrets_of(server)) for row in found.to_pylist()]

        highest = (1 << 63) - 1
        assert [(row["position"], row["minor"]) for row in rows] == [(12, 3), (highest, highest)]

    def test_a_cluster_is_read_through_any_of_its_nodes(self) -> None:
        with cluster() as nodes:
            import redis

            writer = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port)
            queues = [fresh_id() for _ in range(6)]
            for queue in queues:
                writer.xadd(f"{{q:{queue}}}:events", {"kind": "queued", "item": queue})
            writer.close()

            found = planned(nodes[1])

            assert sorted(items(nodes[1], found)) == sorted(queues)


class TestSecrets:
    @pytest.mark.parametrize(
        ("url", "place"),
        [
            ("redis://me:secret@host:6379/2", "redis://host:6379/2"),
            ("rediss://:secret@host?ssl_keyfile=/k&password=secret", "rediss://host"),
            ("unix:///run/redis.sock?db=1&password=secret", "unix:///run/redis.sock?db=1"),
            ("valkey://host", "valkey://host"),
        ],
    )
    def test_a_place_names_no_login(self, url: str, place: str) -> None:
        assert place_of(url) == place

    def test_an_address_of_another_kind_is_refused_without_being_repeated(self) -> None:
        with pytest.raises(SourceFailed) as refused:
            place_of("redis+sentinel://:secret@host/service")

        assert "secret" not in f"{refused.value}{refused.value.hint}"

    @pytest.mark.parametrize(
        "url",
        ["redis://:se/cret@host", "redis://me:se#cret@host", "rediss://:se?cret@host:1/0", "redis:///secret@host"],
    )
    def test_an_address_whose_password_is_not_escaped_is_refused_without_being_repeated(self, url: str) -> None:
        with pytest.raises(SourceFailed, match="cannot be told") as refused:
            place_of(url)

        told = f"{refused.value}{refused.value.hint}"
        assert [part for part in ("se", "cret", "host") if part in told.replace("password", "")] == []

    def test_an_address_whose_brackets_do_not_match_is_refused(self) -> None:
        with pytest.raises(SourceFailed, match="not the address of a Redis"):
            place_of("redis://[::1/0")

    def test_a_server_that_wants_a_password_is_read_with_it_and_never_names_it(self) -> None:
        with own_server("--requirepass", PASSWORD) as server:
            url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}"
            raw_redis(server, password=PASSWORD).xadd("{q:mail}:events", {"kind": "queued", "item": "1"})
            secrets = {place_of(url): url}

            found = plan({}, look(secrets), most_entries=ALL)
            [rows] = read_ranges(found.ranges, secrets)

            assert rows.num_rows == 1
            assert PASSWORD not in f"{found}{rows.to_pylist()}"
            with pytest.raises(SourceFailed) as refused:
                look({place_of(url): url.replace(PASSWORD, "wrong-one")})
            assert "wrong-one" not in f"{refused.value}{refused.value.hint}"

    def test_a_server_that_is_not_there_is_refused_with_the_next_command(self, server: Server) -> None:
        server.kill()

        with pytest.raises(SourceFailed) as refused:
            look(secrets_of(server))

        assert f"redis-cli -u {server.url} ping" in (refused.value.hint or "")


class TestThroughSpark:
    def test_a_batch_gives_each_entry_with_its_queue_and_its_place(self, spark: SparkSession, server: Server) -> None:
        tell(server, "mail", "1", id="1700000000000-5")

        rows = batch(
            spark,
            "queueyard_streams",
            ranges=as_text(planned(server).ranges),
            secret=as_text(secrets_of(server)),
        )

        told = {"id": "1700000000000-5", "kind": "queued", "item": "1", "attempt": "1", "actor": "a"}
        assert [tuple(row)[:6] for row in rows] == [("panqueue.events", server.url, "mail", 0, 1_700_000_000_000, 5)]
        assert json.loads(rows[0]["raw"]) == told

    def test_a_stream_goes_on_from_its_checkpoint(
        self, spark: SparkSession, server: Server, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        folder = tmp_path_factory.mktemp("stream")
        options = {"secret": as_text(secrets_of(server))}
        tell(server, "mail", "1", "2")
        first = micro_batches(spark, folder, "queueyard_streams", **options)

        tell(server, "mail", "3")
        tell(server, "other", "4")
        second = micro_batches(spark, folder, "queueyard_streams", **options)

        assert [json.loads(raw)["item"] for raw in first] == ["1", "2"]
        assert sorted(json.loads(raw)["item"] for raw in second) == ["1", "2", "3", "4"]

    def test_spark_shows_no_password_in_its_plans(
        self, spark: SparkSession, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with own_server("--requirepass", PASSWORD) as server:
            url = f"redis://:{PASSWORD}@127.0.0.1:{server.port}"
            raw_redis(server, password=PASSWORD).xadd("{q:mail}:events", {"kind": "queued", "item": "1"})
            secrets = {place_of(url): url}
            ranges = plan({}, look(secrets), most_entries=ALL).ranges

            frame = (
                spark.read.format("queueyard_streams").options(ranges=as_text(ranges), secret=as_text(secrets)).load()
            )

            assert frame.count() == 1
            frame.explain(extended=True)
            assert PASSWORD not in capsys.readouterr().out
