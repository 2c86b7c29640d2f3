"""A queue on a real server and the same queue in the model: both are asked the same, and must say and hold the same."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from queueyard.panqueue.address import parse_address
from queueyard.panqueue.blocking import Line
from queueyard.panqueue.family import tell
from queueyard.panqueue.flows import OnFailure, Parent
from queueyard.panqueue.pacing import STRICT_LEVEL_US, QueueRules
from queueyard.panqueue.placing import Placing
from queueyard.panqueue.records import IdsFrom, JobOptions, JobState, Keep, Mode
from queueyard.panqueue.store import Ask, QueueStore
from servers import Server, fresh_id
from unit.panqueue.model_schedules import WholeModel

if TYPE_CHECKING:
    import random

TIMES = {
    *(b"createdAt", b"lastStartedAt", b"leaseDeadline", b"finishedAt"),
    *(b"lastFailedAt", b"lastStalledAt", b"lastRequeuedAt", b"rank"),
}
#: sorted sets whose scores are times
BY_TIME = (b":active", b":completed", b":failed", b":delayed", b":expiry", b":held", b":unplanted", b":ranked")


class Twin:
    """A queue on a server and the same queue in the model. Time differs, so leases are set far away or long ago."""

    def __init__(self, server: Server, chance: random.Random, mode: Mode) -> None:
        self.line = Line(parse_address(server.url))
        self.store = QueueStore(fresh_id())
        self.model = self._make_model()
        self.chance = chance
        self.keep = chance.choice([None, Keep(), Keep(count=0)])
        ranked = mode is Mode.GLOBAL and chance.random() < 0.5
        self.builder = self.store.turn_builder(
            lease_ms=10_000_000, worker="w", keep=self.keep, keyed=mode is not Mode.GLOBAL, ruled=ranked
        )
        self.mode = mode
        self.held: list[tuple[str, str, str | None]] = []
        self.ids = 0
        self.tokens = 0
        if ranked:
            self.line.ask(self.store.write_rules(QueueRules(level_us=STRICT_LEVEL_US)))
            self.model._hset(self.store.keys["meta"].encode(), ranked=STRICT_LEVEL_US)
        self.same(self.store.declare_mode(mode, chance.choice([1, 2, 3]) if mode is not Mode.GLOBAL else None))

    def _make_model(self) -> WholeModel:
        return WholeModel(1_000_000)

    def same(self, ask: Ask[Any]) -> Any:
        """Ask both; the replies must be equal, apart from times."""
        assert ask.script is not None
        theirs = self.line.run(ask.script, ask.keys, ask.arguments)
        ours = self.model.run(ask.script, ask.keys, ask.arguments)
        assert plain(theirs) == plain(ours), ask.script
        return ask.parse(theirs)

    def step(self) -> None:
        keyed = self.builder.keyed
        verbs = [self.add, self.turn, self.turn, self.turn, self.fail, self.extend, self.hand_back, self.recover]
        verbs += [self.place, self.cancel, self.postpone, self.expire, self.tell_parent]
        verbs += [self.limit, self.trim, self.pause] + ([self.key_limit] if self.mode is Mode.DYNAMIC else [])
        assert keyed or self.mode is Mode.GLOBAL
        self.chance.choice(verbs)()
        assert normal(contents(self.line, self.store)) == normal(self.model.data)

    def add(self) -> None:
        words: list[Any] = []
        for _ in range(self.chance.randint(1, 6)):
            self.ids += 1
            words += [f"j{self.ids}", b"{}"]
            if self.builder.keyed:
                words.append(self.chance.choice("abc"))
        options = JobOptions(retries=self.chance.randint(0, 2), max_stalls=self.chance.randint(0, 2))
        self.same(self.store.add(words, options, keyed=self.builder.keyed))

    def some_held(self, *, mistaken: bool = True) -> list[tuple[str, str, str | None]]:
        chosen = [one for one in self.held if self.chance.random() < 0.5]
        self.held = [one for one in self.held if one not in chosen]
        if mistaken and self.chance.random() < 0.2:
            chosen.append((f"j{self.chance.randint(1, 20)}", "a wrong token", "a"))
        return chosen

    def turn(self) -> None:
        self.tokens += 1
        token = f"t{self.tokens}"
        finished = [(one, by, key, b"7") for one, by, key in self.some_held()]
        turn = self.same(self.builder.build(finished, claim=self.chance.randint(0, 5), token=token))
        self.held += [(job.id, token, job.key) for job in turn.claimed]

    def fail(self) -> None:
        failures = [(one, by, "why", self.chance.choice([-1, 0, 9_000_000])) for one, by, _ in self.some_held()]
        self.same(self.store.fail(failures, worker="w", keep=self.keep))

    def place(self) -> None:
        """Jobs that are late, urgent, limited in time, or waiting for others."""
        self.ids += 1
        placing = self.chance.choice(
            [
                Placing(delay_ms=9_000_000),
                Placing(priority=self.chance.randint(-3, 3)),
                Placing(priority=1, expires_ms=9_000_000),
                Placing(fields=(("plan", "[]"), ("pending", "2"))),
            ]
        )
        words: list[Any] = [f"j{self.ids}", b"{}", *([self.chance.choice("abc")] if self.builder.keyed else [])]
        options = JobOptions(retries=1, placing=placing)
        self.same(self.store.add(words, options, keyed=self.builder.keyed, ids_from=IdsFrom.CALLER))

    def some_ids(self) -> list[str]:
        return [f"j{self.chance.randint(1, self.ids + 2)}" for _ in range(self.chance.randint(1, 3))]

    def cancel(self) -> None:
        ids = self.some_ids()
        self.held = [one for one in self.held if one[0] not in ids]
        self.same(self.store.cancel(ids, why="not wanted", keep=self.keep))

    def postpone(self) -> None:
        jobs = [(one, by, "later", 9_000_000, 0) for one, by, _ in self.some_held()]
        self.same(self.store.postpone(jobs, worker="w"))

    def expire(self) -> None:
        """Let the time of some be over, in both worlds."""
        key = self.store.keys["expiry"]
        for place, one in enumerate(sorted(self.model.zset(key.encode()))):
            if self.chance.random() < 0.5:
                self.line.call("ZADD", key, place + 1, one)
                self.model.zset(key.encode())[one] = place + 1
        self.same(self.store.expire(most=self.chance.randint(1, 4), keep=self.keep))

    def tell_parent(self) -> None:
        policy = self.chance.choice(list(OnFailure))
        parent = Parent(self.store.queue_id, self.some_ids()[0], self.chance.choice("xyz"), policy)
        talk = tell(parent, actor="w", well=self.chance.random() < 0.7, text=b"7", keep=self.keep)
        self.same(next(talk))

    def extend(self) -> None:
        self.same(self.store.extend([(one, by) for one, by, _ in self.held], lease_ms=10_000_000))

    def hand_back(self) -> None:
        pairs = [(one, by) for one, by, _ in self.some_held()]
        self.same(self.store.hand_back(pairs, worker="w", why="shutdown"))

    def recover(self) -> None:
        """Let some leases be over, in both worlds, and sweep."""
        over = [one for one, _, _ in self.held if self.chance.random() < 0.3]
        self.held = [one for one in self.held if one[0] not in over]
        key = self.store.keys["active"]
        for place, one in enumerate(over):
            if self.line.call("ZSCORE", key, one) is not None:
                self.line.call("ZADD", key, place + 1, one)
                self.model.zset(key.encode())[one.encode()] = place + 1
        self.same(self.store.recover(actor="s", most=self.chance.randint(1, 4), keep=self.keep))

    def limit(self) -> None:
        ask = self.store.declare_limit(self.chance.randint(1, 6), self.chance.randint(1, 4))
        # It may be refused; that both sides refuse alike is what counts.
        self.same(Ask(ask.script, ask.keys, ask.arguments, lambda reply: reply))

    def trim(self) -> None:
        state = self.chance.choice([JobState.COMPLETED, JobState.FAILED])
        # All or nothing: which are the oldest depends on the clock.
        self.same(self.store.trim(state, Keep(count=self.chance.choice([0, 1_000])), most=1_000))

    def pause(self) -> None:
        self.same(self.store.pause(paused=self.chance.random() < 0.3, actor="p"))

    def key_limit(self) -> None:
        self.same(self.store.key_limit(self.chance.choice("abc"), self.chance.choice([None, 0, 1, 3])))


def plain(reply: Any) -> Any:
    """The reply without what depends on the clock."""
    if isinstance(reply, list):
        names = [item for item in reply if isinstance(item, bytes)]
        if b"createdAt" in names and len(reply) % 2 == 0:
            pairs = dict(zip(reply[::2], reply[1::2], strict=True))
            return {name: value for name, value in pairs.items() if name not in TIMES}
        return [plain(item) for item in reply]
    return 0 if isinstance(reply, int) and reply > 100_000 else reply


def contents(line: Line, store: QueueStore) -> dict[bytes, Any]:
    """Everything that the server holds of the queue."""
    found: dict[bytes, Any] = {}
    cursor: Any = b"0"
    keys: set[bytes] = set()
    while True:
        cursor, page = line.call("SCAN", cursor, "MATCH", f"{store.keys.tag}*", "COUNT", 10_000)
        keys |= set(page)
        if cursor == b"0":
            break
    for key in keys:
        kind = line.call("TYPE", key)
        if kind == b"string":
            found[key] = line.call("GET", key)
        elif kind == b"list":
            found[key] = line.call("LRANGE", key, 0, -1)
        elif kind == b"hash":
            flat = line.call("HGETALL", key)
            found[key] = dict(zip(flat[::2], flat[1::2], strict=True))
        else:
            flat = line.call("ZRANGE", key, 0, -1, "WITHSCORES")
            found[key] = {member: float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}
    return found


def normal(data: dict[bytes, Any]) -> dict[bytes, Any]:
    told = copy.deepcopy(data)
    for key, value in told.items():
        if not isinstance(value, dict):
            continue
        for name in TIMES & set(value):
            value[name] = b"<ms>"
        if key.endswith(BY_TIME) and b":k:" not in key:
            told[key] = set(value)
    return told
