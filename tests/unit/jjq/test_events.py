"""What happens to an item, in the shared words, and how it is told to people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from queueyard.jjq.advice import failure_lines, failure_summary
from queueyard.jjq.events import Teller, read_journal
from queueyard.jjq.records import CheckResult, Commit, Failure, Merge, Outcome, Reason, State
from queueyard.kernel.events import Journal, Kind

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
CANDIDATE = Commit(commit_id="c" * 40, change_id="k" * 32, description="Add a button\n")
MERGE = Merge(
    id=7, base=Commit(commit_id="b", change_id="x"), candidate=CANDIDATE, commit=Commit(commit_id="m", change_id="y")
)
TELLER = Teller(source="/repo", queue="main", now=lambda: AT)


def failure(reason: Reason, **more: object) -> Failure:
    return Failure(
        id=7,
        reason=reason,
        at="2026-01-31T12:00:00Z",
        candidate=CANDIDATE,
        trunk_commit_id="b",
        merge_commit_id="m",
        workspace_path="/tmp/jjq-000007-x/work",
        **more,  # type: ignore[arg-type]
    )


def test_each_change_has_its_kind() -> None:
    check = CheckResult(passed=False, exit_code=2, duration_ms=1500)

    kinds = [
        TELLER.queued(7, CANDIDATE).kind,
        TELLER.started(MERGE, attempt=1).kind,
        TELLER.wasted(MERGE, attempt=1, why="trunk was moved", duration_ms=10).kind,
        TELLER.landed(7, MERGE.commit, None).kind,
        TELLER.failed(failure(Reason.CHECK), check).kind,
        TELLER.failed(failure(Reason.CONFLICTS, conflict_paths=("a",)), None).kind,
        TELLER.requeued(7, 8, CANDIDATE).kind,
        TELLER.deleted(7, CANDIDATE, queued=True).kind,
        TELLER.deleted(7, CANDIDATE, queued=False).kind,
        TELLER.stalled(7).kind,
    ]

    assert kinds == [
        Kind.QUEUED,
        Kind.STARTED,
        Kind.RELEASED,
        Kind.SUCCEEDED,
        Kind.FAILED,
        Kind.CONFLICTED,
        Kind.RETRIED,
        Kind.CANCELED,
        Kind.DELETED,
        Kind.STALLED,
    ]


def test_telling_a_change_twice_gives_the_same_event() -> None:
    assert TELLER.queued(7, CANDIDATE) == TELLER.queued(7, CANDIDATE)
    assert TELLER.queued(7, CANDIDATE).id != TELLER.queued(8, CANDIDATE).id
    assert TELLER.queued(7, CANDIDATE).item == "000007"


def test_the_journal_gives_back_what_was_told(tmp_path: Path) -> None:
    events = [TELLER.queued(7, CANDIDATE), TELLER.landed(7, MERGE.commit, None)]
    Journal(tmp_path / "journal.jsonl").append(*events)

    found = list(read_journal(tmp_path / "journal.jsonl", on_bad=lambda _: None))

    assert [event for event, _ in found] == events
    assert [
        event for event, _ in read_journal(tmp_path / "journal.jsonl", on_bad=lambda _: None, start=found[1][1])
    ] == events[1:]


def test_who_has_a_conflict_is_told_paths_workspace_and_commands() -> None:
    outcome = Outcome(
        id=7,
        state=State.FAILED,
        candidate=CANDIDATE,
        failure=failure(Reason.CONFLICTS, conflict_paths=("a.txt", "b.txt")),
    )

    lines = list(failure_lines(outcome, "main"))

    assert lines[0] == "item 7 failed: it conflicts with main"
    assert [line.split()[-1] for line in lines if "conflict:" in line] == ["a.txt", "b.txt"]
    assert "  workspace:  /tmp/jjq-000007-x/work" in lines
    assert lines[-1] == "  jjq retry 7"


def test_who_has_a_failed_check_is_told_how_it_failed() -> None:
    failed = Outcome(id=7, state=State.FAILED, candidate=CANDIDATE, failure=failure(Reason.CHECK, exit_code=3))
    slow = Outcome(id=7, state=State.FAILED, candidate=CANDIDATE, failure=failure(Reason.TIMEOUT))

    assert next(failure_lines(failed, "main")) == "item 7 failed: its check failed with exit code 3"
    assert "took too long" in next(failure_lines(slow, "main"))
    assert failure_summary([failed]) == "item 7 failed"


def test_very_many_conflicts_are_cut() -> None:
    paths = tuple(f"{number}.txt" for number in range(50))
    outcome = Outcome(
        id=7, state=State.FAILED, candidate=CANDIDATE, failure=failure(Reason.CONFLICTS, conflict_paths=paths)
    )

    lines = [line for line in failure_lines(outcome, "main") if "conflict:" in line]

    assert len(lines) == 21
    assert lines[-1].endswith("... and 30 more")
