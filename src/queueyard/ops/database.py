"""What the ledger needs of a database, and the SQLite that is there without being installed.

A `Connection` belongs to one thread. SQL is written once, with `?` for values; a database of another dialect translates
it (see `postgres.py`). SQLite runs in WAL mode with full sync: what was committed survives a power cut, and readers
never wait for the writer.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import sqlite3
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from queueyard.ops.errors import LedgerFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

Row = tuple[Any, ...]

#: pages of 16 KiB hold a few documents each, and need half the writes of small ones for texts of some KiB
_PAGE_BYTES = 16_384
_CHECKPOINT_PAGES = 2_048
_BUSY_MS = 10_000
#: more of them take memory and a longer start, fewer take more writing
_INDEXED_TOGETHER = 8_192


class Connection(Protocol):
    """One thread's line to the database."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Run one statement and take all that it gives."""

    def run_many(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each set of values."""

    def writing(self) -> AbstractContextManager[None]:
        """A transaction that writes: all of it when the block ends, nothing if it raises."""

    def reading(self) -> AbstractContextManager[None]:
        """Everything that is read within is of one moment."""

    def close(self) -> None: ...


class Database(Protocol):
    """Where a ledger lives."""

    #: types of columns, where the dialects differ
    types: ClassVar[dict[str, str]]
    #: behind the SELECT that locks a space until the transaction ends
    lock_rows: str
    #: how many transactions can be under way at once
    writers: int
    #: whether batches of several spaces may share a transaction
    groups_commits: bool
    #: how many texts are indexed together (see `texts.py`), which asks for one writer; 0: each at once
    indexed_together: int

    def connect(self) -> Connection:
        """A new line. LedgerFailed if there is no database, or none that we know."""

    def describe(self) -> str:
        """What and where it is, without any password."""


class SqliteDatabase:
    """One file, one writer."""

    types: ClassVar[dict[str, str]] = {
        "bytes": "BLOB",
        "hash": "BLOB NOT NULL",
        "number": "INTEGER",
        "key": "TEXT",
        "serial": "INTEGER PRIMARY KEY",
        "table": "WITHOUT ROWID",
    }
    lock_rows = ""
    writers = 1
    groups_commits = True

    def __init__(self, path: Path, *, synchronous: str = "FULL", indexed_together: int = _INDEXED_TOGETHER) -> None:
        self.path = path
        self.indexed_together = indexed_together
        self._synchronous = synchronous

    def connect(self) -> SqliteConnection:
        try:
            line = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, cached_statements=256)
            line.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            line.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            line.execute("PRAGMA journal_mode = WAL")
            line.execute(f"PRAGMA synchronous = {self._synchronous}")
            line.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            line.execute("PRAGMA cache_size = -16384")
            line.execute("PRAGMA temp_store = MEMORY")
        except sqlite3.Error as fault:
            raise LedgerFailed(f"cannot open {self.path}: {fault}", hint="jolli-ops doctor --data DIR") from fault
        return SqliteConnection(line)

    def describe(self) -> str:
        return str(self.path)


class SqliteConnection:
    def __init__(self, line: sqlite3.Connection) -> None:
        self._line = line

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        with _explained():
            return self._line.execute(sql, values).fetchall()

    def run_many(self, sql: str, many: Iterable[Sequence[Any]]) -> None:
        with _explained():
            self._line.executemany(sql, many)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self.rows("BEGIN IMMEDIATE")
        try:
            yield
            self.rows("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already.
            with suppress(LedgerFailed):
                self.rows("ROLLBACK")
            raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.rows("BEGIN")
        try:
            yield
        finally:
            self.rows("ROLLBACK")

    def close(self) -> None:
        self._line.close()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as fault:
        raise LedgerFailed(f"the database refused: {fault}", hint="jolli-ops doctor --data DIR") from fault
