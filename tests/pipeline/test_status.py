"""How far each source is, against real servers: what is behind, who does not answer, and no password anywhere."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

from deltalake import Schema
import pyarrow as pa
import pytest

from queueyard.kernel.events import System
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.lag import ServerState, servers
from queueyard.pipeline.sources import redis_client
from queueyard.pipeline.sources.positions import plan
from queueyard.pipeline.status import status
from queueyard.yard.places import Place
from scripts import Answer, run_script
from servers import Server, free_port, own_server, raw_redis
from unit.ops.support.running import RunningServer, batch, op, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ALL = 1 << 60
PASSWORD = "correct-horse"
#: for servers that do answer
LONG_S = 60.0
_COLUMNS = Schema.from_arrow(pa.schema([("raw", pa.string())]))


class Scene:
    """A yard with a repository, a Redis and an ops server."""

    def __init__(self, root: Path, redis: Server, ops: RunningServer) -> None:
        self.root, self.redis, self.ops = root, redis, ops
        self.redis_url = f"redis://:{PASSWORD}@127.0.0.1:{redis.port}"
        self.servers = [
            Place(system=System.PANQUEUE, at=self.redis_url),
            Place(system=System.OPS, at=f"{ops.url}#space0"),
        ]
        self._file = root / ".beads" / "queen_messages.jsonl"
        self._file.parent.mkdir(parents=True)
        self.name(*self.servers)

    def name(self, *places: Place) -> None:
        """Make these the listed places of the yard."""
        listed = [f'[[place]]\nsystem = "{place.system}"\nat = "{place.at}"\n' for place in places]
        (self.root / "queueyard.toml").write_text("".join(listed))

    def tell(self, number: int) -> None:
        """Something new at every place."""
        entry = {"kind": "queued", "item": f"job-{number}", "attempt": "1", "actor": "a"}
        raw_redis(self.redis, password=PASSWORD).xadd("{q:mail}:events", entry)
        assert self.ops.push(batch(op(number), request=f"R{number}"), space="space0").status == 200
        with self._file.open("a") as stream:
            stream.write(f'{{"id":"qm-{number}"}}\n')

    def trim(self, *, after: int) -> None:
        """That many more entries, of which the stream keeps only the last."""
        for number in range(after):
            entry = {"kind": "queued", "item": f"more-{number}", "attempt": "1", "actor": "a"}
            raw_redis(self.redis, password=PASSWORD).xadd("{q:mail}:events", entry, maxlen=1, approximate=False)

    def note(self, before: dict[str, Any] | None = None) -> dict[str, Any]:
        """What a batch would note that reads everything."""
        places = [*self.servers, Place(system=System.QUEEN, at=str(self.root))]
        return plan(places, before or {}, most_bytes=ALL, environment={}).note

    def commit(self) -> None:
        """A batch of bronze that has read everything; its rows are of no interest here."""
        log = DeltaLog(str(self.root / ".queueyard" / "pipeline" / "bronze" / "lines"))
        log.commit([], _COLUMNS, (), batch=0, note=self.note())

    def status(self, *words: str) -> Answer:
        return run_script("queueyard", "pipeline", "status", *words, cwd=self.root)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with own_server("--requirepass", PASSWORD) as redis, running_server(tmp_path / "server") as ops:
        yield Scene(tmp_path / "yard", redis, ops)


class TestServers:
    def test_before_the_first_batch_everything_is_behind(self, scene: Scene) -> None:
        scene.tell(1)
        scene.tell(2)

        found = servers(scene.servers, {}, environment={}, within_s=LONG_S)

        assert [(one.stream, one.name, one.read, one.behind_entries, one.fault) for one in found] == [
            ("panqueue.events", "mail", None, 2, None),
            ("ops.changes", "space0", None, 2, None),
            ("ops.audit", "space0", None, 0, None),
        ]

    def test_behind_a_batch_only_what_came_after_it_is_new(self, scene: Scene) -> None:
        scene.tell(1)
        note = scene.note()
        is_all_read = servers(scene.servers, note, environment={}, within_s=LONG_S)

        scene.tell(2)
        found = servers(scene.servers, note, environment={}, within_s=LONG_S)

        assert [one.behind_entries for one in is_all_read] == [0, 0, 0]
        assert [one.behind_entries for one in found] == [1, 1, 0]
        assert [one.read for one in found] == [note["streams"][found[0].place]["{q:mail}:events"]["last"], "1", None]

    def test_entries_that_were_trimmed_unread_are_lost_before_and_behind_the_batch_that_finds_it(
        self, scene: Scene
    ) -> None:
        scene.tell(1)
        note = scene.note()
        scene.trim(after=3)

        before = servers(scene.servers, note, environment={}, within_s=LONG_S)
        behind = servers(scene.servers, scene.note(note), environment={}, within_s=LONG_S)

        assert [one.lost_entries for one in before] == [one.lost_entries for one in behind] == [2, 0, 0]

    def test_one_that_does_not_answer_in_time_is_told(self, scene: Scene) -> None:
        scene.redis.freeze()

        found = servers(scene.servers[:1], {}, environment={}, within_s=0.1)

        place = f"redis://127.0.0.1:{scene.redis.port}"
        fault = f"no answer from {place} within 0.1 s"
        assert found == [
            ServerState(
                stream=None, place=place, name=None, read=None, behind_entries=None, lost_entries=None, fault=fault
            )
        ]

    def test_an_address_that_is_none_is_told(self, scene: Scene) -> None:
        places = [Place(system=System.OPS, at="http://me:secret@127.0.0.1:1"), *scene.servers]

        bad, *others = servers(places, {}, environment={}, within_s=LONG_S)

        assert bad.fault is not None
        assert bad.fault.startswith("not the address of an ops server")
        assert "secret" not in str(bad)
        assert [one.fault for one in others] == [None, None]

    def test_a_fault_that_nobody_thought_of_is_told_by_its_name_only(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: object) -> None:
            raise RuntimeError(PASSWORD)

        monkeypatch.setattr(redis_client, "look", fail)

        bad, *others = servers(scene.servers, {}, environment={}, within_s=LONG_S)

        assert bad.fault == f"cannot ask redis://127.0.0.1:{scene.redis.port}: RuntimeError"
        assert [one.fault for one in others] == [None, None]

    def test_a_server_that_refuses_the_token_is_told(self, scene: Scene) -> None:
        [refused] = servers(scene.servers[1:], {}, environment={"JOLLI_TOKEN": "a-token"}, within_s=LONG_S)

        assert refused.fault is not None
        assert "401" in refused.fault
        assert "a-token" not in str(refused)


class TestRewrittenFiles:
    def test_what_is_new_in_them_is_behind_until_a_batch_has_it(self, tmp_path: Path) -> None:
        place = Place(system=System.RUNFORGE, at=str(tmp_path))
        results = [tmp_path / ".ml" / "runs" / run / "result.json" for run in ("one", "two")]
        for result in results:
            result.parent.mkdir(parents=True)
            result.write_text('{"status":"ok"}')
        home = str(tmp_path / "home")
        before = status(home, [], [place], environment={}).sources
        note = plan([place], {}, most_bytes=ALL, environment={}).note
        DeltaLog(f"{home}/bronze/lines").commit([], _COLUMNS, (), batch=0, note=note)

        results[0].write_text('{"status":"failed"}')
        # The same again, as a tool does that writes whether there is news or not.
        results[1].write_text('{"status":"ok"}')
        after = status(home, [], [place], environment={}).sources

        told = [[(one.stream, one.read_bytes, one.behind_bytes) for one in found] for found in (before, after)]
        assert told == [[("runforge.result", 0, 30)], [("runforge.result", 15, 19)]]


class TestTheCommand:
    def test_it_tells_what_is_behind_in_bytes_and_in_entries(self, scene: Scene) -> None:
        scene.tell(1)
        scene.commit()
        scene.tell(2)

        answer, listed = scene.status("--json"), scene.status()

        assert answer.code == 0, answer.stderr
        assert (answer.json["behind_bytes"], answer.json["behind_entries"]) == (14, 2)
        assert [one["read_bytes"] for one in answer.json["sources"]] == [14]
        assert [one["behind_entries"] for one in answer.json["servers"]] == [1, 1, 0]
        assert "BEHIND ENTRIES" in listed.stdout
        assert "14 bytes and 2 entries are new; to read them: queueyard pipeline run" in listed.stderr

    def test_it_tells_what_is_lost_only_where_something_is(self, scene: Scene) -> None:
        scene.tell(1)
        scene.commit()
        whole = scene.status()
        scene.trim(after=3)

        answer, listed = scene.status("--json"), scene.status()

        assert [one["lost_entries"] for one in answer.json["servers"]] == [2, 0, 0]
        assert ("LOST" in whole.stdout, "LOST" in listed.stdout) == (False, True)

    def test_it_succeeds_where_servers_are_gone_or_silent_and_shows_no_password(self, scene: Scene) -> None:
        scene.tell(1)
        scene.name(*scene.servers, Place(system=System.OPS, at=f"http://127.0.0.1:{free_port()}"))
        scene.redis.freeze()
        scene.ops.stop(signal.SIGKILL)

        answer, listed = scene.status("--json"), scene.status()

        assert (answer.code, listed.code) == (0, 0)
        assert answer.json["behind_bytes"] == 14
        assert ["no answer" in one["fault"] for one in answer.json["servers"]] == [True, True, True]
        assert listed.stderr.count("no answer from") == 3
        assert PASSWORD not in f"{answer}{listed}"
