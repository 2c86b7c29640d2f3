"""Everything about the generated histories that is left to chance, and nothing that asks a clock.

Times are microseconds since 1970. All chance comes from one `random.Random` per system, so that the same seed always
gives the same bytes.
"""

from __future__ import annotations

from bisect import bisect
from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from queueyard.kernel.clock import to_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

_T = TypeVar("_T")

MS, SECOND, MINUTE, HOUR, DAY = 1_000, 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: every history begins here, on a Monday
START = (datetime(2026, 3, 2, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)

#: a short history is stretched to this, so that there are hours and days to count by
_SHORTEST_SPAN_S = 3 * 86_400
#: a long one is not denser than this, so that the number of open items does not grow with it
_MOST_PER_SECOND = 1.5

#: how busy each hour of the day is, 1 on average
_BY_HOUR = tuple(
    weight * 24 / 246 for weight in (2, 1, 1, 1, 1, 2, 4, 8, 14, 20, 21, 19, 14, 17, 21, 21, 19, 16, 12, 9, 8, 7, 5, 3)
)
_WEEKEND = 0.4
#: shares of the arrivals that bring a whole burst, and of the items whose machine has a clock in the future
_BURSTY, _SKEWED = 0.01, 0.003


def moment(at: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


_seconds: dict[int, str] = {}
_MOST_SECONDS = 10_000


def text(at: int) -> str:
    """As `to_rfc3339` writes it."""
    second, microseconds = divmod(at, SECOND)
    return f"{_second(second)}.{microseconds:06d}".rstrip("0") + "Z" if microseconds else f"{_second(second)}Z"


def local_text(at: int) -> str:
    """As a machine whose zone is UTC writes its local time; the zone is named, so that every machine agrees."""
    second, microseconds = divmod(at, SECOND)
    return f"{_second(second)}.{microseconds:06d}+00:00"


def _second(second: int) -> str:
    # Most times share their second with others, and writing it is the dear part.
    known = _seconds.get(second)
    if known is None:
        if len(_seconds) >= _MOST_SECONDS:
            _seconds.clear()
        known = _seconds[second] = to_rfc3339(moment(second * SECOND)).removesuffix("Z")
    return known


def per_second(items: float, *, most: float = _MOST_PER_SECOND) -> float:
    """How many items arrive per second on average, for a history of so many."""
    return min(most, max(1.0, items) / _SHORTEST_SPAN_S)


def arrivals(random: Random, rate: float) -> Iterator[int]:
    """When items arrive: busier by day than by night, and now and then many at once. Never ends."""
    at = START
    while True:
        busy = _BY_HOUR[at // HOUR % 24] * (_WEEKEND if (at // DAY + 3) % 7 > 4 else 1.0)
        at += int(random.expovariate(rate * busy) * SECOND) + 1
        yield at
        if random.random() < _BURSTY:
            for _ in range(min(200, int(5 * random.paretovariate(1.1)))):
                at += int(random.expovariate(20.0) * SECOND) + 1
                yield at


def run_time(random: Random, mean_s: float) -> int:
    """How long something takes: mostly about the mean, sometimes twenty times as long."""
    if random.random() < 0.02:
        return int(min(50.0, 5.0 * random.paretovariate(1.2)) * mean_s * SECOND)
    return int(random.lognormvariate(-0.5, 1.0) * mean_s * SECOND) + MS


def clock_error(random: Random, number: int) -> int:
    """How far the clock of the machine of the `number`th item is ahead: for a few by more than a year.

    The third one always is, so that also the shortest history has one.
    """
    is_ahead = random.random() < _SKEWED or number == 3
    return int(random.uniform(400, 900) * DAY) if is_ahead else 0


class Skewed(Generic[_T]):
    """A choice in which the first one is taken far more often than the last."""

    def __init__(self, choices: Sequence[_T], *, by: float = 1.2) -> None:
        self._choices = choices
        self._weights = list(accumulate(1.0 / place**by for place in range(1, len(choices) + 1)))

    def pick(self, random: Random) -> _T:
        return self._choices[bisect(self._weights, random.random() * self._weights[-1], hi=len(self._choices) - 1)]


class Crew:
    """Workers that take what arrived first; whoever is free earliest takes it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._free = [(START, name) for name in names]
        heapify(self._free)

    def take(self, ready: int, length: int) -> tuple[int, int, str]:
        """(start, end, who) of work that is ready at a time and takes so long."""
        free, name = self._free[0]
        start = max(ready, free) + 5 * MS
        heapreplace(self._free, (start + length, name))
        return start, start + length, name


def mean_run_s(rate: float, workers: int) -> float:
    """Mean length of a run so that the workers are busy most of the time, and never for long behind."""
    return min(90.0, 0.3 * workers / rate)


class Agenda:
    """What is still to happen, in the order of time."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._added = 0

    def add(self, at: int, step: Callable[..., None], *arguments: Any) -> None:
        """`step(at, *arguments)` happens at its time; of two at one time, the one that was added first."""
        self._added += 1
        heappush(self._waiting, (at, self._added, step, arguments))

    def run_until(self, at: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= at:
            due, _, step, arguments = heappop(waiting)
            step(due, *arguments)


_FAULTS = (
    "exit code {n}",
    "CUDA out of memory. Tried to allocate {n} MiB",
    "ConnectionResetError: [Errno 104] Connection reset by peer (10.0.{n}.7:6379)",
    "timed out after {n} s",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/part-{n:05d}.parquet'",
    "loss is nan at step {n}",
    "ValueError: could not convert string to float: 'größe {n}'",
    'Traceback (most recent call last):\n  File "train.py", line {n}, in <module>\nKeyError: "label"',
    "killed by signal 9",
    "HTTP 503 from http://127.0.0.1:{n}/predict",
)
_SKEWED_FAULTS = Skewed(_FAULTS, by=0.8)


def fault(random: Random) -> str:
    """Why something failed: few causes, in many wordings."""
    return _SKEWED_FAULTS.pick(random).format(n=random.randint(1, 9_999))
