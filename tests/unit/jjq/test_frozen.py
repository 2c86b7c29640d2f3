"""Files that the first version left beside the repository: every later one must read them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from queueyard.jjq.records import Failure, Landing, Passed, Reason, Requeue, Workspace
from queueyard.jjq.stats import stats_of
from queueyard.kernel.events import Event

DATA = Path(__file__).parents[2] / "data" / "jjq"


def frozen(name: str) -> bytes:
    return (DATA / name).read_bytes()


def test_the_journal_tells_the_same_numbers() -> None:
    events = [msgspec.json.decode(line, type=Event) for line in frozen("v0_1_journal.jsonl").splitlines()]

    stats = stats_of(events)

    assert (stats.landed, stats.failed, stats.checks, stats.wasted_checks) == (2, 1, 4, 1)


def test_what_is_known_about_a_failed_item_is_read() -> None:
    failure = msgspec.json.decode(frozen("v0_1_failure.json"), type=Failure)

    assert (failure.id, failure.reason, failure.exit_code) == (2, Reason.CHECK, 1)
    assert (failure.candidate.subject, failure.workspace_path) == ("shout", "/home/ana/tmp/jjq-000002-imm115p2/work")


def test_trees_that_passed_are_read() -> None:
    passed = [msgspec.json.decode(line, type=Passed) for line in frozen("v0_1_passed.jsonl").splitlines()]

    assert [one.tree[:6] for one in passed] == ["14e98a", "8a13e4"]


@pytest.mark.parametrize(
    ("name", "kind", "fact", "value"),
    [
        ("v0_1_workspace.json", Workspace, "preserved", True),
        ("v0_1_landing.json", Landing, "ids", (1, 3)),
        ("v0_1_requeue.json", Requeue, "queue_id", 4),
    ],
)
def test_notes_that_help_to_resume_are_read(name: str, kind: type[msgspec.Struct], fact: str, value: object) -> None:
    assert getattr(msgspec.json.decode(frozen(name), type=kind), fact) == value
