"""The shared events of all places, merged by time: what there is, and what comes.

Each place is read in a thread of its own, so that a server which does not answer keeps nobody waiting. Events that come
within one look are in the order of their times; what a place tells late comes late. Each event comes once, however
often its place is read anew.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from queueyard.kernel.clock import SYSTEM_CLOCK, BadTime, from_rfc3339
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import Event, System
from queueyard.yard.places import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from queueyard.yard.places import Place

_LOOK_EVERY_S = 0.2
_LOOK_AFTER_A_FAULT_S = 1.0
#: events that arrive so close together are put into the order of their times
_GATHER_S = 0.05
#: how long the history of a place may take to be read
PATIENCE_S = 30.0
#: so many ids are remembered; a file that is read anew may be longer, and then tells its oldest events again
_MOST_REMEMBERED = 500_000


class Tail(Protocol):
    """The events of one place."""

    def read(self) -> Iterator[Event]:
        """What came since the last call. QueueyardError if the place cannot be read now, or not on."""


def open_tail(place: Place, note: Callable[[str], None]) -> Tail:
    """The tail of a place. QueueyardError if its address makes no sense."""
    match place.system:
        case System.QUEEN:
            from queueyard.yard.tails.queen import QueenTail  # noqa: PLC0415

            return QueenTail(place.at)
        case System.PANQUEUE:
            from queueyard.yard.tails.panqueue import PanqueueTail  # noqa: PLC0415

            return PanqueueTail(place.at, shown(place), note)
        case System.OPS:
            from queueyard.yard.tails.ops import OpsFolderTail, OpsServerTail  # noqa: PLC0415

            return OpsFolderTail(place.at) if place.is_folder else OpsServerTail(place.at)
        case System.RUNFORGE | System.JJQ:
            from queueyard.yard.tails.files import JournalTail  # noqa: PLC0415

            journal = _journal_of(place)
            return JournalTail(lambda: [journal])


def _journal_of(place: Place) -> Path:
    if place.system is System.RUNFORGE:
        from queueyard.runforge.workspace import Workspace  # noqa: PLC0415

        return Workspace(Path(place.at)).events
    from queueyard.jjq.home import find_home  # noqa: PLC0415

    return find_home(Path(place.at)).journal


class Listening:
    """All places of a yard, listened to from the moment this is made."""

    def __init__(self, places: Iterable[Place], *, note: Callable[[str], None], follow: bool = False) -> None:
        """`note` gets what a person should know: a place that cannot be read, a queue that tells nothing."""
        self._note = note
        self._follow = follow
        self._arrivals: SimpleQueue[tuple[Place, list[Event]]] = SimpleQueue()
        self._silent = list(places)
        #: in the order of their arrival
        self._seen: dict[str, None] = {}
        for place in self._silent:
            # Nobody waits for these threads, not even the end of the process.
            Thread(target=self._listen, args=(place,), daemon=True).start()

    def history(self) -> list[Event]:
        """What there is, oldest first. A place that takes too long is told, and left for later."""
        deadline = SYSTEM_CLOCK.monotonic() + PATIENCE_S
        events: list[Event] = []
        while self._silent:
            try:
                place, new = self._arrivals.get(timeout=max(0.0, deadline - SYSTEM_CLOCK.monotonic()))
            except Empty:
                for late in self._silent:
                    self._note(f"{late.system} {shown(late)}: no answer within {PATIENCE_S:g} s")
                break
            if place in self._silent:
                self._silent.remove(place)
            events += new
        return self._in_order(events)

    def live(self) -> Iterator[list[Event]]:
        """What comes, for ever; each time at least one event."""
        while True:
            _, events = self._arrivals.get()
            deadline = SYSTEM_CLOCK.monotonic() + _GATHER_S
            while (left := deadline - SYSTEM_CLOCK.monotonic()) > 0:
                try:
                    events += self._arrivals.get(timeout=left)[1]
                except Empty:
                    break
            if ordered := self._in_order(events):
                yield ordered

    def _in_order(self, events: Iterable[Event]) -> list[Event]:
        new = {event.id: event for event in events if event.id not in self._seen}
        self._seen |= dict.fromkeys(new)
        while len(self._seen) > _MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return sorted(new.values(), key=lambda event: (_moment(event), event.id))

    def _listen(self, place: Place) -> None:
        """Runs in a thread of its own."""
        tail: Tail | None = None
        fault_told = ""
        while True:
            pause_s = _LOOK_EVERY_S
            new: list[Event] = []
            try:
                tail = tail or open_tail(place, self._note)
                for event in tail.read():
                    new.append(event)  # noqa: PERF402  what came before a fault must not be lost with it
                if fault_told:
                    self._note(f"{place.system} {shown(place)}: it can be read again")
                fault_told = ""
            except (QueueyardError, OSError) as fault:
                if not fault_told:
                    fault_told = str(fault)
                    self._note(f"{place.system} {shown(place)}: {fault_told}")
                pause_s = _LOOK_AFTER_A_FAULT_S
            self._arrivals.put((place, new))
            if not self._follow:
                return
            SYSTEM_CLOCK.sleep(pause_s)


def since(events: Sequence[Event], moment: datetime | None, limit: int | None) -> list[Event]:
    """Those that happened since, and of these the latest so many."""
    recent = [event for event in events if moment is None or _moment(event) >= moment]
    return recent if limit is None else recent[max(0, len(recent) - limit) :]


def _moment(event: Event) -> datetime:
    """When it happened; for a time that cannot be read, before everything else."""
    try:
        return from_rfc3339(event.at)
    except BadTime:
        return datetime.min.replace(tzinfo=UTC)
