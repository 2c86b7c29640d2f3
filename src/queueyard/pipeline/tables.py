"""Tables: Parquet that Spark writes, and a Delta log that says which of its files count.

What Spark wrote and nobody committed is garbage, never data. Spark reads the files that the log names, natively; that
is sound because nobody here ever writes deletion vectors.
"""

from __future__ import annotations

from functools import reduce
import json
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote

from deltalake import Schema
from deltalake.transaction import AddAction
import msgspec
import pyarrow.fs
import pyarrow.parquet
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from queueyard.kernel.ids import new_ulid
from queueyard.pipeline.delta import DeltaLog, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from queueyard.pipeline.delta import File
    from queueyard.pipeline.schemas import TableSpec


#: how the folder of a partition without a value is named
_NULL = "__HIVE_DEFAULT_PARTITION__"
#: of a text that is kept as a bound in the log
_LONGEST_BOUND = 256
_NO_LAST_BATCH = (1 << 63) - 1


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Parquet files that are there and not yet committed."""

    files: list[AddAction]
    rows: int

    @classmethod
    def of(cls, files: list[AddAction]) -> Written:
        return cls(files=files, rows=sum(json.loads(file.stats)["numRecords"] for file in files))


class Table:
    """One table below the pipeline's home, which is a folder or any address that Spark and delta-rs both know."""

    def __init__(self, spark: SparkSession, home: str, spec: TableSpec) -> None:
        self._spark = spark
        self.spec = spec
        self.address = f"{home.rstrip('/')}/{spec.name}"
        self.log = DeltaLog(self.address)

    def read(self, keep: Callable[[File], bool] = lambda _: True) -> DataFrame:
        """What is committed; only files that `keep` likes. Empty where there is no table."""
        return self._read([file.path for file in self.log.files() if keep(file)], self.spec.schema)

    def _read(self, files: Sequence[str], schema: StructType) -> DataFrame:
        # Spark wants all paths of one read to have folders of the same names. Whoever compacts makes none for a write,
        # and not every write is split.
        alike: dict[tuple[str, ...], list[str]] = {}
        for file in files:
            alike.setdefault(tuple(name for name, _ in _folders_of(file)), []).append(f"{self.address}/{file}")
        frames = [
            self._spark.read.schema(schema)
            .option("basePath", self.address)
            .parquet(*paths)
            .select(*schema.fieldNames())
            for paths in alike.values()
        ]
        return reduce(DataFrame.unionByName, frames) if frames else self._spark.createDataFrame([], schema)

    def read_written(self, written: Written, split_by: str | None = None) -> DataFrame:
        """What was written and is not committed yet; with the column that it was split by."""
        more = [] if split_by is None else [T.StructField(split_by, T.StringType())]
        return self._read([file.path for file in written.files], T.StructType([*self.spec.schema.fields, *more]))

    def since(self, batch: int, keep: Callable[[File], bool] = lambda _: True, *, upto: int | None = None) -> DataFrame:
        """The rows of all batches behind this one, and up to and with that one; only their files are opened."""
        last = upto if upto is not None else _NO_LAST_BATCH
        files = [file for file in self.log.files() if file.upto > batch and file.since <= last and keep(file)]
        rows = self._read([file.path for file in files], self.spec.schema)
        # Without the number of a batch in it, the plan of the next one is the same, and is not compiled again.
        if any(file.since <= batch for file in files):
            rows = rows.where(F.col("batch") > batch)
        return rows.where(F.col("batch") <= last) if any(file.upto > last for file in files) else rows

    def touched(self, key: Sequence[str], batch: int) -> DataFrame:
        """All rows, new and old, of every key that has a row in a batch behind this one."""
        if batch < 0:
            return self.read()
        keys = self.since(batch).select(*key).distinct()
        return self.read().where(self._is_near(batch)).join(keys, on=list(key), how="left_semi")

    def _is_near(self, batch: int) -> Column:
        """Whether a row is between the least and the greatest of the rows behind this batch, as the log has them."""
        column = self.spec.ranged_by
        newer = [file for file in self.log.files() if file.upto > batch]
        if column is None or not newer or any(file.least.get(column) is None for file in newer):
            return F.lit(True)
        return F.col(column).between(
            min(file.least[column] for file in newer), max(file.most[column] for file in newer)
        )

    def write(self, frame: DataFrame) -> Written:
        """Write Parquet beside what is committed. Nobody sees it before `commit`."""
        return Written.of(self._write(frame, self.spec.partition_by))

    def write_split(self, frame: DataFrame, column: str) -> tuple[Written, Written]:
        """The same in one pass for rows in which a column is null, and for the others, which are no rows of the table.

        Of the others there should be few values, since each has a folder.
        """
        files = self._write(frame, (column, *self.spec.partition_by))
        ours = [file for file in files if (column, _NULL) in _folders_of(file.path)]
        return Written.of(ours), Written.of([file for file in files if file not in ours])

    def _write(self, frame: DataFrame, partition_by: Sequence[str]) -> list[AddAction]:
        # Each write has a folder of its own, so that its files are found by one listing. The folder is named like a
        # partition, since Spark takes no other folders above those of partitions.
        folder = f"write={new_ulid()}"
        target = f"{self.address}/{folder}"
        # `dict` keeps the order, and names a partition of the table once.
        writer = frame.select(*dict.fromkeys((*self.spec.schema.fieldNames(), *partition_by))).write.mode("append")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        writer.parquet(target)
        # A file without rows says nothing, and would be opened by every reader.
        return [
            self._add_action(path, size_bytes, footer, folder=folder)
            for path, size_bytes, footer in _listed(target)
            if footer.num_rows
        ]

    def commit(
        self,
        written: Written,
        *,
        batch: int,
        note: Mapping[str, Any] | None = None,
        mode: Literal["append", "overwrite"] = "append",
    ) -> bool:
        """Make files count, once per batch: False, and nothing changed, if this batch is committed already."""
        if self.log.batch() >= batch:
            return False
        self.log.commit(written.files, self._schema(), self.spec.partition_by, batch=batch, mode=mode, note=note)
        return True

    def overwrite(
        self, written: Written, *, only: list[tuple[str, str, Any]] | None = None, note: Mapping[str, Any] | None = None
    ) -> None:
        """Put these files in place of all others, or of those in the partitions `only`; the batch stays what it is."""
        self.log.commit(
            written.files, self._schema(), self.spec.partition_by, batch=None, mode="overwrite", note=note, only=only
        )

    def _add_action(self, path: str, size_bytes: int, footer: pyarrow.parquet.FileMetaData, folder: str) -> AddAction:
        named = {name: None if value == _NULL else unquote(value) for name, value in _folders_of(path)}
        bounds = _bounds_in(footer, {"batch", self.spec.ranged_by})
        return AddAction(
            path=f"{folder}/{path}",
            size=size_bytes,
            partition_values={name: named[name] for name in self.spec.partition_by},
            modification_time=now_ms(),
            data_change=True,
            stats=json.dumps(
                {
                    "numRecords": footer.num_rows,
                    "minValues": {name: least for name, (least, _) in bounds.items()},
                    "maxValues": {name: most for name, (_, most) in bounds.items()},
                }
            ),
        )

    def _schema(self) -> Schema:
        return Schema.from_arrow(to_arrow_schema(self.spec.schema, timezone="UTC"))


def is_near(column: str, rows: DataFrame) -> Column:
    """Whether a value is between the least and the greatest of these rows, which are looked at for this."""
    least, most = rows.agg(F.min(column), F.max(column)).collect()[0]
    # Without any rows there is nothing near them.
    return F.lit(False) if least is None else F.col(column).between(least, most)


def _listed(target: str) -> Iterator[tuple[str, int, pyarrow.parquet.FileMetaData]]:
    """(path below the target, bytes, footer) of every Parquet file that a write left there."""
    system, root = pyarrow.fs.FileSystem.from_uri(target)
    for found in system.get_file_info(pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True)):
        if found.extension == "parquet" and found.is_file:
            footer = pyarrow.parquet.read_metadata(found.path, filesystem=system)
            yield found.path.removeprefix(root).lstrip("/"), found.size, footer


def _bounds_in(footer: pyarrow.parquet.FileMetaData, columns: Collection[str | None]) -> dict[str, tuple[Any, Any]]:
    """(least, greatest) of those of the columns that are in the file and have values in every part of it."""
    found: dict[str, tuple[Any, Any]] = {}
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    for name in places.keys() & columns:
        groups = [footer.row_group(number).column(places[name]) for number in range(footer.num_row_groups)]
        if groups and all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            bounds = [group.statistics for group in groups]
            found[name] = min(one.min for one in bounds), max(one.max for one in bounds)
    return {name: both for name, both in found.items() if all(len(str(one)) <= _LONGEST_BOUND for one in both)}


def _folders_of(path: str) -> list[tuple[str, str]]:
    """(name, value) of the folders above a file."""
    named = [folder.partition("=") for folder in path.split("/")[:-1]]
    return [(name, value) for name, _, value in named]
