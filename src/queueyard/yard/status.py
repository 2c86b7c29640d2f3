"""How every place of the yard is doing, at one glance.

A place that cannot be looked at is a finding, never an exception, and one that does not answer delays nobody: all are
looked at at the same time, and whoever is late is told to be.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from msgspec.structs import replace

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import System
from queueyard.yard.places import shown
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from queueyard.yard.places import Place, Yard

__all__ = ["Glance", "glance", "glances"]

#: a place that takes longer to answer is told to be late
PATIENCE_S = 3.0


def glance(place: Place) -> Glance:
    """One place, now. Never raises for a bad one: `problem` says what is wrong with it."""
    if place.is_folder and not Path(place.at).is_dir():
        return _unseen(place, f"no such folder. Type: queueyard remove {place.system} {place.at}")
    try:
        return replace(_look_of(place.system)(place.at, SYSTEM_CLOCK.now()), at=shown(place))
    except QueueyardError as fault:
        return _unseen(place, f"{fault}. {fault.hint}" if fault.hint else str(fault))
    except OSError as fault:
        return _unseen(place, str(fault))


def glances(yard: Yard) -> list[Glance]:
    """All places at the same time, in their order."""
    # Nobody waits for these threads, not even the end of the process.
    answers: list[Glance | None] = [None] * len(yard.places)

    def look(number: int, place: Place) -> None:
        answers[number] = glance(place)

    threads = [Thread(target=look, args=pair, daemon=True) for pair in enumerate(yard.places)]
    for thread in threads:
        thread.start()
    deadline = SYSTEM_CLOCK.monotonic() + PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, deadline - SYSTEM_CLOCK.monotonic()))
    late = f"no answer within {PATIENCE_S:g} s. Look again: queueyard status"
    return [answer or _unseen(place, late) for answer, place in zip(answers, yard.places, strict=True)]


def _unseen(place: Place, problem: str) -> Glance:
    health = "not there" if place.is_folder else "not reachable"
    return Glance(system=place.system, at=shown(place), health=health, is_well=False, problem=problem)


def _look_of(system: System) -> Callable[[str, datetime], Glance]:
    """The glance of a system; only its own modules are imported."""
    match system:
        case System.QUEEN:
            from queueyard.yard.glances import queen  # noqa: PLC0415

            return queen.glance
        case System.RUNFORGE:
            from queueyard.yard.glances import runforge  # noqa: PLC0415

            return runforge.glance
        case System.PANQUEUE:
            from queueyard.yard.glances import panqueue  # noqa: PLC0415

            return panqueue.glance
        case System.JJQ:
            from queueyard.yard.glances import jjq  # noqa: PLC0415

            return jjq.glance
        case System.OPS:
            from queueyard.yard.glances import ops  # noqa: PLC0415

            return ops.glance
