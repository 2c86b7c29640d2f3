"""What may be wrong with a server or a queue, and the repair of each. Looking changes nothing."""

from __future__ import annotations

from contextlib import suppress
import os
from typing import TYPE_CHECKING, Any

from queueyard.kernel.findings import Finding
from queueyard.panqueue.errors import AccessDenied, ForeignData, ServerRefused
from queueyard.panqueue.records import JobOptions
from queueyard.panqueue.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from queueyard.panqueue.blocking import Line
    from queueyard.panqueue.records import Counts

_OLDEST_VERSION = (7, 0)
_LOOK_AT = 10_000
_LONG_LATE_S = 60
_INDEXES = ("waiting", "active", "completed", "failed", "delayed", "ranked", "held", "unplanted")
_TYPES = {
    **dict.fromkeys(("active", "completed", "failed", "delayed", "k_ready", "ranked", "held", "unplanted"), b"zset"),
    **dict.fromkeys(("expiry", "schedules", "k_limited"), b"zset"),
    **dict.fromkeys(("concurrency", "meta", "k_active", "k_limits", "children"), b"hash"),
    "rate": b"string",
    "waiting": b"list",
    "events": b"stream",
}
_ACL_RULE = "ACL SETUSER NAME on >PASSWORD '~{q:*' '&{q:*' +@all -@dangerous +info +keys"


def examine_server(line: Line) -> Iterator[Finding]:
    """Version, eviction, persistence and permissions."""
    told = _info(line)
    version = told.get("valkey_version") or told.get("redis_version", "0")
    if _number(told.get("redis_version", "0")) < _OLDEST_VERSION:
        yield Finding(
            check="version",
            problem=f"the server is {version}; the scripts need Redis 7.0 or newer, or Valkey",
            advice="Update it, or use the embedded one: panqueue serve",
        )
    policy = told.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield Finding(
            check="eviction",
            problem=f"maxmemory-policy is {policy}: the server may throw jobs away when it is full",
            advice="CONFIG SET maxmemory-policy noeviction",
        )
    if told.get("aof_enabled") == "0":
        saves = told.get("rdb_saves") or told.get("rdb_last_save_time")
        problem = (
            "no append-only file: a crash of the server loses the jobs of the last minutes"
            if saves
            else ("nothing is written to disk: a restart of the server loses every job")
        )
        yield Finding(check="persistence", problem=problem, advice="CONFIG SET appendonly yes")
    if told.get("role") == "slave":
        yield Finding(
            check="role", problem="this server is a replica and takes no jobs", advice="Use the master's URL."
        )
    yield from _permissions(line)


def _permissions(line: Line) -> Iterator[Finding]:
    """Does what a client and a worker do, on a queue that nobody uses, and removes it again."""
    store = QueueStore(f"doctor-{os.urandom(6).hex()}")
    turn = store.turn_builder(lease_ms=60_000, worker="doctor", keep=None)
    try:
        line.ask(store.add(["probe", b"{}"], JobOptions(), keyed=False))
        line.ask(turn.build([], claim=1, token="probe"))  # noqa: S106  no password
        line.ask(store.fail([("probe", "probe", "probe", -1)], worker="doctor", keep=None))
    except AccessDenied as fault:
        yield Finding(check="permissions", problem=str(fault), advice=_ACL_RULE)
    except ServerRefused as fault:
        yield Finding(check="scripts", problem=str(fault), advice=fault.hint or "")
    with suppress(ServerRefused):
        line.ask(store.obliterate(most=10, force=True))


def examine_queue(line: Line, queue_id: str, *, fix: bool) -> Iterator[Finding]:
    """Foreign data, ids without a job, wrong counts per key, overdue jobs, a pause that somebody may have forgotten."""
    try:
        yield from _findings(line, QueueStore(queue_id), fix=fix)
    except ForeignData as fault:
        yield Finding(check="foreign data", problem=str(fault), advice=fault.hint or "")
    except AccessDenied as fault:
        yield Finding(check="permissions", problem=f"{queue_id}: {fault}", advice=_ACL_RULE)


def _findings(line: Line, store: QueueStore, *, fix: bool) -> Iterator[Finding]:
    queue_id = store.queue_id
    foreign = list(_foreign(line, store))
    yield from foreign
    if foreign:
        return
    *lost, wrong = line.ask(store.mend(most=_LOOK_AT, really=fix))
    for name, count in zip(_INDEXES, lost, strict=True):
        if count:
            problem = f"{queue_id}: {count} ids in {name} have no job; somebody deleted their keys"
            yield Finding(check="lost jobs", problem=problem, advice="--fix removes the ids", fixable=True, fixed=fix)
    if wrong:
        problem = f"{queue_id}: {wrong} concurrency keys count other active jobs than there are"
        yield Finding(check="key counts", problem=problem, advice="--fix counts them anew", fixable=True, fixed=fix)
    counts = line.ask(store.counts())
    yield from _states(counts)
    yield from _unserved(line, store, counts)


def _unserved(line: Line, store: QueueStore, counts: Counts) -> Iterator[Finding]:
    """What only a worker of the queue can do, and none has done."""
    seconds, _ = line.call("TIME")
    late = (int(seconds) - _LONG_LATE_S) * 1_000
    for name, about in (
        ("schedules", "slots of schedules are due"),
        ("expiry", "jobs should have expired"),
        ("unplanted", "jobs of flows have not been given their children"),
    ):
        count = line.call("ZCOUNT", store.keys[name], "-inf", late)
        if count:
            problem = f"{counts.queue}: {count} {about} for more than a minute, and no worker looks after it"
            yield Finding(check=name, problem=problem, advice="Start a worker: panqueue worker MODULE:OBJECT")
    ranked = line.call("ZCARD", store.keys["ranked"])
    if ranked and line.ask(store.rules()).level_us is None:
        problem = f"{counts.queue}: {ranked} jobs wait by priority, and the queue has lost the rule that says so"
        yield Finding(check="priorities", problem=problem, advice="Start a worker of Queue(..., priorities=True)")


def _foreign(line: Line, store: QueueStore) -> Iterator[Finding]:
    for name, wanted in _TYPES.items():
        kind = line.call("TYPE", store.keys[name])
        if kind not in {wanted, b"none"}:
            yield Finding(
                check="foreign data",
                problem=f"{store.keys[name]} is a {kind.decode()}, not a {wanted.decode()}: it is not the queue's",
                advice=f"Look at it, then move it away: RENAME '{store.keys[name]}' OTHER",
            )


def _states(counts: Counts) -> Iterator[Finding]:
    if counts.overdue:
        problem = f"{counts.queue}: {counts.overdue} active jobs have no living worker, and nobody sweeps"
        yield Finding(check="overdue", problem=problem, advice="Start a worker: panqueue worker MODULE:OBJECT")
    if counts.paused and (counts.waiting or counts.delayed):
        problem = f"{counts.queue}: it is paused, and {counts.waiting} jobs wait"
        yield Finding(check="paused", problem=problem, advice=f"panqueue resume {counts.queue}")


def _info(line: Line) -> dict[str, str]:
    told: dict[str, str] = {}
    ask: Callable[..., Any] = line.call
    for section in ("server", "memory", "persistence", "replication"):
        try:
            raw = ask("INFO", section)
        except AccessDenied:
            continue
        pairs = (text.partition(":") for text in raw.decode("utf-8", "replace").splitlines() if ":" in text)
        told |= {name: value for name, _, value in pairs}
    return told


def _number(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:2]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
