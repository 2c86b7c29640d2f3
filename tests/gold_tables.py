"""Gold tables with made-up rows of the last days, written as Delta tables without Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deltalake import write_deltalake
import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

SYSTEMS = ("queen", "runforge", "panqueue", "jjq", "ops")
DAYS = 10
Row = dict[str, Any]


def make_gold(home: Path, *, mark: str = "") -> None:
    """Every table that the dashboard reads."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [today - timedelta(days=back) for back in range(DAYS)]
    for name, rows in {
        "throughput": _throughput(days, mark),
        "durations": _durations(days, mark),
        "failures": _failures(days, mark),
        "fairness": _fairness(days, mark),
        "landing": _landing(days, mark),
        "agents": _agents(mark),
        "contention": _contention(days, mark),
        "sync": _sync(days, mark),
        "summary": [{"system": system, "day": day.date()} for system in SYSTEMS for day in days],
    }.items():
        write_table(home, name, rows)


def write_table(home: Path, name: str, rows: list[Row]) -> None:
    write_deltalake(str(home / "gold" / name), pa.Table.from_pylist(rows), mode="overwrite")


def _queue(system: str, mark: str) -> Row:
    return {"system": system, "source": f"/srv/{system}", "queue": f"main{mark}"}


def _throughput(days: list[datetime], mark: str) -> list[Row]:
    return [
        {"grain": "day", "bucket_at": day, **_queue(system, mark)}
        | dict.fromkeys(("queued", "started", "failed", "conflicted", "canceled"), 1)
        | {"succeeded": (number + 2) * 10 + back}
        for number, system in enumerate(SYSTEMS)
        for back, day in enumerate(days)
    ]


def _durations(days: list[datetime], mark: str) -> list[Row]:
    return [
        {**_queue(system, mark), "measure": measure, "scope": "day", "group": None, "day": day.date(), "attempts": 9}
        | {"mean_s": 2.0, "max_s": 99.0, "p50_s": 1.0, "p90_s": 30.0, "p95_s": 40.0 + number, "p99_s": 90.0}
        | {"is_exact": True}
        for measure in ("wait", "run")
        for number, system in enumerate(SYSTEMS)
        for day in days
    ]


def _failures(days: list[datetime], mark: str) -> list[Row]:
    return [
        {**_queue("panqueue", mark), "day": day.date(), "kind": "failed", "reason": f"the line was busy{mark}"}
        | {"failures": 3, "items": 2, "example": f"=busy{mark}", "first_at": day, "last_at": day}
        for day in days
    ]


def _fairness(days: list[datetime], mark: str) -> list[Row]:
    return [
        {"grain": "day", "bucket_at": day, **_queue("runforge", mark), "groups": 3, "services": 30, "run_s": 9.0}
        | {"jain_services": 0.9, "jain_run": 0.8}
        for day in days
    ]


def _landing(days: list[datetime], mark: str) -> list[Row]:
    return [
        {"source": "/srv/jjq", "queue": f"main{mark}", "day": day.date(), "landed": 5, "failed": 1, "conflicted": 0}
        | {"land_p50_s": 60.0, "land_p95_s": 600.0, "land_max_s": 900.0, "checks": 6, "wasted_checks": 1}
        | {"reused_checks": 0}
        for day in days
    ]


def _agents(mark: str) -> list[Row]:
    return [
        {"source": "/srv/queen", "agent": f"{name}{mark}", "sent": 9, "received": 8, "unread": 1, "answered": 5}
        | {"response_p50_s": 60.0 * number, "response_p95_s": 600.0 * number, "assignments": 3, "open_assignments": 1}
        | {"completed": 2, "idle_gaps": 1, "idle_s": 5.0}
        for number, name in enumerate(("ana", "ben", "cleo"), 1)
    ]


def _contention(days: list[datetime], mark: str) -> list[Row]:
    return [
        {"source": "/srv/queen", "day": day.date(), "holder": f"ana{mark}", "holder_pattern": "src/**"}
        | {"waiter": "ben", "waiter_pattern": "src/ui/**", "overlaps": 2, "blocking_overlaps": 1, "overlap_s": 60.0}
        for day in days
    ]


def _sync(days: list[datetime], mark: str) -> list[Row]:
    return [
        {"source": "http://127.0.0.1:3001", "space": f"docs{mark}", "day": day.date(), "batches": 4}
        | {"lag_p50_s": 1.0, "lag_p95_s": 4.0, "lag_max_s": 9.0, "applied": 90, "conflicts": 1, "rejected": 0}
        | {"conflict_rate": 0.01, "versions": 90, "files_changed": 50, "bytes": 12_345}
        for day in days
    ]
