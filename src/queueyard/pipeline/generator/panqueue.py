"""The event streams of three queues of one Redis.

    panqueue/<queue>.entries.jsonl

A stream cannot be a file, so each entry is one JSON object here: its id, and its fields as texts. `load` puts them into
a real Redis under the same ids. A stream is in order and whole, so these files are never late, repeated or torn; what
may stand in them are entries of a kind that nobody knows.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.events import Kind
from queueyard.pipeline.generator.chance import (
    HOUR,
    MS,
    SECOND,
    Agenda,
    Crew,
    Skewed,
    arrivals,
    fault,
    mean_run_s,
    per_second,
    run_time,
)
from queueyard.pipeline.generator.writing import Budget, StreamCount

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

STREAM = "panqueue.events"
_LINES_PER_JOB = 3.5
_SUFFIX = ".entries.jsonl"
_WORKERS = tuple(f"worker-{number:02d}" for number in range(12))
_QUEUES = Skewed(("mail", "render", "index"), by=1.0)
_KEYS = Skewed([f"tenant-{number:02d}" for number in range(20)])
_MOST_ATTEMPTS = 4
_ENTRIES_PER_UNKNOWN = 900
_ENTRIES_PER_CALL = 2_000


def write(folder: Path, lines: int, random: Random) -> list[StreamCount]:
    budget = Budget(lines)
    rate = per_second(lines / _LINES_PER_JOB)
    redis = _Redis(folder / "panqueue", random, budget, rate)
    for at in arrivals(random, rate):
        redis.agenda.run_until(at)
        if budget.left <= 0:
            break
        redis.add_job(at)
    return [redis.close()]


def load(path: Path, url: str, *, queue: str | None = None) -> int:
    """Put a file of entries into the stream of its queue, under their own ids; how many. Needs redis-py.

    The queue is named by the file unless `queue` is given. redis.RedisError if the stream already is behind them.
    """
    import redis  # noqa: PLC0415  only whoever loads needs it

    key = f"{{q:{queue or path.name.removesuffix(_SUFFIX)}}}:events"
    decode = msgspec.json.Decoder(dict[str, str]).decode
    count = 0
    with path.open("rb") as lines, redis.Redis.from_url(url) as client:
        entries = map(decode, lines)
        while chunk := list(islice(entries, _ENTRIES_PER_CALL)):
            calls = client.pipeline(transaction=False)
            for entry in chunk:
                entry_id = entry.pop("id")
                calls.xadd(key, entry, id=entry_id)
            calls.execute()
            count += len(chunk)
    return count


class _Redis:
    def __init__(self, folder: Path, random: Random, budget: Budget, rate: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.agenda = Agenda()
        self._folder = folder
        self._random = random
        self._budget = budget
        self._crew = Crew(_WORKERS)
        self._mean_s = mean_run_s(rate, len(_WORKERS))
        self._files = {name: (folder / f"{name}{_SUFFIX}").open("wb") for name in ("mail", "render", "index")}
        self._last: dict[str, tuple[int, int]] = {}
        self._encode = msgspec.json.Encoder().encode
        self._number = self._lines = self._unknown = 0
        self._until_unknown = 10

    def add_job(self, at: int) -> None:
        random = self._random
        self._number += 1
        queue = _QUEUES.pick(random)
        job = f"{self._number:08x}-{random.getrandbits(32):08x}"
        # The queue for mail knows no concurrency keys.
        key = None if queue == "mail" else _KEYS.pick(random)
        self._tell(at, queue, Kind.QUEUED, job, 1, "client", None, key)
        dice = random.random()
        if dice < 0.01:
            self.agenda.add(at + SECOND, self._tell, queue, Kind.CANCELED, job, 1, "command line", "drained", key)
        else:
            self._run(at, queue, job, 1, key)
        if dice > 0.999:
            self._tell(at, queue, Kind.PAUSED, "", 1, "command line", None, None)
            pause = int(random.random() * HOUR)
            self.agenda.add(at + pause, self._tell, queue, Kind.RESUMED, "", 1, "command line", None, None)

    def _run(self, ready: int, queue: str, job: str, attempt: int, key: str | None) -> None:
        """Decide about one attempt, and about those that follow from it."""
        random, add = self._random, self.agenda.add
        start, end, worker = self._crew.take(ready, run_time(random, self._mean_s))
        add(start, self._tell, queue, Kind.STARTED, job, attempt, worker, None, key)
        dice = random.random()
        if dice < 0.015:
            stalled = end + 30 * SECOND
            add(stalled, self._tell, queue, Kind.STALLED, job, attempt, "sweeper", "the lease ran out", key)
            self._run(stalled, queue, job, attempt + 1, key)
        elif dice < 0.02:
            add(end, self._tell, queue, Kind.RELEASED, job, attempt, worker, "shutdown", key)
            self._run(end, queue, job, attempt + 1, key)
        elif dice < 0.09 and attempt < _MOST_ATTEMPTS:
            # The event names the attempt that it asks for.
            add(end, self._tell, queue, Kind.RETRIED, job, attempt + 1, worker, fault(random), key)
            self._run(end + SECOND * 2**attempt, queue, job, attempt + 1, key)
        elif dice < 0.12:
            add(end, self._tell, queue, Kind.FAILED, job, attempt, worker, fault(random), key)
        else:
            add(end, self._tell, queue, Kind.SUCCEEDED, job, attempt, worker, None, key)

    def _tell(
        self,
        at: int,
        queue: str,
        kind: str,
        item: str,
        attempt: int,
        actor: str,
        reason: str | None,
        key: str | None,
    ) -> None:
        entry = {"id": self._entry_id(queue, at // MS), "kind": str(kind), "item": item, "attempt": str(attempt)}
        if key is not None:
            entry["group"] = key
        entry["actor"] = actor
        if reason is not None:
            entry["reason"] = reason
        self._put(queue, entry)
        self._until_unknown -= 1
        if not self._until_unknown:
            self._until_unknown = int(self._random.expovariate(1 / _ENTRIES_PER_UNKNOWN)) + 1
            strange = {"id": self._entry_id(queue, at // MS), "kind": "defrosted", "item": item, "by": "another tool"}
            self._unknown += self._put(queue, strange)

    def _entry_id(self, queue: str, milliseconds: int) -> str:
        last, number = self._last.get(queue, (0, 0))
        # As Redis does it: of one millisecond by number, and never back.
        this = (milliseconds, 0) if milliseconds > last else (last, number + 1)
        self._last[queue] = this
        return f"{this[0]}-{this[1]}"

    def _put(self, queue: str, entry: dict[str, str]) -> bool:
        if not self._budget.take():
            return False
        self._lines += 1
        self._files[queue].write(self._encode(entry) + b"\n")
        return True

    def close(self) -> StreamCount:
        for file in self._files.values():
            file.close()
        return StreamCount(
            stream=STREAM,
            lines=self._lines,
            sound=self._lines - self._unknown,
            corrupt=self._unknown,
            duplicates=0,
            torn=0,
        )
