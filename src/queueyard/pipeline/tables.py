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
from pyspark.sql.pandas.types import to_arrow_schema

from queueyard.kernel.ids import new_ulid
from queueyard.pipeline.delta import DeltaLog, now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from queueyard.pipeline.delta import File
    from queueyard.pipeline.schemas import TableSpec


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """Parquet files that are there and not yet committed."""

    files: list[AddAction]
    rows: int


class Table:
    """One table below the pipeline's home, which is a folder or any address that Spark and delta-rs both know."""

    def __init__(self, spark: SparkSession, home: str, spec: TableSpec) -> None:
        self._spark = spark
        self.spec = spec
        self.address = f"{home.rstrip('/')}/{spec.name}"
        self.log = DeltaLog(self.address)

    def read(self, keep: Callable[[File], bool] = lambda _: True) -> DataFrame:
        """What is committed; only files that `keep` likes. Empty where there is no table."""
        files = [file.path for file in self.log.files() if keep(file)]
        # Spark wants all paths of one read to have the same folders, and whoever compacts makes none for a write.
        ours = [file for file in files if file.startswith("write=")]
        theirs = [file for file in files if not file.startswith("write=")]
        frames = [self._read(some) for some in (ours, theirs) if some]
        return reduce(DataFrame.unionByName, frames) if frames else self._read([])

    def _read(self, files: Sequence[str]) -> DataFrame:
        if not files:
            return self._spark.createDataFrame([], self.spec.schema)
        return (
            self._spark.read.schema(self.spec.schema)
            .option("basePath", self.address)
            .parquet(*[f"{self.address}/{file}" for file in files])
            .select(*self.spec.schema.fieldNames())
        )

    def read_written(self, written: Written) -> DataFrame:
        """What was written and is not committed yet."""
        return self._read([file.path for file in written.files])

    def since(self, batch: int, keep: Callable[[File], bool] = lambda _: True) -> DataFrame:
        """The rows of all batches behind this one; only their files are opened."""
        return self.read(lambda file: file.upto > batch and keep(file)).where(F.col("batch") > batch)

    def touched(self, key: Sequence[str], batch: int) -> DataFrame:
        """All rows, new and old, of every key that has a row in a batch behind this one."""
        keys = self.since(batch).select(*key).distinct()
        return self.read().join(keys, on=list(key), how="left_semi")

    def write(self, frame: DataFrame, *, upto: int) -> Written:
        """Write Parquet beside what is committed, with rows up to this batch. Nobody sees it before `commit`."""
        # Each write has a folder of its own, so that its files are found by one listing. The folder is named like a
        # partition, since Spark takes no other folders above those of partitions.
        folder = f"write={new_ulid()}"
        target = f"{self.address}/{folder}"
        writer = frame.select(*self.spec.schema.fieldNames()).write.mode("append")
        if self.spec.partition_by:
            writer = writer.partitionBy(*self.spec.partition_by)
        writer.parquet(target)
        has_batch = "batch" in set(self.spec.schema.fieldNames()) - set(self.spec.partition_by)
        most = {"maxValues": {"batch": upto}} if has_batch else {}
        files = [_add_action(*found, folder=folder, most=most) for found in _listed(target)]
        return Written(files=files, rows=sum(json.loads(file.stats)["numRecords"] for file in files))

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

    def _schema(self) -> Schema:
        return Schema.from_arrow(to_arrow_schema(self.spec.schema, timezone="UTC"))


def _listed(target: str) -> Iterator[tuple[str, int, int]]:
    """(path below the target, bytes, rows) of every Parquet file that a write left there."""
    system, root = pyarrow.fs.FileSystem.from_uri(target)
    for found in system.get_file_info(pyarrow.fs.FileSelector(root, recursive=True, allow_not_found=True)):
        if found.extension == "parquet" and found.is_file:
            rows = pyarrow.parquet.read_metadata(found.path, filesystem=system).num_rows
            yield found.path.removeprefix(root).lstrip("/"), found.size, rows


def _add_action(path: str, size_bytes: int, rows: int, *, folder: str, most: dict[str, Any]) -> AddAction:
    named = [part.partition("=") for part in path.split("/")[:-1]]
    values = {name: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for name, _, value in named}
    return AddAction(
        path=f"{folder}/{path}",
        size=size_bytes,
        partition_values=values,
        modification_time=now_ms(),
        data_change=True,
        stats=json.dumps({"numRecords": rows, **most}),
    )
