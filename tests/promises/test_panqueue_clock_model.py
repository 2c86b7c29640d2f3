"""The scripts that depend on the clock and the Python model of them are one: deduplication, rate limits, schedules.

The scripts are the real ones on a real server, but for two words: they ask a key for the time, and a text that ends by
itself ends when that clock says so. So both sides live in the same moment, and every time that they write is compared.
"""

from __future__ import annotations

from functools import cached_property
import random
import re
from typing import Any

import pytest

from queueyard.panqueue.pacing import STRICT_LEVEL_US, QueueRules, Rate
from queueyard.panqueue.placing import Dedup, Placing
from queueyard.panqueue.records import IdsFrom, JobOptions, Mode
from queueyard.panqueue.schedules import CatchUp, Schedule
from queueyard.panqueue.scheduling import fire_due, pause_schedule, put_schedule, remove_schedule
from queueyard.panqueue.scripts import Script
from queueyard.panqueue.store import Ask, Talk
from servers import Server, server
from unit.panqueue.model_schedules import WholeModel
from unit.panqueue.twins import Twin, contents

__all__ = ["server"]

SEEDS = 12
STEPS = 80
START_MS = 1_700_000_000_000
#: so far away that the server itself never lets a text end
CENTURIES_MS = 10**14
CLOCK = "the-clock-of-the-model"
_ITS_CLOCK = "redis.call('TIME')"
_THE_CLOCK = f"(function() local ms = redis.call('GET', '{CLOCK}') return {{0, ms * 1000}} end)()"
_ENDS = re.compile(r"'PX', (.+)\)$", re.MULTILINE)


class ClockedScript(Script):
    """A script that lives by the clock of the test."""

    def __init__(self, plain: Script) -> None:
        super().__init__(plain.name, " ".join(plain.keys))
        self._plain = plain

    @cached_property
    def text(self) -> str:
        ends = rf"'PXAT', text_of({CENTURIES_MS} + now + (\1)))"
        return _ENDS.sub(ends, self._plain.text.replace(_ITS_CLOCK, _THE_CLOCK))


class ClockedTwin(Twin):
    """A queue with all its rules, on a server and in the model; time passes on both when it is told to."""

    def __init__(self, server: Server, chance: random.Random, mode: Mode) -> None:
        self.scripts: dict[str, ClockedScript] = {}
        super().__init__(server, chance, mode)
        self.rules = self._some_rules()
        self.line.ask(self.store.write_rules(self.rules))
        self.model._hset(self.store.keys["meta"].encode(), **self.rules.fields())
        self.builder = self.store.turn_builder(
            lease_ms=20_000, worker="w", keep=self.keep, keyed=mode is not Mode.GLOBAL, ruled=True
        )

    def _make_model(self) -> WholeModel:
        self.line.call("SET", CLOCK, START_MS)
        return WholeModel(START_MS)

    def _some_rules(self) -> QueueRules:
        limited = Rate(self.chance.randint(1, 5), per_ms=1_000, burst=self.chance.choice([None, 1, 7]))
        rate = self.chance.choice([None, limited])
        if self.mode is Mode.GLOBAL:
            return QueueRules(self.chance.choice([STRICT_LEVEL_US, 1_000_000]), rate)
        return QueueRules(
            None, rate, Rate(self.chance.randint(1, 3), per_ms=2_000, burst=self.chance.choice([None, 2]))
        )

    def same(self, ask: Ask[Any]) -> Any:
        """Ask both; the replies must be equal, to the millisecond."""
        assert ask.script is not None
        script = self.scripts.setdefault(ask.script.name, ClockedScript(ask.script))
        theirs = self.line.run(script, ask.keys, ask.arguments)
        ours = self.model.run(script, ask.keys, ask.arguments)
        assert without_order(theirs) == without_order(ours), script
        return ask.parse(theirs)

    def step(self) -> None:
        verbs = [self.add, self.turn, self.turn, self.turn, self.fail, self.postpone, self.hand_back, self.cancel]
        verbs += [self.once, self.once, self.schedule, self.fire, self.fire, self.recover, self.expire, self.limit]
        verbs += [self.pass_time] * 5
        self.chance.choice(verbs)()
        assert contents(self.line, self.store) == self.model.data
        assert self._ends() == self.model.ends

    def _ends(self) -> dict[bytes, int]:
        texts = [key for key, value in self.model.data.items() if isinstance(value, bytes)]
        return {key: self.line.call("PEXPIRETIME", key) - CENTURIES_MS for key in texts}

    def pass_time(self) -> None:
        self.model.pass_time(self.chance.choice([1, 99, 250, 1_000, 3_333, 30_000]))
        self.line.call("SET", CLOCK, self.model.now_ms)
        texts = set(self._texts()) - set(self.model.ends)
        if texts:
            self.line.call("DEL", *texts)

    def _texts(self) -> list[bytes]:
        return [key for key, value in contents(self.line, self.store).items() if isinstance(value, bytes)]

    def once(self) -> None:
        """Jobs with a deduplication key."""
        self.ids += 1
        key = self.chance.choice("xy")
        dedup = self.chance.choice([Dedup(key), Dedup.throttle(key, 2_000), Dedup.debounce(key, 1_500)])
        placing = Placing(dedup=dedup, expires_ms=self.chance.choice([None, 5_000]))
        words: list[Any] = [f"j{self.ids}", b"{}", *([self.chance.choice("abc")] if self.builder.keyed else [])]
        ask = self.store.add(
            words, JobOptions(retries=1, placing=placing), keyed=self.builder.keyed, ids_from=IdsFrom.CALLER
        )
        # It may be left out; that both sides name the same holder is what counts.
        self.same(Ask(ask.script, ask.keys, ask.arguments, lambda reply: reply))

    def fail(self) -> None:
        failures = [(one, by, "why", self.chance.choice([-1, 0, 700])) for one, by, _ in self.some_held()]
        self.same(self.store.fail(failures, worker="w", keep=self.keep))

    def postpone(self) -> None:
        everybody = int(self.rules.rate is not None and self.chance.random() < 0.5)
        jobs = [(one, by, "later", 900, everybody) for one, by, _ in self.some_held()]
        self.same(self.store.postpone(jobs, worker="w"))

    def recover(self) -> None:
        self.same(self.store.recover(actor="s", most=self.chance.randint(1, 4), keep=self.keep))

    def expire(self) -> None:
        self.same(self.store.expire(most=self.chance.randint(1, 4), keep=self.keep))

    def schedule(self) -> None:
        """Write a schedule down, change it, let it rest or go on, or take it away."""
        name = self.chance.choice("mn")
        described = Schedule(
            name=name,
            every_ms=self.chance.choice([500, 1_700]),
            catch_up=self.chance.choice(list(CatchUp)),
            payload="{}",
            # Sometimes it does not fit the queue: then nobody fires it.
            key=self.chance.choice(["a", "b", None]) if self.builder.keyed else self.chance.choice([None, None, "a"]),
            priority=self.chance.choice([0, 3]),
        )
        verb = self.chance.random()
        self.talk(put_schedule(self.store, described), meddle=verb < 0.5)
        if verb < 0.3:
            self.talk(pause_schedule(self.store, name, paused=self.chance.random() < 0.5), meddle=verb < 0.1)
        elif verb > 0.8:
            self.talk(remove_schedule(self.store, name))

    def fire(self) -> None:
        """Add what is due, and sometimes come too late for what was seen."""
        self.talk(fire_due(self.store), meddle=self.chance.random() < 0.5)

    def talk(self, talk: Talk[Any], *, meddle: bool = False) -> Any:
        """A conversation with both; somebody else may step in behind its first call."""
        seen = None
        try:
            while True:
                seen = self.same(talk.send(seen))
                if meddle:
                    meddle = False
                    self.chance.choice([self.fire, self.schedule])()
        except StopIteration as end:
            return end.value


def without_order(reply: Any) -> Any:
    """The reply, with what came from a hash as a dict."""
    if isinstance(reply, list):
        if b"createdAt" in [item for item in reply if isinstance(item, bytes)] and len(reply) % 2 == 0:
            return dict(zip(reply[::2], reply[1::2], strict=True))
        return [without_order(item) for item in reply]
    return reply


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_calls_at_random_times_give_the_same_replies_and_leave_the_same_data(
    server: Server, mode: Mode, seed: int
) -> None:
    twin = ClockedTwin(server, random.Random(f"{mode}-{seed}"), mode)

    for _ in range(STEPS):
        twin.step()
    twin.line.close()

    assert twin.ids


def test_what_is_replaced_in_a_script_is_there() -> None:
    from queueyard.panqueue import scripts

    texts = {one.name: ClockedScript(one).text for one in scripts.ALL}

    assert not [name for name, text in texts.items() if _ITS_CLOCK in text or "'PX'" in text]
    assert {name for name, text in texts.items() if "'PXAT'" in text} == {
        *("add_placed", "turn_ruled", "turn_keyed_ruled", "postpone"),
    }
