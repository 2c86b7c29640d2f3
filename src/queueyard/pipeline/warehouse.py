"""All tables of one home, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queueyard.pipeline import schemas
from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.lock import lock_of
from queueyard.pipeline.silver import attempts, files, folding, items
from queueyard.pipeline.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from queueyard.kernel.locks import FileLock
    from queueyard.pipeline.delta import File
    from queueyard.pipeline.schemas import TableSpec

#: the number of the batch that a row came with, and what else only the next fold needs
_BOOKKEEPING = ("batch",)


class Warehouse:
    """The tables below one address, and what a person means by each."""

    def __init__(self, spark: SparkSession, home: str, lock: FileLock | None = None) -> None:
        """`lock` is that of the home, if it is held already."""
        self.spark = spark
        self.home = home
        self.lock = lock or lock_of(home)
        self.lines = self.table(schemas.LINES)
        self.quarantine = self.table(schemas.QUARANTINE)
        self.events = self.table(schemas.EVENTS)
        self.items = self.table(schemas.ITEMS)
        self.attempts = self.table(schemas.ATTEMPTS)
        self.messages = self.table(schemas.MESSAGES)
        self.assignments = self.table(schemas.ASSIGNMENTS)
        self.reservations = self.table(schemas.RESERVATIONS)
        self.file_versions = self.table(schemas.FILE_VERSIONS)
        self.files = self.table(schemas.FILES)

    def table(self, spec: TableSpec) -> Table:
        return Table(self.spark, self.home, spec)

    def view(self, name: str) -> DataFrame:
        """A silver table as people read it: parts added up, no book-keeping."""
        return _VIEWS[name](self)

    def view_of_events(self, keep: Callable[[File], bool] = lambda _: True) -> DataFrame:
        """The same for events, which have a file for each day; only of files that `keep` likes."""
        return self.events.read(keep).drop(*_BOOKKEEPING, "day")

    def log_of(self, name: str) -> DeltaLog:
        """The log of a silver table."""
        return DeltaLog(f"{self.home}/silver/{name}")


def _folded(table: Table, schema: StructType) -> DataFrame:
    return folding.view(table.read(), schema)


_VIEWS: dict[str, Callable[[Warehouse], DataFrame]] = {
    "events": Warehouse.view_of_events,
    "items": lambda house: items.merged(house.items.read()).drop(*_BOOKKEEPING),
    "attempts": lambda house: attempts.view(house.attempts.read()),
    "messages": lambda house: _folded(house.messages, schemas.MESSAGE),
    "assignments": lambda house: _folded(house.assignments, schemas.ASSIGNMENT),
    "reservations": lambda house: _folded(house.reservations, schemas.RESERVATION),
    "file_versions": lambda house: files.distinct_versions(house.file_versions.read()).drop(*_BOOKKEEPING),
    "files": lambda house: files.merged(house.files.read()).drop(*_BOOKKEEPING),
}
VIEW_NAMES = tuple(_VIEWS)
