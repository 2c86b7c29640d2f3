"""When repeated jobs are due: cron lines with time zones and fixed intervals, as pure functions of a given time.

A slot is a moment at which a job is due; its id follows from the schedule and the moment, so that the same slot is
never two jobs. Cron lines follow the clock of their zone by the rules of Debian's cron: at the end of summer time a
fixed hour runs once and a wildcard goes on through both hours; at its beginning a fixed time that the clock leaps over
runs at the moment of the leap.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.panqueue.errors import BadSchedule
from queueyard.panqueue.rules import check_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cronsim import CronSim

LEAST_EVERY_MS = 100
#: one call adds no more slots than this; the next call goes on
MOST_SLOTS_PER_CALL = 100
DEFAULT_GRACE_MS = 60_000


class CatchUp(StrEnum):
    """What happens to slots that passed while no scheduler ran."""

    #: they are left out; only a slot that is no older than the grace period runs
    SKIP = "skip"
    #: one job for all of them, the newest
    ONCE = "once"
    #: one job for each, oldest first
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A repeated job. Stored as JSON; equal texts are equal schedules."""

    #: unique within its queue
    name: str
    #: five fields, or six with seconds at the front; None where `every_ms` is given
    cron: str | None = None
    #: the zone whose clock the cron line follows
    tz: str = "UTC"
    #: milliseconds between slots, counted from 1970; None where `cron` is given
    every_ms: int | None = None
    catch_up: CatchUp = CatchUp.ONCE
    #: with skip: how late a slot may still run, milliseconds
    grace_ms: int = DEFAULT_GRACE_MS
    #: compact JSON text of each job's payload
    payload: str = "null"
    key: str | None = None
    retries: int = 0
    max_stalls: int = 5
    #: JSON text as in a job's field of that name
    opts: str = ""
    priority: int = 0


class Plan(msgspec.Struct, frozen=True):
    """What one step of the scheduler does for one schedule."""

    #: moments to add jobs for, milliseconds since 1970
    slots: list[int]
    #: the first slot that is not dealt with; None if there will be none
    next_ms: int | None


class Standing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it stands on the server."""

    schedule: Schedule
    #: the next slot, milliseconds since 1970; None: paused, or never again
    next_ms: int | None
    #: the newest slot that was dealt with
    last_ms: int | None
    paused: bool
    #: jobs that it has added
    fired: int
    #: how often it was written down
    revision: int


def check_schedule(schedule: Schedule) -> Schedule:
    """The schedule itself. BadSchedule names what is wrong and what to write instead."""
    if not schedule.name or len(schedule.name.encode()) > 200 or not schedule.name.isprintable():
        raise BadSchedule(f"not a name for a schedule: {schedule.name!r}", hint="Use a short text, such as nightly.")
    if (schedule.cron is None) == (schedule.every_ms is None):
        raise BadSchedule(
            f"schedule {schedule.name} needs a cron line or an interval, one of the two",
            hint="For example: --cron '0 3 * * *' or --every 10m",
        )
    if schedule.every_ms is not None and schedule.every_ms < LEAST_EVERY_MS:
        raise BadSchedule(
            f"schedule {schedule.name}: every {schedule.every_ms} ms is too often",
            hint=f"At least {LEAST_EVERY_MS} ms; a worker that never sleeps is better for more.",
        )
    _zone(schedule.tz)
    if schedule.cron is not None and next_slot(schedule, 0) is None:
        raise BadSchedule(f"cron line {schedule.cron!r} names a day that never comes", hint="Try: 0 3 * * *")
    if schedule.key is not None:
        check_key(schedule.key)
    return schedule


def next_slot(schedule: Schedule, after_ms: int) -> int | None:
    """The first slot behind a moment; None if there is none."""
    return next(_slots(schedule, after_ms), None)


def plan(schedule: Schedule, next_ms: int, now_ms: int) -> Plan:
    """Which slots from `next_ms` on are to be jobs now, and where to go on."""
    if next_ms > now_ms:
        return Plan([], next_ms)
    if schedule.catch_up is CatchUp.ALL:
        coming = [next_ms, *islice(_slots(schedule, next_ms), MOST_SLOTS_PER_CALL)]
        due = [slot for slot in coming if slot <= now_ms][:MOST_SLOTS_PER_CALL]
        return Plan(due, coming[len(due)] if len(due) < len(coming) else None)
    newest = max(next_ms, _newest_slot(schedule, now_ms))
    is_late = schedule.catch_up is CatchUp.SKIP and now_ms - newest > schedule.grace_ms
    return Plan([] if is_late else [newest], next_slot(schedule, newest))


def slot_id(name: str, slot_ms: int) -> str:
    """The id of the job of one slot: the same for every scheduler that comes to it."""
    return f"{name}@{slot_text(slot_ms)}"


def slot_text(slot_ms: int) -> str:
    """A slot as it stands in ids and lists: RFC 3339 in UTC."""
    return to_rfc3339(_moment(slot_ms))


def upcoming(schedule: Schedule, after_ms: int, count: int) -> list[datetime]:
    """The next slots behind a moment, in the schedule's zone, for people."""
    zone = _zone(schedule.tz)
    return [_moment(slot).astimezone(zone) for slot in islice(_slots(schedule, after_ms), count)]


def _slots(schedule: Schedule, after_ms: int) -> Iterator[int]:
    if schedule.every_ms is not None:
        slot = after_ms // schedule.every_ms * schedule.every_ms
        while True:
            slot += schedule.every_ms
            yield slot
    yield from map(_ms, _cron(schedule, after_ms))


def _newest_slot(schedule: Schedule, now_ms: int) -> int:
    if schedule.every_ms is not None:
        return now_ms // schedule.every_ms * schedule.every_ms
    # Backwards from just behind now, so that a slot that is due at this very moment counts.
    return next(map(_ms, _cron(schedule, now_ms + 1, backwards=True)), 0)


def _cron(schedule: Schedule, from_ms: int, *, backwards: bool = False) -> CronSim:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415  an extra, and most queues have no schedules

    moment = _moment(from_ms).astimezone(_zone(schedule.tz))
    try:
        return CronSim(schedule.cron or "", moment, reverse=backwards)
    except CronSimError as fault:
        raise BadSchedule(
            f"not a cron line: {schedule.cron!r} ({fault})",
            hint="Five fields: minute hour day month weekday, such as '0 3 * * 1-5'.",
        ) from fault


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        # Also where the machine has no time zone data.
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as fault:
        raise BadSchedule(f"no such time zone: {name!r}", hint="Use a name such as Europe/Berlin or UTC.") from fault


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000)
