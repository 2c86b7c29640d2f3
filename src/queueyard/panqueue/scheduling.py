"""The verbs of schedules, as conversations: upsert, list, pause, resume, remove, and the step that fires what is due.

Between any two calls the one who makes them may die, and any number may do the same at once: the slot that is next is
moved only by the call that also adds its job, and only if it is still where the caller saw it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue import scripts
from queueyard.panqueue.errors import BadSchedule, UnknownSchedule
from queueyard.panqueue.schedules import Plan, Schedule, Standing, check_schedule, next_slot, plan, slot_id
from queueyard.panqueue.store import Ask, QueueStore, Talk

if TYPE_CHECKING:
    from queueyard.panqueue.wire import Reply, Word

_MOST = 1_000


class Due(msgspec.Struct, frozen=True):
    """What the server says about schedules at one moment."""

    now_ms: int
    #: milliseconds until the next slot; None: nothing is scheduled
    in_ms: int | None
    found: list[Standing]


class Fired(msgspec.Struct, frozen=True):
    """What one step of a scheduler did."""

    added: int
    #: milliseconds until there is something to do again; None: nothing is scheduled
    next_in_ms: int | None
    #: schedules that could not be fired, with the reason
    faults: list[str]


def put_schedule(store: QueueStore, schedule: Schedule) -> Talk[bool]:
    """Write a schedule down, or change it; whether that changed anything. BadSchedule.

    The next slot of an unchanged schedule stays where it is. A changed one goes on behind the newest slot that was
    dealt with, so that no moment is two jobs. What is paused stays paused.
    """
    check_schedule(schedule)
    while True:
        due: Due = yield _ask_due(store, only_due=False)
        before = _named(due, schedule.name)
        if before is not None and before.schedule == schedule:
            return False
        last_ms = None if before is None else before.last_ms
        next_ms = next_slot(schedule, max(due.now_ms, last_ms or 0))
        paused = before is not None and before.paused
        code: int = yield _ask_put(store, schedule, next_ms, last_ms, paused=paused)
        if code == 0:
            return True


def list_schedules(store: QueueStore) -> Talk[list[Standing]]:
    """All schedules of a queue, by the time of their next slot."""
    due: Due = yield _ask_due(store, only_due=False)
    return due.found


def pause_schedule(store: QueueStore, name: str, *, paused: bool) -> Talk[bool]:
    """Let a schedule rest, or go on with the first slot from now; whether that changed anything. UnknownSchedule."""
    while True:
        due: Due = yield _ask_due(store, only_due=False)
        before = _known(due, name, store)
        if before.paused == paused:
            return False
        next_ms = next_slot(before.schedule, max(due.now_ms, before.last_ms or 0))
        code: int = yield _ask_put(store, before.schedule, next_ms, before.last_ms, paused=paused)
        if code == 0:
            return True


def remove_schedule(store: QueueStore, name: str) -> Talk[None]:
    """Take a schedule away; jobs that it has added stay. UnknownSchedule."""
    while True:
        due: Due = yield _ask_due(store, only_due=False)
        before = _known(due, name, store)
        code: int = yield _ask_put(store, before.schedule, None, before.last_ms, paused=False, removing=True)
        if code != 1:
            return


def fire_due(store: QueueStore) -> Talk[Fired]:
    """Add the jobs of all slots that are due. Any number of schedulers may do this at once."""
    due: Due = yield _ask_due(store, only_due=True)
    added, faults = 0, []
    for standing in due.found:
        schedule, next_ms = standing.schedule, standing.next_ms
        if next_ms is None:
            continue
        planned = plan(schedule, next_ms, due.now_ms)
        code, count = yield _ask_fire(store, standing, next_ms, planned)
        added += count
        if code == 2:
            faults.append(f"schedule {schedule.name}: a keyed queue needs a key, and a queue in global mode takes none")
    if not due.found:
        return Fired(added, due.in_ms, faults)
    # There may be more of the same schedule, or of others; a fault is not worth a hurry.
    return Fired(added, 1_000 if faults else 0, faults)


def _named(due: Due, name: str) -> Standing | None:
    return next((one for one in due.found if one.schedule.name == name), None)


def _known(due: Due, name: str, store: QueueStore) -> Standing:
    found = _named(due, name)
    if found is None:
        raise UnknownSchedule(
            f"queue {store.queue_id} has no schedule {name}",
            hint=f"List them: panqueue schedules list {store.queue_id}",
        )
    return found


# --- calls -----------------------------------------------------------------------------------------------------------


def _ask_due(store: QueueStore, *, only_due: bool) -> Ask[Due]:
    return Ask(scripts.SCHEDULE_DUE, store.keys.of(scripts.SCHEDULE_DUE), [_MOST, int(only_due)], _read_due)


def _ask_put(
    store: QueueStore,
    schedule: Schedule,
    next_ms: int | None,
    last_ms: int | None,
    *,
    paused: bool,
    removing: bool = False,
) -> Ask[int]:
    text = "" if removing else msgspec.json.encode(schedule).decode()
    words: list[Word] = [schedule.name, text, _text(next_ms), int(paused), _text(last_ms)]
    keys = store.keys.of(scripts.SCHEDULE_PUT, schedule=store.keys["schedule"] + schedule.name)
    return Ask(scripts.SCHEDULE_PUT, keys, words, int)


def _ask_fire(store: QueueStore, standing: Standing, expected: int, planned: Plan) -> Ask[tuple[int, int]]:
    schedule = standing.schedule
    # A slot that is left out is dealt with, too.
    last = planned.slots[-1] if planned.slots else expected
    words: list[Word] = [
        *(store.keys["jobs"], store.queue_id, schedule.name, standing.revision, expected),
        *(_text(planned.next_ms), last, schedule.payload, schedule.key or "", schedule.retries, schedule.max_stalls),
        *(schedule.opts, schedule.priority),
        *(slot_id(schedule.name, slot) for slot in planned.slots),
    ]
    keys = store.keys.of(scripts.SCHEDULE_FIRE, schedule=store.keys["schedule"] + schedule.name)
    return Ask(scripts.SCHEDULE_FIRE, keys, words, lambda reply: (reply[0], reply[1]))


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def _read_due(reply: Reply) -> Due:
    now, in_ms, flat = reply
    items = iter(flat)
    standings = [_standing(name, next(items)) for name in items]
    return Due(now, in_ms if in_ms >= 0 else None, [one for one in standings if one is not None])


def _standing(name: bytes, fields: list[bytes | None]) -> Standing | None:
    spec, next_ms, last_ms, paused, fired, revision = fields
    if spec is None:
        # It was removed between two calls of somebody else's hands.
        return None
    try:
        schedule = msgspec.json.decode(spec, type=Schedule)
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise BadSchedule(
            f"schedule {name.decode('utf-8', 'replace')} cannot be understood: {fault}",
            hint="It was written by a newer version, or by hand: remove it.",
        ) from fault
    return Standing(
        schedule=schedule,
        next_ms=int(next_ms) if next_ms and paused != b"1" else None,
        last_ms=int(last_ms) if last_ms else None,
        paused=paused == b"1",
        fired=int(fired or 0),
        revision=int(revision or 0),
    )
