"""Growing JSONL files by byte offset, as a data source of Spark: `format("queueyard_lines")`.

Batch: option `spans` names the ranges (a JSON list of spans.Span). Streaming: option `origins` names the files (a JSON
list of spans.Origin), and the offsets of the stream are spans.Marks. A half line is never given; rotation, truncation
and replacement are recognised (spans.py). Local and network file systems only: object stores have no growing files.

Only the columns of the schema that is asked for are made. Two come beside those of schemas.RECORD: `record`, a struct
of fields of the line, null where only Spark can read it (parsing.py), and with it `rest`: the text of just those lines
of which `record` does not tell all, because it is null or because the line may hold a null of its own. Option `shapes`
(JSON: stream -> parsing.Shape) says which types the fields of a line must have to be read; else those of `record`.

Option `fold` (JSON: parts.Fold) asks for parts in place of lines: what stands in a block about the same record comes as
one row. A block with a `rest` or without a key in some line comes line by line.
"""

from __future__ import annotations

from itertools import chain
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.blocks import Columns, batch_of
from queueyard.pipeline.sources.looking import cannot_read, look, paths_in, with_renamed
from queueyard.pipeline.sources.parts import Fold
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of
from queueyard.pipeline.sources.spans import Mark, Marks, Origin, Seen, Span, between, plan, split

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

#: How much one task reads: as much as of Spark's own file source where there is enough for all cores. Every task writes
#: a file of its own, and what Parquet learns about the values, it learns anew for each file.
_MOST_BYTES_PER_PIECE = 128 << 20
_LEAST_BYTES_PER_PIECE = 32 << 20
_ENOUGH_PIECES = 8
_BLOCK_BYTES = 4 << 20
#: The more lines are folded together, the fewer parts are left for Spark.
_BLOCK_BYTES_TO_FOLD = 16 << 20
_FROM_BEHIND_BYTES = 64 << 10
_MOST_BYTES_PER_MICRO_BATCH = 1 << 30
_EVERY_COLUMN = Columns.of(RECORD, {})


class LineSource(DataSource):
    """Lines with their offsets."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_lines"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:
        return _LineReader(_pieces(msgspec.json.decode(self.options["spans"], type=list[Span])), self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _LineStreamReader(msgspec.json.decode(self.options["origins"], type=list[Origin]), self._columns(schema))

    def _columns(self, schema: StructType) -> Columns:
        shapes = msgspec.json.decode(self.options.get("shapes", "{}"), type=dict[str, dict[str, str]])
        fold = msgspec.json.decode(self.options.get("fold", "null"), type=Fold | None)
        return Columns.of(schema, shapes, fold)


class _LineReader(PlannedReader):
    def __init__(self, pieces: list[Span], columns: Columns) -> None:
        super().__init__(pieces)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_span(msgspec.json.decode(partition.value, type=Span), self._columns)


class _LineStreamReader(LookingReader[Seen]):
    def __init__(self, origins: list[Origin], columns: Columns) -> None:
        self._origins = origins
        self._columns = columns

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(_MOST_BYTES_PER_MICRO_BATCH)

    def look(self) -> list[Seen]:
        return look(self._origins)

    def marks_after(self, start: dict[str, Any], seen: list[Seen], limit: ReadLimit) -> Marks:
        marks = _marks(start)
        files = with_renamed(seen, self._origins, marks)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else sum(file.end for file in files)
        return plan(marks, files, most_bytes=most)[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return partitions_of(_pieces(between(_marks(start), _marks(end), self._origins)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_span(msgspec.json.decode(partition.value, type=Span), self._columns)


def read_span(span: Span, columns: Columns = _EVERY_COLUMN) -> Iterator[pa.RecordBatch]:
    """The lines that start in the span, in blocks. SourceFailed if the file is gone or shorter by now."""
    descriptor = _open(span)
    try:
        offset = _first_line_start(descriptor, span.start)
        usual = size = _BLOCK_BYTES if columns.fold is None else _BLOCK_BYTES_TO_FOLD
        while offset < span.end:
            block = os.pread(descriptor, size, offset)
            cut = block.rfind(b"\n") + 1
            if cut:
                yield batch_of(span, offset, block, cut, columns)
                offset += cut
                size = usual
            elif len(block) < size:
                raise _changed(span.path)
            else:
                # A line that is longer than that.
                size *= 2
    finally:
        os.close(descriptor)


def _open(span: Span) -> int:
    """The file that was planned, also where it was renamed in its folder since."""
    renamed = (path for _, path in paths_in(Path(span.path).parent, {span.inode}))
    for path in chain([span.path], renamed):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError as fault:
            raise cannot_read(path, fault) from fault
        if os.fstat(descriptor).st_ino == span.inode:
            return descriptor
        os.close(descriptor)
    raise _changed(span.path)


def _first_line_start(descriptor: int, start: int) -> int:
    """Where the first line begins that starts at `start` or behind it; the end of the file if there is none."""
    position = start - 1
    while position >= 0:
        block = os.pread(descriptor, _FROM_BEHIND_BYTES, position)
        found = block.find(b"\n")
        if found >= 0 or not block:
            return position + found + 1 if found >= 0 else position
        position += len(block)
    return 0


def _pieces(spans: Sequence[Span]) -> list[Span]:
    shared = sum(span.end - span.start for span in spans) // _ENOUGH_PIECES
    size = min(max(shared, _LEAST_BYTES_PER_PIECE), _MOST_BYTES_PER_PIECE)
    return [piece for span in spans for piece in split(span, most_bytes=size)]


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, Mark])


def _changed(path: str) -> SourceFailed:
    return SourceFailed(f"{path} was replaced while it was read", hint="Run it again: queueyard pipeline run")
