"""The ledger on SQLite: how much work a batch is, whatever the space holds already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.ops import views
from queueyard.ops.database import SqliteDatabase
from queueyard.ops.errors import LedgerFailed
from queueyard.ops.ledger import Ledger, Push, SpaceName
from queueyard.ops.preparing import prepare
from queueyard.ops.records import Limits, Op, OpType, PullRequest, PushRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPACE = SpaceName("default", "default")
LIMITS = Limits(
    max_ops=5_000,
    max_body_bytes=1 << 30,
    max_decompressed_bytes=1 << 30,
    max_content_bytes=1 << 20,
    max_path_bytes=1024,
    answers_kept_days=30,
    encodings=[],
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(SqliteDatabase(tmp_path / "ledger.sqlite3", synchronous="OFF"))
    ledger.create()
    yield ledger
    ledger.close()


def push(name: str, count: int, *, base: int = 0, files: str | None = None) -> Push:
    ops = [
        Op(
            op_id=f"op{number}",
            type=OpType.UPSERT,
            file_id=f"{files or name}-{number}",
            server_path=f"{files or name}/deep/{number}.md",
            base_version=base,
            content=f"{name} {number}",
        )
        for number in range(count)
    ]
    request = PushRequest(request_id=name, batch_index=1, total_batches=1, ops=ops)
    return Push(space=SPACE, batch=prepare(msgspec.json.encode(request), LIMITS))


def steps_of(ledger: Ledger, act: Callable[[], object]) -> int:
    """How many hundreds of instructions SQLite needs for it: work, not time."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    line = ledger.line._line  # type: ignore[attr-defined]
    line.set_progress_handler(tick, 100)
    try:
        act()
    finally:
        line.set_progress_handler(None, 0)
    return count


def test_a_batch_is_no_more_work_in_a_space_of_many_files(ledger: Ledger) -> None:
    ledger.apply([push("A", 100)])
    few_new = steps_of(ledger, lambda: ledger.apply([push("B", 100)]))
    few_changed = steps_of(ledger, lambda: ledger.apply([push("C", 100, base=1, files="A")]))
    for number in range(4):
        ledger.apply([push(f"MANY{number}", 5_000)])

    many_new = steps_of(ledger, lambda: ledger.apply([push("D", 100)]))
    many_changed = steps_of(ledger, lambda: ledger.apply([push("E", 100, base=2, files="A")]))

    assert many_new < 2 * few_new
    assert many_changed < 2 * few_changed


def test_reading_what_is_new_is_no_more_work_behind_many_changes(ledger: Ledger) -> None:
    ledger.apply([push("A", 100)])
    few = steps_of(
        ledger,
        lambda: (
            views.pull(ledger, SPACE, PullRequest(since_cursor=50, limit=20)),
            views.feed(ledger, SPACE, after=50, limit=20),
        ),
    )
    for number in range(4):
        ledger.apply([push(f"MANY{number}", 5_000)])

    many = steps_of(
        ledger,
        lambda: (
            views.pull(ledger, SPACE, PullRequest(since_cursor=19_000, limit=20)),
            views.feed(ledger, SPACE, after=19_000, limit=20),
        ),
    )

    assert many < 2 * few


def test_two_processes_may_write_and_one_waits(tmp_path: Path, ledger: Ledger) -> None:
    other = Ledger(SqliteDatabase(tmp_path / "ledger.sqlite3"))

    ledger.apply([push("A", 3)])
    other.create_spaces("docs")
    ledger.apply([push("B", 3)])
    other.close()

    assert {one.slug for one in views.spaces(ledger)} == {"default", "docs"}


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite3").write_bytes(b"not a database at all" * 100)

    with pytest.raises(LedgerFailed, match="cannot open"):
        Ledger(SqliteDatabase(tmp_path / "ledger.sqlite3"))
