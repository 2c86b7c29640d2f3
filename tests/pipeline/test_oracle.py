"""The oracle itself, on histories that are small enough to be understood by looking at them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pipeline import oracle
from pipeline.oracle_gold import (
    durations,
    failures,
    fairness,
    interpolated,
    jain,
    landing,
    nearest_rank,
    retries,
    summary,
    throughput,
)
from pipeline.oracle_gold_records import agents, contention, sync
from pipeline.oracle_records import file_versions, files, folded, queen_records
from pipeline.oracle_tables import Expected, differences, expected
from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.events import Event, Kind, System
from queueyard.ops.records import Change, FeedOp
from queueyard.pipeline.generator import generate
from queueyard.pipeline.names import GOLD_NAMES

if TYPE_CHECKING:
    from pathlib import Path

NINE = datetime(2026, 1, 5, 9, tzinfo=UTC)
DAY = NINE.date()


def at(minutes: float) -> datetime:
    """So many minutes past nine."""
    return NINE + timedelta(minutes=minutes)


def event(minutes: float, kind: Kind, **fields: Any) -> Event:
    told = {"system": System.PANQUEUE, "source": "redis", "queue": "mail", "item": "1"} | fields
    identifier = told.pop("id", f"{told['item']} {minutes} {kind} {told.get('attempt', 1)}")
    return Event(id=identifier, at=to_rfc3339(at(minutes)), kind=kind, **told)


def only(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (row,) = rows
    return row


def some(row: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


# --- lines and events ------------------------------------------------------------------------------------------------


def test_a_line_without_its_end_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b'{"a":1}\nnonsense\n{"a":2}\n{"a":3')

    assert list(oracle.sound_lines(path, msgspec.json.decode)) == [{"a": 1}, {"a": 2}]


def test_an_event_that_is_told_twice_is_one() -> None:
    told = [event(0, Kind.QUEUED), event(1, Kind.STARTED), event(0, Kind.QUEUED)]

    assert [one.kind for one in oracle.distinct(told)] == [Kind.QUEUED, Kind.STARTED]


def test_a_row_of_an_event_has_its_time_as_a_time() -> None:
    row = oracle.event_row(event(1, Kind.FAILED, reason="why", data={"n": 1}))

    assert some(row, "at", "system", "kind", "attempt", "group", "reason", "data") == (
        at(1), "panqueue", "failed", 1, None, "why", {"n": 1},
    )  # fmt: skip


# --- items and attempts ----------------------------------------------------------------------------------------------


def test_an_item_is_told_by_its_first_and_its_last_event_whatever_their_order_in_the_file() -> None:
    told = [
        event(5, Kind.SUCCEEDED, attempt=2, actor="w2"),
        event(0, Kind.QUEUED, group="g", actor="client"),
        event(1, Kind.STARTED, actor="w1"),
    ]

    row = oracle.items(told)["panqueue", "redis", "mail", "1"]

    assert some(row, "first_at", "last_at", "last_kind", "last_actor", "group", "attempts", "events") == (
        at(0), at(5), "succeeded", "w2", "g", 2, 3,
    )  # fmt: skip


def test_of_two_events_at_one_time_the_greater_id_is_the_last() -> None:
    told = [event(1, Kind.FAILED, id="B"), event(1, Kind.SUCCEEDED, id="A")]

    assert only(list(oracle.items(told).values()))["last_kind"] == "failed"
    assert only(list(oracle.attempts(told).values()))["outcome"] == "failed"


def test_an_attempt_waits_from_the_first_time_it_was_asked_for_and_runs_from_its_last_start() -> None:
    told = [
        event(0, Kind.QUEUED),
        event(2, Kind.STARTED),
        event(3, Kind.STALLED),
        event(4, Kind.STARTED),
        event(9, Kind.SUCCEEDED, actor="w", data={"duration_ms": 300_000}),
    ]

    row = only(list(oracle.attempts(told).values()))

    assert some(row, "queued_at", "started_at", "finished_at", "outcome", "stalls", "actor", "duration_ms") == (
        at(0), at(4), at(9), "succeeded", 1, "w", 300_000,
    )  # fmt: skip


def test_an_attempt_without_an_end_failed_when_the_next_one_was_asked_for() -> None:
    told = [
        event(0, Kind.QUEUED),
        event(1, Kind.STARTED),
        event(2, Kind.RETRIED, attempt=2, reason="503"),
        event(3, Kind.STARTED, attempt=2),
    ]

    first, second = oracle.attempts(told).values()

    assert some(first, "finished_at", "outcome", "reason") == (at(2), "failed", "503")
    assert some(second, "attempt", "queued_at", "started_at", "outcome") == (2, at(2), at(3), None)


def test_messages_and_reservations_have_no_attempts_and_assignments_have() -> None:
    queues = ("messages", "assignments", "reservations")
    told = [event(0, Kind.STARTED, system=System.QUEEN, queue=queue) for queue in queues]

    assert [key[2] for key in oracle.attempts(told)] == ["assignments"]


def test_an_attempt_that_was_handed_back_and_started_again_has_not_ended() -> None:
    told = [event(0, Kind.STARTED), event(10, Kind.RELEASED, reason="shutdown"), event(20, Kind.STARTED)]

    row = only(list(oracle.attempts(told).values()))

    assert some(row, "started_at", "finished_at", "outcome", "reason") == (at(20), None, None, None)


def test_an_attempt_of_which_only_a_stall_is_known_is_none() -> None:
    assert oracle.attempts([event(0, Kind.STALLED)]) == {}


def test_checks_of_jjq_that_were_thrown_away_are_wasted() -> None:
    told = [event(5, Kind.RELEASED, system=System.JJQ, data={"duration_ms": 700})]

    row = only(list(oracle.attempts(told).values()))

    assert some(row, "outcome", "wasted_ms", "duration_ms") == ("released", 700, 700)


# --- records ---------------------------------------------------------------------------------------------------------


def test_lines_of_one_record_add_up_and_null_clears() -> None:
    lines: list[dict[str, Any]] = [
        {"id": "1", "created_at": "first", "read": False, "reason": "x"},
        {"id": "2"},
        {"id": "1", "created_at": "second", "read": True, "reason": None},
    ]

    assert folded(lines) == {"1": {"id": "1", "created_at": "first", "read": True}, "2": {"id": "2"}}


def test_records_of_queen_have_every_column(tmp_path: Path) -> None:
    home = tmp_path / "queen" / ".beads"
    home.mkdir(parents=True)
    (home / "queen_messages.jsonl").write_bytes(b'{"_migration":"x"}\n{"id":7}\n{"id":"m","from":"a","strange":1}\n')

    row = queen_records(tmp_path, "messages")["m"]

    assert row == dict.fromkeys(
        [
            "created_at",
            "to",
            "subject",
            "body",
            "issue_id",
            "reply_to",
            "thread_id",
            "importance",
            "read",
            "read_at",
            "deleted",
            "deleted_at",
        ]
    ) | {"source": str(tmp_path / "queen"), "id": "m", "from": "a"}


def test_the_newest_version_of_a_file_is_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "ops" / "docs"
    folder.mkdir(parents=True)
    changes = [_change(1, FeedOp.CREATE), _change(2, FeedOp.UPDATE), _change(3, FeedOp.DELETE)]
    body = b"".join(msgspec.json.encode(change) + b"\n" for change in changes)
    (folder / "changes-000000000001-000000000003.jsonl").write_bytes(body)

    versions = file_versions(tmp_path)
    row = files(versions.values())["docs", "f"]

    assert [version["op"] for version in versions.values()] == ["c", "u", "d"]
    assert some(row, "version", "seq", "is_deleted", "changed_at", "bytes") == (3, 3, True, at(3), 30)


def _change(seq: int, op: FeedOp) -> Change:
    return Change(
        seq=seq,
        space="docs",
        op=op,
        file_id="f",
        version=seq,
        base_version=seq - 1,
        server_path="a.md",
        size=10 * seq,
        request_id="r",
        batch_index=1,
        op_id=f"op-{seq}",
        accepted_at=to_rfc3339(at(seq)),
    )


# --- numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "nearest", "between"), [(0.5, 20, 25.0), (0.95, 40, 38.5), (0.25, 10, 17.5)])
def test_percentiles_of_four_values(share: float, nearest: int, between: float) -> None:
    values = [40, 10, 30, 20]

    assert nearest_rank(values, share) == nearest
    assert interpolated(values, share) == pytest.approx(between)


def test_percentiles_of_nothing_are_not_known() -> None:
    assert nearest_rank([], 0.5) is None
    assert interpolated([], 0.5) is None


def test_jain_is_one_for_equals_and_a_share_where_one_gets_everything() -> None:
    assert jain([5, 5, 5]) == 1.0
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain([0, 0]) is None


# --- gold ------------------------------------------------------------------------------------------------------------


def test_throughput_counts_each_event_in_its_minute_hour_and_day() -> None:
    told = [event(0, Kind.QUEUED), event(0.5, Kind.QUEUED, item="2"), event(61, Kind.SUCCEEDED)]
    told.append(event(0, Kind.SUCCEEDED, system=System.OPS, item="r:1:op-1"))

    rows = throughput(told)

    assert {some(row, "grain", "bucket_at", "queued", "succeeded") for row in rows} == {
        ("minute", at(0), 2, 0),
        ("minute", at(61), 0, 1),
        ("hour", at(0), 2, 0),
        ("hour", at(60), 0, 1),
        ("day", at(-540), 2, 1),
    }


def test_equal_faults_are_one_row_with_an_example() -> None:
    told = [
        event(1, Kind.FAILED, item="1", reason="exit code 9"),
        event(2, Kind.FAILED, item="2", reason="exit code 137"),
        event(3, Kind.FAILED, item="2", reason="exit code 9", attempt=2),
    ]

    row = only(failures(told))

    assert some(row, "reason", "failures", "items", "example", "first_at", "last_at") == (
        "exit code <n>", 3, 2, "exit code 137", at(1), at(3),
    )  # fmt: skip


def test_failures_and_retries_are_counted_by_day() -> None:
    told = [
        event(1, Kind.STARTED),
        event(2, Kind.RETRIED, attempt=2),
        event(3, Kind.STARTED, attempt=2),
        event(4, Kind.STALLED, attempt=2),
        event(5, Kind.FAILED, attempt=2),
    ]

    counted = {row["kind"]: row["failures"] for row in failures(told)}
    row = only(retries(told))

    assert counted == {"retried": 1, "stalled": 1, "failed": 1}
    assert some(row, "started", "retried", "stalled", "retried_items", "highest_attempt", "retry_rate") == (
        2, 1, 1, 1, 2, 0.5,
    )  # fmt: skip


def test_waits_and_runs_are_told_by_queue_group_and_day_and_never_negative() -> None:
    told = [event(0, Kind.QUEUED, group="g"), event(2, Kind.STARTED), event(5, Kind.SUCCEEDED)]
    told += [event(9, Kind.QUEUED, item="2"), event(8, Kind.STARTED, item="2")]

    rows = {some(row, "measure", "scope", "group", "day"): row for row in durations(oracle.attempts(told).values())}

    assert set(rows) == {
        (measure, *scope)
        for measure in ("wait", "run")
        for scope in (("queue", None, None), ("group", "g", None), ("day", None, DAY))
    }
    assert some(rows["wait", "queue", None, None], "attempts", "mean_s", "p99_s") == (1, 120.0, 120.0)
    assert rows["run", "queue", None, None]["max_s"] == 180.0


def test_a_group_that_only_waits_makes_the_hour_unfair() -> None:
    told = [
        event(0, Kind.QUEUED, group="fed"),
        event(1, Kind.STARTED, group="fed"),
        event(5, Kind.SUCCEEDED, group="fed"),
        event(0, Kind.QUEUED, item="2", group="starved"),
        event(70, Kind.STARTED, item="2", group="starved"),
    ]

    rows = {some(row, "grain", "bucket_at"): row for row in fairness(oracle.attempts(told).values())}

    assert some(rows["hour", at(0)], "groups", "services", "jain_services", "run_s") == (2, 1, 0.5, 240.0)
    assert some(rows["hour", at(60)], "groups", "services", "jain_services", "jain_run") == (1, 1, 1.0, None)
    assert some(rows["day", at(-540)], "groups", "services", "jain_services") == (2, 2, 1.0)


def test_time_to_land_is_from_the_push_to_trunk() -> None:
    common = {"system": System.JJQ, "queue": "main"}
    told = [
        event(0, Kind.QUEUED, **common),
        event(2, Kind.RELEASED, data={"duration_ms": 1500}, **common),
        event(10, Kind.SUCCEEDED, attempt=2, data={"duration_ms": 4000}, **common),
        event(11, Kind.CONFLICTED, item="2", **common),
        event(12, Kind.SUCCEEDED, item="3", data={"duration_ms": 0, "reused": True}, **common),
    ]

    row = only(landing(told))

    assert some(row, "landed", "conflicted", "timed", "land_p50_s") == (2, 1, 1, 600.0)
    assert some(row, "checks", "wasted_checks", "wasted_s", "wasted_share", "reused_checks") == (2, 1, 1.5, 0.5, 1)


def test_a_day_of_a_system_in_one_row() -> None:
    told = [event(0, Kind.QUEUED), event(1, Kind.STARTED), event(3, Kind.FAILED), event(4, Kind.PAUSED, item="")]

    row = only(summary(told, oracle.attempts(told).values()))

    assert some(row, "events", "items", "queued", "failed", "success_rate", "wait_p50_s", "run_p95_s") == (
        4, 2, 1, 1, 0.0, 60.0, 120.0,
    )  # fmt: skip


def test_an_agent_answers_works_and_is_idle() -> None:
    blank = dict.fromkeys(("created_at", "from", "to", "reply_to", "read", "deleted"))
    messages = [
        blank | {"source": "s", "id": "m1", "from": "a", "to": "b", "created_at": to_rfc3339(at(0))},
        blank | {"source": "s", "id": "m2", "from": "b", "to": "a", "created_at": to_rfc3339(at(2)), "reply_to": "m1"},
    ]
    work = [_assignment("1", 0, 10, "completed"), _assignment("2", 15, 20, "released"), _assignment("3", 18, 0, None)]

    rows = {row["agent"]: row for row in agents(messages, work)}

    assert some(rows["b"], "sent", "received", "unread", "answered", "response_p50_s") == (1, 1, 1, 1, 120.0)
    assert some(rows["a"], "answered", "assignments", "open_assignments", "completed") == (0, 3, 1, 1)
    assert some(rows["a"], "idle_gaps", "idle_s") == (1, 300.0)


def _assignment(identifier: str, start: float, end: float, status: str | None) -> dict[str, Any]:
    times = {"created_at": to_rfc3339(at(start)), "updated_at": to_rfc3339(at(end))}
    return {"source": "s", "id": identifier, "agent": "", "droid": "a", "status": status} | times


def test_who_reserved_later_waited_for_who_came_first() -> None:
    held = [
        _reservation("1", "a", "src/**", 0, 30),
        _reservation("2", "b", "src/app.py", 10, 60),
        _reservation("3", "c", "docs/", 5, 60),
        _reservation("4", "a", "src/app.py", 40, 50, exclusive=False),
    ]

    rows = {some(row, "holder", "waiter"): row for row in contention(held)}

    assert set(rows) == {("a", "b"), ("b", "a")}
    assert some(rows["a", "b"], "overlaps", "blocking_overlaps", "overlap_s") == (1, 1, 1200.0)
    assert some(rows["b", "a"], "overlaps", "blocking_overlaps", "overlap_s") == (1, 0, 600.0)


def _reservation(
    identifier: str, agent: str, pattern: str, start: float, end: float, *, exclusive: bool | None = None
) -> dict[str, Any]:
    return {
        "source": "s",
        "id": identifier,
        "agent": agent,
        "droid": agent,
        "pattern": pattern,
        "exclusive": exclusive,
        "created_at": to_rfc3339(at(start)),
        "expires_at": to_rfc3339(at(end)),
        "released_at": None,
    }


def test_the_lag_of_sync_is_from_the_plan_to_the_first_answer() -> None:
    common = {"system": System.OPS, "source": "server", "queue": "docs", "item": "r:1"}
    counts = {"applied": 3, "conflict": 1, "rejected": 0}
    told = [
        event(0, Kind.QUEUED, **common),
        event(2, Kind.SUCCEEDED, data=counts, **common),
        event(3, Kind.SUCCEEDED, attempt=2, data=counts, **common),
    ]

    row = only(sync(told, []))

    assert some(row, "batches", "lag_p95_s", "applied", "conflicts", "conflict_rate", "versions") == (
        1, 120.0, 3, 1, 0.25, 0,
    )  # fmt: skip


def test_the_server_knows_better_than_its_clients() -> None:
    common = {"system": System.OPS, "source": "server", "queue": "docs"}
    told = [event(2, Kind.SUCCEEDED, item="r:1", data={"applied": 9}, **common)]
    told += [event(1, kind, item=f"r:1:{kind}", **common) for kind in (Kind.SUCCEEDED, Kind.CONFLICTED)]
    version = {"source": "server", "space": "docs", "at": at(1), "file": "f", "bytes": 5}

    row = only(sync(told, [version, version | {"bytes": 6}]))

    assert some(row, "applied", "conflicts", "conflict_rate") == (1, 1, 0.5)
    assert some(row, "versions", "files_changed", "bytes") == (2, 1, 11)


# --- found and wanted ------------------------------------------------------------------------------------------------


def test_rows_that_are_the_same_in_any_order_do_not_differ() -> None:
    table = Expected(key=("id",), rows=[{"id": 1, "share": 0.1 + 0.2}, {"id": 2, "share": None}])

    assert differences([{"id": 2, "share": None, "more": 1}, {"id": 1, "share": 0.3}], table) == []


def test_every_way_to_differ_is_told() -> None:
    table = Expected(key=("id",), rows=[{"id": 1, "n": 1}, {"id": 2, "n": 2}, {"id": 3, "n": 3}])

    told = differences([{"id": 1, "n": 7}, {"id": 3, "n": 3}, {"id": 3, "n": 3}, {"id": 4, "n": 4}], table)

    assert told == ["(1,): n is 7 instead of 1", "2 rows of (3,)", "missing: (2,)", "too much: (4,)"]


def test_every_expected_table_has_rows_each_with_a_key_of_its_own(tmp_path: Path) -> None:
    generate(tmp_path, events=3_000, seed=8)

    tables = expected(tmp_path)

    assert set(GOLD_NAMES) <= tables.keys()
    for name, table in tables.items():
        assert table.rows, name
        assert differences(table.rows, table) == [], name


# --- all of it -------------------------------------------------------------------------------------------------------


def test_nothing_of_a_generated_history_is_lost_on_the_way_to_the_tables(tmp_path: Path) -> None:
    generate(tmp_path, events=4_000, seed=8)

    told = oracle.events(tmp_path)
    tried = oracle.attempts(told)

    assert sum(row["events"] for row in oracle.items(told).values()) == len(told)
    assert {key[:4] for key in tried} <= oracle.items(told).keys()
    assert sum(row["events"] for row in summary(told, tried.values())) == sum(one.item.count(":") < 2 for one in told)
    assert all(row["jain_services"] is None or 0 < row["jain_services"] <= 1 for row in fairness(tried.values()))
