"""A script that meets somebody else's data fails before it writes, or leaves it alone; a job is never lost by it.

Every structure of a queue is replaced by a text, one after the other, and every script that moves jobs is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import ForeignData
from queueyard.panqueue.records import Finish, JobOptions, Keep, Mode
from queueyard.panqueue.store import QueueStore
from servers import Server, fresh_id, valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.panqueue.store import Ask

__all__ = ["valkey"]

GLOBAL = ("waiting", "active", "completed", "failed", "delayed", "concurrency", "meta", "events")
KEYED = ("active", "completed", "failed", "delayed", "concurrency", "meta", "events", "k_active", "k_ready", "k_limits")
KEEP = Keep()


class Bench:
    """A queue with jobs in every state: two waiting, three active (one of them overdue), one delayed and due."""

    def __init__(self, line: Line, mode: Mode) -> None:
        self.line = line
        self.store = QueueStore(fresh_id())
        self.keyed = mode is not Mode.GLOBAL
        self.builder = self.store.turn_builder(lease_ms=600_000, worker="w", keep=KEEP, keyed=self.keyed)
        line.ask(self.store.declare_mode(mode, 3 if self.keyed else None))
        line.ask(self.store.switch_events(100))
        self.add("j1", "j2", "j3", "j4")
        self.claim(4)
        line.ask(self.store.fail([("j4", "t", "why", 1)], worker="w", keep=KEEP))
        line.call("ZADD", self.store.keys["delayed"], 1, "j4")
        line.call("ZADD", self.store.keys["active"], 1, "j3")
        self.add("j5", "j6")

    def add(self, *ids: str) -> None:
        self.line.ask(self.adding(*ids))

    def adding(self, *ids: str) -> Ask[int]:
        words: list[Any] = []
        for job_id in ids:
            words += [job_id, b"{}", *(["a"] if self.keyed else [])]
        return self.store.add(words, JobOptions(retries=5), keyed=self.keyed)

    def claim(self, count: int) -> None:
        self.line.ask(self.builder.build([], claim=count, token="t"))

    def moves(self) -> dict[str, Ask[Any]]:
        store = self.store
        return {
            "add": self.adding("j7"),
            "turn": self.builder.build([("j1", "t", "a" if self.keyed else None, b"1")], claim=2, token="u"),
            "fail": store.fail([("j1", "t", "why", 0), ("j2", "t", "why", -1)], worker="w", keep=KEEP),
            "recover": store.recover(actor="s", most=10, keep=KEEP),
            "extend": store.extend([("j1", "t")], lease_ms=600_000),
            "hand_back": store.hand_back([("j1", "t")], worker="w", why="shutdown"),
        }

    def everything(self) -> dict[bytes, bytes]:
        keys: list[bytes] = self.line.call("KEYS", f"{self.store.keys.tag.replace('[', '?')}*")
        return {key: self.line.call("DUMP", key) for key in keys}

    def places(self, job_id: str) -> int:
        """In how many places the job stands."""
        name, found = job_id.encode(), 0
        for key in self.line.call("KEYS", f"{self.store.keys.tag}*"):
            kind = self.line.call("TYPE", key)
            if kind == b"list":
                found += self.line.call("LRANGE", key, 0, -1).count(name)
            elif kind == b"zset" and not key.endswith(b":k:ready"):
                found += self.line.call("ZSCORE", key, name) is not None
        return found


@pytest.fixture
def line(valkey: Server) -> Iterator[Line]:
    opened = Line(parse_address(valkey.url))
    yield opened
    opened.close()


CASES = [(Mode.GLOBAL, name) for name in GLOBAL] + [(Mode.KEYED, name) for name in KEYED]


@pytest.mark.parametrize("move", ["add", "turn", "fail", "recover", "extend", "hand_back"])
@pytest.mark.parametrize(("mode", "name"), CASES)
def test_a_refused_call_has_written_nothing(line: Line, mode: Mode, name: str, move: str) -> None:
    bench = Bench(line, mode)
    line.call("DEL", bench.store.keys[name])
    line.call("SET", bench.store.keys[name], "somebody else's")
    before = bench.everything()

    refused = _is_refused(lambda: line.ask(bench.moves()[move]))

    assert not refused or bench.everything() == before
    assert line.call("GET", bench.store.keys[name]) == b"somebody else's"


@pytest.mark.parametrize("move", ["add", "turn", "fail", "recover", "extend", "hand_back"])
def test_a_key_whose_list_is_somebody_elses_loses_no_job_that_is_active_or_delayed(line: Line, move: str) -> None:
    bench = Bench(line, Mode.KEYED)
    place = bench.store.keys["k_lists"] + "a"
    line.call("DEL", place)
    line.call("SET", place, "somebody else's")
    kept = ["j2", "j3", "j4"] if move == "turn" else ["j1", "j2", "j3", "j4"]

    _is_refused(lambda: line.ask(bench.moves()[move]))

    assert {job_id: bench.places(job_id) for job_id in kept} == dict.fromkeys(kept, 1)


def test_an_event_stream_that_is_somebody_elses_stops_nothing(line: Line) -> None:
    bench = Bench(line, Mode.GLOBAL)
    line.call("SET", bench.store.keys["events"], "somebody else's")

    codes = line.ask(bench.store.fail([("j1", "t", "why", -1)], worker="w", keep=KEEP))

    assert codes == [Finish.FAILED]


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ForeignData:
        return True
    return False
