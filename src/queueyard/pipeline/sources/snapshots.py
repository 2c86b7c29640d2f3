"""Rewritten JSON files by their content, as a data source of Spark: `format("queueyard_snapshots")`.

Batch: option `snapshots` (a JSON list of digests.Snapshot). Streaming: option `origins` (a JSON list of
digests.Origin), and the offsets are digests.Marks. Each record is one whole file; its position is the time of its last
change in nanoseconds. What stood in a file between two looks is never seen, and a file that is rewritten while it is
read is read again the next time: reading something twice is harmless further on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import record_batch
from queueyard.pipeline.sources.digests import (
    Look,
    Mark,
    Marks,
    Origin,
    Snapshot,
    between,
    of_those_there,
    plan,
    suspects,
    tasks,
)
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of
from queueyard.pipeline.sources.snapshot_files import content_of, look, opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

_BYTES_PER_TASK = 32 << 20


class SnapshotSource(DataSource):
    """Whole files."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_snapshots"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        snapshots = msgspec.json.decode(self.options["snapshots"], type=list[Snapshot])
        return _SnapshotReader(tasks(snapshots, most_bytes=_BYTES_PER_TASK))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _SnapshotStreamReader(msgspec.json.decode(self.options["origins"], type=list[Origin]))


class _SnapshotReader(PlannedReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_snapshots(msgspec.json.decode(partition.value, type=list[Snapshot]))


class _SnapshotStreamReader(LookingReader[Look]):
    def __init__(self, origins: list[Origin]) -> None:
        self._origins = origins

    def look(self) -> list[Look]:
        return look(self._origins)

    def marks_after(self, start: dict[str, Any], seen: list[Look], limit: ReadLimit) -> Marks:  # noqa: ARG002
        marks = of_those_there(_marks(start), self._origins, seen)
        return plan(marks, opened(suspects(marks, seen)))[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        snapshots = between(_marks(start), _marks(end), self._origins)
        return partitions_of(tasks(snapshots, most_bytes=_BYTES_PER_TASK))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_snapshots(msgspec.json.decode(partition.value, type=list[Snapshot]))


def read_snapshots(snapshots: Iterable[Snapshot]) -> Iterator[pa.RecordBatch]:
    """Each file whole, as one record. One that is gone by now is no record."""
    for one in snapshots:
        content = content_of(one.path)
        if content is not None:
            yield record_batch(
                stream=one.stream,
                place=one.place,
                file=one.path,
                generation=0,
                positions=[one.changed_ns],
                raw=[content.decode("utf-8", "replace")],
            )


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, dict[str, Mark]])
