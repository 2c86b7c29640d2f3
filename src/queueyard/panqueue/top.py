"""The live view of `panqueue top` as text: queues, how fast they move, and what runs now. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.panqueue.records import Counts, JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BAR = 20


class Moment(msgspec.Struct, frozen=True):
    """What was seen at one time."""

    #: seconds on any clock that only goes forward
    at: float
    #: milliseconds since 1970 on the server's clock
    now_ms: int
    queues: list[Counts]
    active: list[JobRecord]


def screen(before: Moment | None, now: Moment, *, width: int, height: int) -> list[str]:
    """The lines of one screen, none longer than `width`, no more than `height`."""
    earlier = {} if before is None else {one.queue: one for one in before.queues}
    seconds = 0.0 if before is None else now.at - before.at
    lines = [
        _summary(now.queues),
        "",
        f"{'QUEUE':<24} {'WAITING':>9} {'CHANGE/S':>9} {'ACTIVE':>7} {'DELAYED':>8} {'HELD':>6} {'FAILED':>7}  OLDEST",
        *(_queue_line(one, earlier, seconds) for one in now.queues),
        "",
        f"{'JOB':<38} {'QUEUE':<18} {'RUNS':>4} {'FOR':>8}  PROGRESS",
        *(_job_line(one, now.now_ms) for one in now.active),
    ]
    return [line[:width].rstrip() for line in lines[:height]]


def _summary(queues: Sequence[Counts]) -> str:
    states = ("waiting", "active", "failed")
    totals = (f"{sum(getattr(one, state) for one in queues)} {state}" for state in states)
    return f"{len(queues)} queues, {', '.join(totals)}"


def _queue_line(one: Counts, earlier: Mapping[str, Counts], seconds: float) -> str:
    before = earlier.get(one.queue)
    change = f"{(one.waiting - before.waiting) / seconds:+.0f}" if before is not None and seconds > 0 else "-"
    oldest = "-" if one.oldest_ms is None else _seconds(one.oldest_ms / 1_000)
    notes = "  paused" if one.paused else ""
    return (
        f"{one.queue[:24]:<24} {one.waiting:>9} {change:>9} {one.active:>7} {one.delayed:>8} {one.held:>6} "
        f"{one.failed:>7}  {oldest}{notes}"
    )


def _job_line(job: JobRecord, now_ms: int) -> str:
    runs_for = "-" if job.last_started_at is None else _seconds(max(0, now_ms - job.last_started_at) / 1_000)
    return f"{job.id[:38]:<38} {job.queue_id[:18]:<18} {job.runs:>4} {runs_for:>8}  {progress_text(job.progress)}"


def progress_text(progress: str | None) -> str:
    """A bar for a share from 0 to 1 or a percentage, else the value itself."""
    if progress is None:
        return ""
    try:
        value = msgspec.json.decode(progress)
    except msgspec.DecodeError:
        return progress
    if isinstance(value, bool) or not isinstance(value, int | float):
        return progress
    share = value if isinstance(value, float) and 0 <= value <= 1 else value / 100
    if not 0 <= share <= 1:
        return progress
    filled = round(share * _BAR)
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {share:.0%}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds < 100 else f"{seconds / 60:.0f}m"


def as_json(moment: Moment) -> dict[str, Sequence[object]]:
    """The same for programs."""
    return {"queues": moment.queues, "active": moment.active}
