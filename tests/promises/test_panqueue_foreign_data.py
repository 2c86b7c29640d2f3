"""A script that meets somebody else's data fails before it writes, or leaves it alone; a job is never lost by it.

Every structure of a queue is replaced by a text, one after the other, and every script that moves jobs is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.errors import ForeignData
from queueyard.panqueue.family import tell
from queueyard.panqueue.flows import Parent
from queueyard.panqueue.pacing import STRICT_LEVEL_US, QueueRules, Rate
from queueyard.panqueue.placing import Placing
from queueyard.panqueue.records import Finish, JobOptions, Keep, Mode
from queueyard.panqueue.store import QueueStore
from servers import Server, fresh_id, valkey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.panqueue.store import Ask

__all__ = ["valkey"]

FEATURES = ("expiry", "held", "unplanted", "children")
GLOBAL = ("waiting", "active", "completed", "failed", "delayed", "concurrency", "meta", "events", "ranked", *FEATURES)
KEYED = (
    *("active", "completed", "failed", "delayed", "concurrency", "meta", "events", "k_active", "k_ready", "k_limits"),
    *("k_limited", *FEATURES),
)
MOVES = ("add", "turn", "fail", "recover", "extend", "hand_back")
FEATURE_MOVES = ("place", "ruled turn", "cancel", "expire", "postpone", "tell parent")
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
        rules = QueueRules(key_rate=Rate(1)) if self.keyed else QueueRules(level_us=STRICT_LEVEL_US, rate=Rate(1))
        self.ruled = self.store.turn_builder(lease_ms=600_000, worker="w", keep=KEEP, keyed=self.keyed, ruled=True)
        line.ask(self.store.write_rules(rules))
        self.add("j1", "j2", "j3", "j4")
        self.claim(4)
        line.ask(self.store.fail([("j4", "t", "why", 1)], worker="w", keep=KEEP))
        line.call("ZADD", self.store.keys["delayed"], 1, "j4")
        line.call("ZADD", self.store.keys["active"], 1, "j3")
        self.add("j5", "j6")
        line.ask(self.placing("e", Placing(expires_ms=1)))
        line.call("ZADD", self.store.keys["expiry"], 1, "e")
        line.ask(self.placing("p", Placing(fields=(("plan", "[]"), ("pending", "1")))))

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
            "place": self.placing("j7"),
            "ruled turn": self.ruled.build([("j1", "t", "a" if self.keyed else None, b"1")], claim=2, token="u"),
            "cancel": store.cancel(["j1", "j5"], why="why", keep=KEEP),
            "expire": store.expire(most=10, keep=KEEP),
            "postpone": store.postpone([("j1", "t", "why", 5, 0)], worker="w"),
            "tell parent": next(tell(Parent(store.queue_id, "p", "x"), actor="w", well=False, text=b"why")),
        }

    def placing(self, job_id: str, placing: Placing | None = None) -> Ask[int]:
        words: list[Any] = [job_id, b"{}", *(["a"] if self.keyed else [])]
        options = JobOptions(placing=placing or Placing(priority=3, expires_ms=60_000, fields=(("parent", "{}"),)))
        return self.store.add(words, options, keyed=self.keyed)

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


@pytest.mark.parametrize("move", [*MOVES, *FEATURE_MOVES])
@pytest.mark.parametrize(("mode", "name"), CASES)
def test_a_refused_call_has_written_nothing(line: Line, mode: Mode, name: str, move: str) -> None:
    bench = Bench(line, mode)
    line.call("DEL", bench.store.keys[name])
    line.call("SET", bench.store.keys[name], "somebody else's")
    before = bench.everything()

    refused = _is_refused(lambda: line.ask(bench.moves()[move]))

    assert not refused or bench.everything() == before
    assert line.call("GET", bench.store.keys[name]) == b"somebody else's"


@pytest.mark.parametrize("move", MOVES)
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
