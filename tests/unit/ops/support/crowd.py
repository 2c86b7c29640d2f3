"""Many clients on several spaces at once, in one process, each with a queue and a connection of its own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
import random
import threading
import time
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.ops.records import Op, OpType
from queueyard.ops.service import Ops
from queueyard.ops.worker import Sent, resume

if TYPE_CHECKING:
    from pathlib import Path

    from unit.ops.support.running import RunningServer


@dataclass
class Crowd:
    """What a crowd did."""

    #: space -> op ids that were answered as applied, in any order
    applied: dict[str, list[str]] = field(default_factory=dict)
    #: how long each batch took from sending to answer, retries and all
    seconds: list[float] = field(default_factory=list)
    retries: int = 0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, space: str, op_ids: list[str], seconds: list[float], retries: int) -> None:
        with self._guard:
            self.applied.setdefault(space, []).extend(op_ids)
            self.seconds += seconds
            self.retries += retries

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * share))]


def push_for(server: RunningServer, folder: Path, *, clients: int, spaces: int, seconds: float) -> Crowd:
    """Let clients push requests of some batches each until the time is up; every one of them finishes its last."""
    crowd = Crowd()
    until = time.monotonic() + seconds

    def live(number: int) -> None:
        space = f"space{number % spaces}"
        dice = random.Random(number)
        ops = Ops.open(
            None,
            environment={"JOLLI_HOME": str(folder / f"client{number}")},
            server=server.url,
            space=space,
            batch_ops=25,
            retry_for="2m",
        )
        round_number = 0
        while round_number == 0 or time.monotonic() < until:
            round_number += 1
            wanted = [_op(f"c{number}-{round_number}-{n}", dice) for n in range(dice.randint(25, 100))]
            ops.plan_ops(wanted)
            times: list[float] = []
            begun = time.monotonic()

            def on_sent(_: Sent, times: list[float] = times) -> None:
                nonlocal begun
                times.append(time.monotonic() - begun)
                begun = time.monotonic()

            outcome = resume(ops, on_sent=on_sent)
            if outcome.applied != len(wanted):
                raise QueueyardError(f"{outcome.applied} of {len(wanted)} were applied")
            crowd.note(space, [op.op_id for op in wanted], times, outcome.retries)

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(live, number) for number in range(clients)]:
            done.result()
    return crowd


def violations(server: RunningServer, crowd: Crowd) -> list[str]:
    """Every op that was answered stands in the feed of its space once, and nothing else does."""
    found = []
    for space, applied in crowd.applied.items():
        told: list[str] = []
        while page := server.feed(space=space, after=len(told)):
            told += [entry["opId"] for entry in page]
            numbers = [entry["seq"] for entry in page]
            if numbers != list(range(len(told) - len(page) + 1, len(told) + 1)):
                found.append(f"{space}: the feed has gaps")
        if sorted(told) != sorted(applied):
            found.append(f"{space}: {len(set(applied) - set(told))} lost, {len(told) - len(set(told))} doubled")
    return found


def _op(name: str, dice: random.Random) -> Op:
    return Op(
        op_id=name,
        type=OpType.UPSERT,
        file_id=name,
        server_path=f"{name}.md",
        base_version=0,
        content=f"{name} " * dice.randint(1, 200),
    )
