"""Texts on SQLite: each is stored once, whoever looks for it, and many of them do not make a batch dearer."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from queueyard.ops.database import SqliteDatabase
from queueyard.ops.doctor import examine_ledger
from queueyard.ops.ledger import Ledger
from queueyard.ops.rules import content_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

TOGETHER = 10


@pytest.fixture
def database(tmp_path: Path) -> SqliteDatabase:
    return SqliteDatabase(tmp_path / "ledger.sqlite3", synchronous="OFF", indexed_together=TOGETHER)


@pytest.fixture
def ledger(database: SqliteDatabase) -> Iterator[Ledger]:
    ledger = Ledger(database)
    ledger.create()
    yield ledger
    ledger.close()


def some(numbers: Iterable[int]) -> dict[bytes, bytes]:
    contents = [f"text {number}" for number in numbers]
    return {bytes.fromhex(content_hash(one)): one.encode() for one in contents}


def keep(ledger: Ledger, numbers: Iterable[int]) -> list[int]:
    """The numbers of texts, in the order of asking."""
    wanted = some(numbers)
    with ledger.line.writing():
        found = ledger.texts.keep(ledger.line, wanted)
    return [found[hashed] for hashed in wanted]


def stored(ledger: Ledger) -> list[str]:
    return [bytes(content).decode() for (content,) in ledger.line.rows("SELECT content FROM blob ORDER BY id")]


def indexed(ledger: Ledger) -> int:
    [(count,)] = ledger.line.rows("SELECT COUNT(*) FROM blob_hash")
    return int(count)


def test_a_text_has_one_number_before_and_after_it_is_indexed(ledger: Ledger) -> None:
    first = keep(ledger, range(6))
    few = indexed(ledger)
    second = keep(ledger, range(3, 12))
    many = indexed(ledger)
    third = keep(ledger, range(12))

    assert (few, many) == (0, 12)
    assert first == [1, 2, 3, 4, 5, 6]
    assert second == [4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert third == [*first, *second[3:]]
    assert stored(ledger) == [f"text {number}" for number in range(12)]


def test_who_starts_anew_knows_what_was_not_indexed(ledger: Ledger, database: SqliteDatabase) -> None:
    keep(ledger, range(12))
    keep(ledger, range(12, 15))
    fresh = Ledger(database)

    again = keep(fresh, range(16))
    fresh.close()

    assert again == list(range(1, 17))


def test_two_processes_that_take_turns_store_a_text_once(ledger: Ledger, database: SqliteDatabase) -> None:
    other = Ledger(database)

    for start in range(0, 40, 4):
        mine, theirs = keep(ledger, range(start, start + 4)), keep(other, range(start + 2, start + 6))
        assert mine[2:] == theirs[:2]
    other.close()

    assert sorted(stored(ledger)) == sorted(f"text {number}" for number in range(42))


@pytest.mark.parametrize("count", [4, TOGETHER], ids=["before", "while"])
def test_what_is_rolled_back_was_never_known(ledger: Ledger, count: int) -> None:
    keep(ledger, range(3))

    with suppress(RuntimeError), ledger.line.writing():
        ledger.texts.keep(ledger.line, some(range(100, 100 + count)))
        raise RuntimeError
    ledger.texts.forget_recent()
    numbers = keep(ledger, [100, 1, 50])

    assert numbers == [4, 2, 5]
    assert stored(ledger) == ["text 0", "text 1", "text 2", "text 100", "text 50"]
    assert examine_ledger(ledger) == []


def test_a_batch_writes_no_more_bytes_where_many_texts_are(ledger: Ledger, database: SqliteDatabase) -> None:
    database.indexed_together = 5_000

    def bytes_for(numbers: Iterable[int]) -> int:
        ledger.line.rows("PRAGMA wal_checkpoint(TRUNCATE)")
        keep(ledger, numbers)
        return database.path.with_name(f"{database.path.name}-wal").stat().st_size

    few = bytes_for(range(100))
    keep(ledger, range(1_000, 41_000))
    many = bytes_for(range(100, 200))

    assert many < 2 * few
