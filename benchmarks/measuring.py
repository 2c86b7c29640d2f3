"""How every benchmark here measures and prints.

Candidates take turns, round after round, so that a slow minute of the machine hits all of them; what counts is the
median, and the ratio between candidates of the same run. A figure with a target says whether it was reached.
"""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MISSED: list[str] = []


def interleaved(candidates: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """Median seconds of each candidate, all of them called once per round."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            taken[name].append(seconds(run))
    return {name: statistics.median(times) for name, times in taken.items()}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def report(what: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None) -> None:
    """One line: what, how much, and whether the target was reached."""
    target = ""
    if at_most is not None or at_least is not None:
        reached = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
        bound = f"at most {at_most:g}" if at_most is not None else f"at least {at_least:g}"
        target = f"   {'ok' if reached else 'MISSED'}: {bound} {unit}"
        if not reached:
            _MISSED.append(what)
    print(f"{what:<64} {value:>12,.3f} {unit}{target}", flush=True)


def finish() -> None:
    """Leave with 1 if a target was missed."""
    if _MISSED:
        sys.exit(f"missed: {', '.join(_MISSED)}")
