"""A merge queue of one repository: pushes, checks, landings, and everything that goes wrong on the way.

jjq/.jj/repo/jjq/journal.jsonl
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.jjq.events import Teller
from queueyard.jjq.records import CheckResult, Commit, Failure, Merge, Reason
from queueyard.pipeline.generator.chance import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    Agenda,
    Crew,
    arrivals,
    clock_error,
    mean_run_s,
    moment,
    per_second,
    run_time,
    text,
)
from queueyard.pipeline.generator.writing import OF_A_JOURNAL, Budget, Stream, StreamCount

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path
    from random import Random

    from queueyard.kernel.events import Event

STREAM = "jjq.events"
SOURCE = "/srv/generated/jjq"
_LINES_PER_ITEM = 3.5
_RUNNERS = ("runner-1", "runner-2", "runner-3", "runner-4")
_SUBJECTS = (
    "fix: off by one",
    "feat: größere Tabellen",
    "docs: how to land",
    "test: the empty queue",
    "chore: tidy up",
)
_PATHS = ("src/app.py", "src/queue/state.py", "README.md", "docs/guide.md", "pyproject.toml")
_CHANGE_LETTERS = str.maketrans("0123456789abcdef", "zyxwvutsrqponmlk")


def write(folder: Path, lines: int, random: Random) -> list[StreamCount]:
    budget = Budget(lines)
    path = folder / "jjq" / ".jj" / "repo" / "jjq" / "journal.jsonl"
    stream = Stream(STREAM, path, random=random, budget=budget, flaws=OF_A_JOURNAL)
    rate = per_second(lines / _LINES_PER_ITEM)
    queue = _MergeQueue(stream, random, rate)
    for at in arrivals(random, rate):
        queue.agenda.run_until(at)
        if budget.left <= 0:
            break
        queue.push(at)
    return [stream.close()]


class _MergeQueue:
    def __init__(self, stream: Stream, random: Random, rate: float) -> None:
        self.agenda = Agenda()
        self._stream = stream
        self._random = random
        self._crew = Crew(_RUNNERS)
        self._mean_s = mean_run_s(rate, len(_RUNNERS))
        self._clock = START
        self._teller = Teller(source=SOURCE, queue="main", now=self._now, actor="jjq/4711")
        self._encode = msgspec.json.Encoder().encode
        self._number = 0

    def push(self, at: int) -> None:
        self._enter(at, self._commit(), error=clock_error(self._random, self._number + 1))

    def _enter(self, at: int, candidate: Commit, *, error: int) -> int:
        """A candidate gets a number, and its whole way is decided."""
        self._number = number = self._number + 1
        self._tell(at, error, self._teller.queued, number, candidate)
        if self._random.random() < 0.03:
            self.agenda.add(at + MINUTE, self._delete, error, number, candidate, True)
        else:
            self._check(at, number, candidate, attempt=1, error=error)
        return number

    def _check(self, ready: int, number: int, candidate: Commit, *, attempt: int, error: int) -> None:
        random = self._random
        start, end, _ = self._crew.take(ready, run_time(random, self._mean_s))
        merge = Merge(id=number, base=self._commit(), candidate=candidate, commit=self._commit())
        self.agenda.add(start, self._start, error, merge, attempt)
        dice = random.random()
        duration_ms = (end - start) // 1000
        check = CheckResult(passed=True, exit_code=0, duration_ms=duration_ms, tries=2 if dice > 0.97 else 1)
        if dice < 0.08 and attempt < 4:
            self.agenda.add(end, self._waste, error, merge, attempt, duration_ms)
            self._check(end + SECOND, number, candidate, attempt=attempt + 1, error=error)
        elif dice < 0.10 and attempt < 4:
            self.agenda.add(end, self._stall, error, number)
            self._check(end + MINUTE, number, candidate, attempt=attempt + 1, error=error)
        elif dice < 0.24:
            self.agenda.add(end, self._fail, error, merge, attempt, duration_ms)
        else:
            self.agenda.add(end, self._land, error, merge, attempt, check)

    # --- steps, each at its time -------------------------------------------------------------------------------------

    def _start(self, at: int, error: int, merge: Merge, attempt: int) -> None:
        self._clock = at + error
        self._write(self._teller.started(merge, attempt=attempt))

    def _waste(self, at: int, error: int, merge: Merge, attempt: int, duration_ms: int) -> None:
        self._clock = at + error
        why = self._random.choice(("trunk moved", "the item before it failed"))
        self._write(self._teller.wasted(merge, attempt=attempt, why=why, duration_ms=duration_ms))

    def _stall(self, at: int, error: int, number: int) -> None:
        self._tell(at, error, self._teller.stalled, number)

    def _land(self, at: int, error: int, merge: Merge, attempt: int, check: CheckResult) -> None:
        self._clock = at + error
        self._write(self._teller.landed(merge.id, merge.commit, check, attempt=attempt))

    def _fail(self, at: int, error: int, merge: Merge, attempt: int, duration_ms: int) -> None:
        random = self._random
        self._clock = at + error
        reason = random.choice((Reason.CHECK, Reason.CHECK, Reason.CONFLICTS, Reason.TIMEOUT))
        conflicts = tuple(random.sample(_PATHS, 2)) if reason is Reason.CONFLICTS else ()
        failure = Failure(
            id=merge.id,
            reason=reason,
            at=text(self._clock),
            candidate=merge.candidate,
            trunk_commit_id=merge.base.commit_id,
            merge_commit_id=merge.commit.commit_id,
            conflict_paths=conflicts,
        )
        timed_out = reason is Reason.TIMEOUT
        check = CheckResult(
            passed=False, exit_code=-9 if timed_out else 1, duration_ms=duration_ms, timed_out=timed_out
        )
        self._write(self._teller.failed(failure, None if conflicts else check, attempt=attempt))
        dice = random.random()
        if dice < 0.5:
            self.agenda.add(at + int(random.expovariate(1.0) * HOUR), self._requeue, error, merge)
        elif dice < 0.7:
            self.agenda.add(at + int(random.random() * DAY), self._delete, error, merge.id, merge.candidate, False)

    def _requeue(self, at: int, error: int, merge: Merge) -> None:
        self._tell(at, error, self._teller.requeued, merge.id, self._number + 1, merge.candidate)
        self._enter(at, merge.candidate, error=error)

    def _delete(self, at: int, error: int, number: int, commit: Commit, queued: bool) -> None:
        self._clock = at + error
        self._write(self._teller.deleted(number, commit, queued=queued))

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _tell(self, at: int, error: int, telling: Callable[..., Event], *arguments: Any) -> None:
        self._clock = at + error
        self._write(telling(*arguments))

    def _write(self, event: Event) -> None:
        self._stream.write(self._encode(event))

    def _now(self) -> datetime:
        return moment(self._clock)

    def _commit(self) -> Commit:
        bits = f"{self._random.getrandbits(288):072x}"
        change = bits[40:].translate(_CHANGE_LETTERS)
        return Commit(commit_id=bits[:40], change_id=change, description=self._random.choice(_SUBJECTS) + "\n")
