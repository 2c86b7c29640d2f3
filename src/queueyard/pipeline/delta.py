"""The Delta log of one table: which Parquet files count. Needs no Spark and no Java.

A commit names the batch that it belongs to (an application transaction), so that a batch that is run again commits
nothing twice. Every commit carries a note, a small JSON object that the next one inherits unless it brings its own: for
bronze, how far each source was read.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, Transaction, create_table_with_add_actions
import msgspec
import pyarrow.fs
import pyarrow.parquet

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.pipeline.errors import TableTooNew

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import deltalake

#: counts up when the meaning of a table changes; a table of a higher number is not touched
LAYOUT = 1
_WRITER = "queueyard"
_OURS = "queueyard"


class File(msgspec.Struct, frozen=True, kw_only=True):
    """One Parquet file that counts."""

    #: below the table
    path: str
    #: what its folders say, as text
    partition: dict[str, str | None]
    #: what no value of a column is below or above; of some columns, and of none where it has no rows
    least: dict[str, Any]
    most: dict[str, Any]

    @property
    def since(self) -> int:
        """The first batch that has a row in it."""
        return self._batch(self.least)

    @property
    def upto(self) -> int:
        """The last batch that has a row in it."""
        return self._batch(self.most)

    def _batch(self, bounds: dict[str, Any]) -> int:
        found = self.partition.get("batch") or bounds.get("batch")
        return -1 if found is None else int(found)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What a log said at one moment. Opening a log takes some milliseconds, so who asks for much asks once."""

    #: tells this table from one that was made anew at the same address; None where there is none
    identity: str | None = None
    #: the last batch that was committed; -1 before the first
    batch: int = -1
    #: what the last commit carries
    note: dict[str, Any] = {}
    #: every file that counts
    files: list[File] = []


class DeltaLog:
    """The log at one address: a folder, or anything that delta-rs knows."""

    def __init__(self, address: str) -> None:
        self.address = address
        # A commit that carries the note of the one before must not be begun before that one.
        self._writing = Lock()

    def exists(self) -> bool:
        return self._open() is not None

    def seen(self) -> Seen:
        """Everything at once; as of no table where there is none."""
        log = self._open()
        if log is None:
            return Seen()
        return Seen(
            identity=str(log.metadata().id), batch=_batch_of(log), note=_note_of(log), files=list(_files_of(log))
        )

    def files(self) -> list[File]:
        """Every file that counts."""
        log = self._open()
        return [] if log is None else list(_files_of(log))

    def batch(self) -> int:
        """The last batch that was committed; -1 before the first."""
        log = self._open()
        return -1 if log is None else _batch_of(log)

    def note(self) -> dict[str, Any]:
        """What the last commit carries."""
        log = self._open()
        return {} if log is None else _note_of(log)

    def rows(self) -> int:
        """How many rows are committed, without reading any."""
        log = self._open()
        if log is None:
            return 0
        counts = log.get_add_actions(flatten=False).column("num_records").to_pylist()
        return sum(int(count) for count in counts if count is not None)

    def columns(self) -> list[tuple[str, str]]:
        """(name, type) of every column; empty where there is no table."""
        log = self._open()
        return [] if log is None else [(field.name, str(field.type)) for field in log.schema().fields]

    def read_rows(self) -> list[dict[str, Any]]:
        """Every row; for small tables that people look at."""
        log = self._open()
        return [] if log is None else [row for file in log.file_uris() for row in _rows_of(file)]

    def committed_at(self) -> str | None:
        """When the last commit was made: RFC 3339, or None where there is none."""
        log = self._open()
        if log is None:
            return None
        from datetime import UTC, datetime  # noqa: PLC0415

        from queueyard.kernel.clock import to_rfc3339  # noqa: PLC0415

        return to_rfc3339(datetime.fromtimestamp(log.history(1)[0]["timestamp"] / 1000, UTC))

    def commit(
        self,
        files: Sequence[AddAction],
        schema: deltalake.Schema,
        partition_by: Sequence[str],
        *,
        batch: int | None,
        mode: Literal["append", "overwrite"] = "append",
        note: Mapping[str, Any] | None = None,
        only: list[tuple[str, str, Any]] | None = None,
    ) -> None:
        """Make files count. With `overwrite` they take the place of all others, or of the partitions in `only`."""
        with self._writing:
            log = self._open()
            carried = dict(note) if note is not None else ({} if log is None else _note_of(log))
            properties = CommitProperties(
                custom_metadata={_OURS: json.dumps({"layout": LAYOUT, "note": carried})},
                app_transactions=None if batch is None else [Transaction(_WRITER, batch, now_ms())],
            )
            if log is None:
                create_table_with_add_actions(
                    self.address,
                    schema,
                    list(files),
                    mode="error",
                    partition_by=list(partition_by),
                    commit_properties=properties,
                )
            else:
                log.create_write_transaction(
                    list(files),
                    mode,
                    log.schema(),
                    partition_by=list(partition_by),
                    partition_filters=only,
                    commit_properties=properties,
                )

    def compact(self) -> int:
        """Put small files together, partition by partition; gives how many files are gone. Rows stay as they are."""
        with self._writing:
            log = self._open()
            if log is None:
                return 0
            return int(log.optimize.compact(commit_properties=_as_before(log))["numFilesRemoved"])

    def vacuum(self, *, hours: int) -> list[str]:
        """Delete files that no version of the last `hours` needs, and older ones that were never committed.

        Gives their names. Nobody else may be writing to the table.
        """
        log = self._open()
        if log is None:
            return []
        before = _parquet_at(self.address)
        log.vacuum(
            retention_hours=hours,
            dry_run=False,
            enforce_retention_duration=False,
            full=True,
            commit_properties=_as_before(log),
        )
        # It names files that were deleted long ago as well, and checksums that Hadoop has put beside others.
        return sorted(before - _parquet_at(self.address))

    def _open(self) -> DeltaTable | None:
        try:
            log = DeltaTable(self.address)
        except TableNotFoundError:
            return None
        except DeltaError as fault:
            if "Unsupported" in str(fault):
                raise self._too_new(str(fault)) from fault
            raise
        found = _told(log).get("layout", LAYOUT)
        if found > LAYOUT:
            raise self._too_new(f"it has layout {found}, and this version knows {LAYOUT}")
        # Whoever reads by the list of files, as Spark does here, would see rows that are deleted.
        if "deletionVectors" in (log.protocol().reader_features or []):
            raise self._too_new("somebody has turned deletion vectors on for it")
        return log

    def _too_new(self, why: str) -> TableTooNew:
        return TableTooNew(f"cannot use {self.address}: {why}", hint="Type: pip install --upgrade queueyard")


def _rows_of(file: str) -> list[dict[str, Any]]:
    system, path = pyarrow.fs.FileSystem.from_uri(file)
    # Without threads: some that still read ahead when the process ends make it abort. The folder of a write is named
    # like a partition, and is none.
    table = pyarrow.parquet.read_table(path, filesystem=system, partitioning=None, use_threads=False, pre_buffer=False)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _parquet_at(address: str) -> set[str]:
    system, root = pyarrow.fs.FileSystem.from_uri(address)
    found = system.get_file_info(pyarrow.fs.FileSelector(root, recursive=True))
    return {one.path for one in found if one.extension == "parquet"}


def now_ms() -> int:
    return int(SYSTEM_CLOCK.now().timestamp() * 1000)


def _batch_of(log: DeltaTable) -> int:
    found = log.transaction_version(_WRITER)
    return -1 if found is None else int(found)


def _files_of(log: DeltaTable) -> Iterator[File]:
    actions = log.get_add_actions(flatten=False)
    paths = actions.column("path").to_pylist()
    nothing: list[Any] = [{}] * len(paths)
    values, least, most = (
        actions.column(name).to_pylist() if name in actions.schema.names else nothing
        for name in ("partition", "min", "max")
    )
    for path, partition, low, high in zip(paths, values, least, most, strict=True):
        named = {name: None if value is None else str(value) for name, value in (partition or {}).items()}
        yield File(path=path, partition=named, least=low or {}, most=high or {})


def _told(log: DeltaTable) -> dict[str, Any]:
    """What the newest commit of ours says; maintenance by other tools may stand in between."""
    # The newest is ours but for rare exceptions, and the whole history of a busy table is long.
    for limit in (1, None):
        for entry in log.history(limit):
            text = entry.get(_OURS)
            if text:
                found: dict[str, Any] = json.loads(text)
                return found
    return {}


def _as_before(log: DeltaTable) -> CommitProperties:
    """For a commit that changes no row: it says what the one before said, so that nobody has to look further back."""
    return CommitProperties(custom_metadata={_OURS: json.dumps(_told(log))})


def _note_of(log: DeltaTable) -> dict[str, Any]:
    note: dict[str, Any] = _told(log).get("note", {})
    return note
