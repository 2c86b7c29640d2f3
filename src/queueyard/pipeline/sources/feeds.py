"""The change feed and the audit stream of ops servers, as a data source of Spark: `format("queueyard_feeds")`.

Batch: option `ranges` (a JSON list of sequences.Range). Streaming: option `feeds` (a JSON list of feed_client.Feed),
and the offsets are sequences.Marks. Option `token` is the bearer token, which stands in no table and no note; the
option has a name that Spark's own redaction knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import record_batch
from queueyard.pipeline.sources.feed_client import Feed, look, pages
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of
from queueyard.pipeline.sources.sequences import Mark, Marks, Range, Seen, between, plan, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

_STREAMS = {"changes": "ops.changes", "audit": "ops.audit"}
_ENTRIES_PER_TASK = 50_000
_MOST_ENTRIES_PER_MICRO_BATCH = 500_000


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


_NUMBERED = msgspec.json.Decoder(_Numbered)


class FeedSource(DataSource):
    """Entries of feeds."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_feeds"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return _FeedReader(
            _parts(msgspec.json.decode(self.options["ranges"], type=list[Range])), self.options.get("token")
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        feeds = msgspec.json.decode(self.options["feeds"], type=list[Feed])
        return _FeedStreamReader(feeds, self.options.get("token"))


class _FeedReader(PlannedReader):
    def __init__(self, pieces: list[Range], token: str | None) -> None:
        super().__init__(pieces)
        self._token = token

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(msgspec.json.decode(partition.value, type=Range), self._token)


class _FeedStreamReader(LookingReader[Seen]):
    def __init__(self, feeds: list[Feed], token: str | None) -> None:
        self._feeds = feeds
        self._token = token

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(_MOST_ENTRIES_PER_MICRO_BATCH)

    def look(self) -> list[Seen]:
        return look(self._feeds, self._token)

    def marks_after(self, start: dict[str, Any], seen: list[Seen], limit: ReadLimit) -> Marks:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(feed.head for feed in seen)
        return plan(_marks(start), seen, most_entries=most)[1]

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return partitions_of(_parts(between(_marks(start), _marks(end))))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(msgspec.json.decode(partition.value, type=Range), self._token)


def read_range(piece: Range, token: str | None) -> Iterator[pa.RecordBatch]:
    """The entries of a range, page by page."""
    return (_record_batch(piece, entries) for entries in pages(piece, token))


def _record_batch(piece: Range, entries: list[msgspec.Raw]) -> pa.RecordBatch:
    return record_batch(
        stream=_STREAMS[piece.kind],
        place=piece.place,
        file=f"{piece.space}/{piece.kind}",
        generation=piece.generation,
        positions=[_NUMBERED.decode(entry).seq for entry in entries],
        raw=[bytes(entry).decode() for entry in entries],
    )


def _parts(ranges: Iterable[Range]) -> list[Range]:
    return [part for one in ranges for part in split(one, most_entries=_ENTRIES_PER_TASK)]


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, dict[str, Mark]])
