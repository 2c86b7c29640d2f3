"""panqueue's event streams by entry id, as a data source of Spark: `format("queueyard_streams")`.

Batch: option `ranges` (a JSON list of entries.Range). Streaming: the streams are found anew for each micro-batch, and
the offsets are entries.Marks. Both need option `secret`, a JSON object of place -> URL: the URL may hold a password and
goes nowhere else; the option has a name that Spark's own redaction knows.

Reading takes nothing away. An entry becomes one JSON object of its id and its fields, all texts.
"""

from __future__ import annotations

from itertools import groupby, starmap
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import record_batch, split_lines
from queueyard.pipeline.sources.entries import Mark, Marks, Range, Seen, between, plan, queue_of, tasks
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of
from queueyard.pipeline.sources.redis_client import Entry, Secrets, asking, look, pages

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

STREAM = "panqueue.events"
_ENTRIES_PER_TASK = 50_000
_MOST_ENTRIES_PER_MICRO_BATCH = 1_000_000
_ID = r"^(?P<milliseconds>\d+)-(?P<sequence>\d+)$"
_HIGHEST_LONG = pa.scalar((1 << 63) - 1, pa.uint64())
_ENCODER = msgspec.json.Encoder()


class RedisSource(DataSource):
    """Entries of event streams."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_streams"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        ranges = msgspec.json.decode(self.options["ranges"], type=list[Range])
        return _EntryReader(tasks(ranges, most_entries=_ENTRIES_PER_TASK), _secrets(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _EntryStreamReader(_secrets(self.options))


class _EntryReader(PlannedReader):
    def __init__(self, pieces: list[list[Range]], secrets: Secrets) -> None:
        super().__init__(pieces)
        self._secrets = secrets

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._secrets)


class _EntryStreamReader(LookingReader[Seen]):
    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(_MOST_ENTRIES_PER_MICRO_BATCH)

    def look(self) -> list[Seen]:
        return look(self._secrets)

    def marks_after(self, start: dict[str, Any], seen: list[Seen], limit: ReadLimit) -> Marks:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(stream.length + 1 for stream in seen)
        return plan(_marks(start), seen, most_entries=most).marks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ranges = between(_marks(start), _marks(end))
        return partitions_of(tasks(ranges, most_entries=_ENTRIES_PER_TASK))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition, self._secrets)


def read_ranges(ranges: Iterable[Range], secrets: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The entries of each range, page by page."""
    for place, of_place in groupby(ranges, key=lambda one: one.place):
        with asking(place, secrets[place]) as client:
            for one in of_place:
                yield from (_record_batch(one, page) for page in pages(one, client))


def _read(partition: InputPartition, secrets: Secrets) -> Iterator[pa.RecordBatch]:
    return read_ranges(msgspec.json.decode(partition.value, type=list[Range]), secrets)


def _record_batch(piece: Range, page: list[Entry]) -> pa.RecordBatch:
    ids = pc.extract_regex(pa.array([entry[0] for entry in page], pa.string()), _ID)
    return record_batch(
        stream=STREAM,
        place=piece.place,
        file=queue_of(piece.key),
        generation=piece.generation,
        positions=_as_long(ids.field("milliseconds")),
        minors=_as_long(ids.field("sequence")),
        raw=split_lines(_ENCODER.encode_lines(starmap(_as_object, page))).cast(pa.string()),
    )


def _as_object(entry_id: str, words: list[str] | dict[str, str]) -> dict[str, str]:
    fields = words if isinstance(words, dict) else dict(zip(words[::2], words[1::2], strict=True))
    # A field that calls itself `id` is not the id.
    fields["id"] = entry_id
    return fields


def _as_long(numbers: pa.Array) -> pa.Array:
    """Ids may be higher than a long is, positions may not."""
    return pc.min_element_wise(numbers.cast(pa.uint64()), _HIGHEST_LONG).cast(pa.int64())


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, dict[str, Mark]])


def _secrets(options: Mapping[str, str]) -> Secrets:
    return msgspec.json.decode(options["secret"], type=Secrets)
