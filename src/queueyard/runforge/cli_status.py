"""How `queue-status` looks: the daemon, a line per group with its progress, and what failed."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import format_duration
from queueyard.kernel.output import Output
from queueyard.runforge.records import JobState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queueyard.runforge.calls import Call
    from queueyard.runforge.records import Job
    from queueyard.runforge.status import GroupStatus, Status

_BAR = 10
_LOOK_EVERY_S = 0.25
_REDRAW_EVERY_S = 2.0
_ENTER, _LEAVE, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"


def show_status(call: Call, *, with_jobs: bool) -> None:
    """Once."""
    told = call.forge.status()
    jobs = call.forge.jobs() if with_jobs else []
    if call.as_json:
        call.out.data(_as_json(told, jobs if with_jobs else None))
    else:
        _draw(call.out, told, jobs)


def watch_status(call: Call, *, with_jobs: bool) -> None:
    """Again whenever something changed, until Ctrl-C; in place on a terminal, else one view after the other."""
    in_place = sys.stdout.isatty() and not call.as_json
    clock = call.forge.clock
    shown: tuple[Status, Sequence[Job]] | None = None
    drawn_at_s = float("-inf")
    if in_place:
        sys.stdout.write(_ENTER)
    try:
        while True:
            told = call.forge.status()
            jobs = call.forge.jobs() if with_jobs else []
            view = without_heartbeat(told), jobs
            if view != shown or (in_place and clock.monotonic() >= drawn_at_s + _REDRAW_EVERY_S):
                shown, drawn_at_s = view, clock.monotonic()
                sys.stdout.write(_line(told, jobs) if call.as_json else _page(told, jobs, in_place=in_place))
                sys.stdout.flush()
            clock.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return
    finally:
        if in_place:
            sys.stdout.write(_LEAVE)


def without_heartbeat(told: Status) -> Status:
    """The heart beats all the time; a view differs where something happened."""
    return msgspec.structs.replace(told, daemon=msgspec.structs.replace(told.daemon, last_heartbeat=None))


def _line(told: Status, jobs: Sequence[Job]) -> str:
    return msgspec.json.encode(_as_json(told, jobs)).decode() + "\n"


def _page(told: Status, jobs: Sequence[Job], *, in_place: bool) -> str:
    page = StringIO()
    _draw(Output(stdout=page), told, jobs)
    if not in_place:
        return page.getvalue() + "\n"
    size = shutil.get_terminal_size()
    return _HOME + "\n".join(line[: size.columns] for line in page.getvalue().splitlines()[: size.lines - 1])


def _as_json(told: Status, jobs: Sequence[Job] | None) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(told)
    return plain if jobs is None else plain | {"job_list": msgspec.to_builtins(jobs)}


def _draw(out: Output, told: Status, jobs: Sequence[Job]) -> None:
    counts = ", ".join(f"{told.jobs[state]} {state}" for state in JobState if told.jobs[state]) or "none"
    out.text(f"Daemon  {_daemon_line(told)}")
    eta = f"; about {_span(told.eta_s)} to go" if told.eta_s is not None else ""
    out.text(f"Jobs    {told.total_jobs} ({counts}){eta}")
    if told.groups:
        out.text()
        columns = ("GROUP", "PROGRESS", "DONE", "RUNNING", "FAILED", "CANCELED", "TO GO", "")
        out.table(columns, [_group_row(one) for one in told.groups])
    failures = [(group, one) for group in told.groups for one in group.failures]
    if failures:
        out.text()
        out.table(("FAILED RUN", "WHY"), [(one["run_id"], _last_line(one["error"])) for _, one in failures])
    if jobs:
        out.text()
        rows = [(job.job_id, job.run_id, job.state, job.attempt, job.priority, _last_line(job.error)) for job in jobs]
        out.table(("JOB", "RUN", "STATE", "ATTEMPT", "PRIORITY", "ERROR"), rows)


def _daemon_line(told: Status) -> str:
    daemon = told.daemon
    if daemon.state == "none":
        return "not running; start it: runforge-cli daemon"
    if daemon.state == "dead":
        return f"died (pid {daemon.pid}, last heard {daemon.last_heartbeat}); start it: runforge-cli daemon"
    if daemon.state in {"stopped", "unknown"}:
        return f"{daemon.state}; start it: runforge-cli daemon"
    slots = f"{daemon.active_jobs} of {daemon.max_parallel} slots in use"
    return f"{daemon.state} (pid {daemon.pid}), {slots}{'' if daemon.healthy else ', but its heart does not beat'}"


def _group_row(one: GroupStatus) -> tuple[object, ...]:
    share = one.done / one.total if one.total else 1.0
    bar = ("█" * round(_BAR * share)).ljust(_BAR, "·")
    to_go = _span(one.eta_s) if one.eta_s is not None else ""
    progress = f"{bar} {share:4.0%}"
    note = "paused" if one.paused else ""
    return one.group_id, progress, f"{one.done}/{one.total}", one.running, one.failed, one.canceled, to_go, note


def _span(seconds: float) -> str:
    return format_duration(timedelta(seconds=max(1.0, seconds)))


def _last_line(text: str | None) -> str:
    return text.strip().splitlines()[-1] if text and text.strip() else ""
