from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.frames import assert_rows, text, view
from queueyard.pipeline.gold.agents import agents
from queueyard.pipeline.schemas import AGENTS, ASSIGNMENTS, MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPO = {"source": "repo"}
_COUNTS = ("sent", "received", "unread", "answered", "assignments", "open_assignments", "completed", "idle_gaps")
_NONE: dict[str, Any] = dict.fromkeys(_COUNTS, 0) | {"is_exact": True}


def _message(identifier: str, clock: str, sender: str, to: str, **more: Any) -> dict[str, Any]:
    return _REPO | {"id": identifier, "created_at": text(clock), "from": sender, "to": to} | more


def _assignment(identifier: str, start: str, end: str, status: str | None, **more: Any) -> dict[str, Any]:
    times = {"created_at": text(start), "updated_at": text(end)}
    return _REPO | {"id": identifier, "agent": "ana", "status": status} | times | more


def test_mail_and_the_time_to_the_first_answer(spark: SparkSession) -> None:
    messages = view(
        spark,
        MESSAGES,
        _message("m1", "9:00", "ben", "ana", read=True),
        _message("m2", "9:01", "ana", "ben", reply_to="m1", read=False),
        _message("m3", "9:05", "ana", "ben", reply_to="m1", deleted=True),
        _message("m4", "9:06", "ben", "ana"),
        _message("m5", "9:07", "cleo", "ben", reply_to="m4"),
        _message("m6", "9:09:30", "ana", "ben", reply_to="m4", read=True),
    )

    found = agents(messages=messages, assignments=view(spark, ASSIGNMENTS))

    answers = {"answered": 2, "response_p50_s": 60.0, "response_p95_s": 210.0}
    assert_rows(
        found,
        AGENTS,
        _REPO | _NONE | {"agent": "ana", "sent": 3, "received": 2, "unread": 1} | answers,
        _REPO | _NONE | {"agent": "ben", "sent": 2, "received": 4, "unread": 2},
        _REPO | _NONE | {"agent": "cleo", "sent": 1},
    )


def test_idle_is_the_time_without_any_assignment_between_two(spark: SparkSession) -> None:
    assignments = view(
        spark,
        ASSIGNMENTS,
        _assignment("a1", "9:00", "10:00", "completed"),
        _assignment("a2", "9:10", "9:20", "released"),
        _assignment("a3", "10:30", "11:00", "completed"),
        _assignment("a4", "11:00", "11:00", None),
        _assignment("a5", "15:00", "15:00", "active"),
        _assignment("b1", "15:00", "15:00", "active", agent="", droid="ben"),
    )

    found = agents(messages=view(spark, MESSAGES), assignments=assignments)

    ana = {"assignments": 5, "open_assignments": 2, "completed": 2, "idle_gaps": 1, "idle_s": 1800.0}
    assert_rows(
        found,
        AGENTS,
        _REPO | _NONE | {"agent": "ana"} | ana,
        _REPO | _NONE | {"agent": "ben", "assignments": 1, "open_assignments": 1},
    )


def test_an_assignment_whose_begin_cannot_be_read_hides_no_idle_time(spark: SparkSession) -> None:
    assignments = view(
        spark,
        ASSIGNMENTS,
        _assignment("a1", "9:00", "10:00", "completed"),
        _assignment("a2", "10:30", "11:00", "completed"),
        _assignment("a3", "9:00", "9:00", "active", created_at="some day"),
    )

    found = agents(messages=view(spark, MESSAGES), assignments=assignments)

    counts = {"assignments": 3, "open_assignments": 1, "completed": 2, "idle_gaps": 1, "idle_s": 1800.0}
    assert_rows(found, AGENTS, _REPO | _NONE | {"agent": "ana"} | counts)
