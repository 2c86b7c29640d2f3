"""panqueue's event streams by entry id, as a data source of Spark: `format("queueyard_streams")`.

Batch: option `ranges` (a JSON list of entries.Range). Streaming: the streams are found anew for each micro-batch, and
the offsets are entries.Marks. Both need option `secret`, a JSON object of place -> URL: the URL may hold a password and
goes nowhere else, and Spark blackens options of that name wherever it shows them. A place is the URL without its login.

`redis://`, `rediss://`, `valkey://`, `valkeys://` and `unix://`, and a cluster by `redis+cluster://` or by any of its
nodes. Reading takes nothing away. An entry becomes one JSON object of its id and its fields, all texts.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from itertools import groupby, starmap
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import record_batch
from queueyard.pipeline.sources.entries import Mark, Marks, Range, Seen, between, plan, position, queue_of, tasks
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

STREAM = "panqueue.events"
_KEYS = "{q:*}:events"
_ENTRIES_PER_TASK = 100_000
_PAGE_ENTRIES = 10_000
_MOST_ENTRIES_PER_MICRO_BATCH = 1_000_000
_TIMEOUT_S = 30.0
_SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis+cluster": "redis", "rediss+cluster": "rediss"}
_KNOWN = {"redis", "rediss", "unix"} | _SCHEMES.keys()

#: place -> URL with its login
Secrets = dict[str, str]


class RedisSource(DataSource):
    """Entries of event streams."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_streams"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:
        ranges = msgspec.json.decode(self.options["ranges"], type=list[Range])
        return _EntryReader(tasks(ranges, most_entries=_ENTRIES_PER_TASK), _secrets(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
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


def place_of(url: str) -> str:
    """The URL as tables and people may see it: without user, password and files of keys. SourceFailed if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in _KNOWN or not (parts.netloc or parts.path):
        raise SourceFailed(
            f"not a Redis that can be read here: it starts with {parts.scheme[:20]!r}",
            hint="Write redis://host:6379/0, or the address of the master itself where sentinels know it.",
        )
    database = parse_qs(parts.query).get("db")
    query = f"db={database[0]}" if database else ""
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, query, ""))


def look(secrets: Mapping[str, str]) -> list[Seen]:
    """Every event stream as it stands. SourceFailed for a server that cannot be asked."""
    return [seen for place, url in sorted(secrets.items()) for seen in _look_at(place, url)]


def read_ranges(ranges: Iterable[Range], secrets: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The entries of each range, page by page."""
    for place, of_place in groupby(ranges, key=lambda one: one.place):
        with _asking(place, secrets[place]) as client:
            for one in of_place:
                yield from _pages(one, client)


def _read(partition: InputPartition, secrets: Secrets) -> Iterator[pa.RecordBatch]:
    return read_ranges(msgspec.json.decode(partition.value, type=list[Range]), secrets)


def _pages(one: Range, client: Any) -> Iterator[pa.RecordBatch]:
    after = one.after
    while True:
        page = client.execute_command("XRANGE", one.key, f"({after}", one.upto, "COUNT", _PAGE_ENTRIES)
        if page:
            yield _record_batch(one, page)
            after = page[-1][0]
        if len(page) < _PAGE_ENTRIES:
            return


def _record_batch(piece: Range, page: list[tuple[str, list[str]]]) -> pa.RecordBatch:
    places = [position(entry_id) for entry_id, _ in page]
    return record_batch(
        stream=STREAM,
        place=piece.place,
        file=queue_of(piece.key),
        generation=piece.generation,
        positions=[milliseconds for milliseconds, _ in places],
        minors=[sequence for _, sequence in places],
        raw=list(starmap(_as_json, page)),
    )


def _as_json(entry_id: str, words: list[str]) -> str:
    fields = dict(zip(words[::2], words[1::2], strict=True))
    # A field that calls itself `id` is not the id.
    fields["id"] = entry_id
    return msgspec.json.encode(fields).decode()


def _look_at(place: str, url: str) -> Iterator[Seen]:
    with _asking(place, url) as client:
        for key in sorted(set(client.scan_iter(match=_KEYS, count=1_000, _type="stream"))):
            told = client.xinfo_stream(key)
            first = told.get("first-entry")
            yield Seen(
                place=place,
                key=key,
                first=None if first is None else first[0],
                last=told["last-generated-id"],
                length=told["length"],
                deleted=told.get("max-deleted-entry-id", "0-0"),
                added=told.get("entries-added"),
            )


@contextmanager
def _asking(place: str, url: str) -> Iterator[Any]:
    """A client of redis-py, untyped: what it says of its own replies is of no use here. SourceFailed."""
    redis = _redis()
    try:
        client = _connected(redis, url)
        try:
            yield client
        finally:
            client.close()
    except (redis.RedisError, OSError, ValueError) as fault:
        raise SourceFailed(
            f"cannot read {place}: {_told(fault, url)}", hint=f"Try: redis-cli -u {place} ping"
        ) from None


def _connected(redis: Any, url: str) -> Any:
    parts = urlsplit(url)
    known = urlunsplit((_SCHEMES.get(parts.scheme, parts.scheme), *parts[1:]))
    options = {
        "decode_responses": True,
        "encoding_errors": "replace",
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
    }
    client = redis.Redis.from_url(known, **options)
    if parts.scheme.endswith("+cluster") or client.info("cluster").get("cluster_enabled"):
        client.close()
        client = redis.RedisCluster.from_url(known, **options)
    # Pairs of field and value as they come: a dict of redis-py's own making would be made twice.
    client.set_response_callback("XRANGE", lambda page, **_: page)
    return client


@cache
def _redis() -> Any:
    try:
        import redis  # noqa: PLC0415  only who reads a Redis needs it
    except ImportError as fault:
        raise SourceFailed("reading a Redis needs redis-py", hint="Type: pip install 'queueyard[panqueue]'") from fault
    return redis


def _told(fault: Exception, url: str) -> str:
    """The words of a fault, unless they quote the password."""
    parts = urlsplit(url)
    secrets = [parts.password or "", *parse_qs(parts.query).get("password", [])]
    words = str(fault)
    quotes = any(secret and (secret in words or unquote(secret) in words) for secret in secrets)
    return type(fault).__name__ if quotes or not words else words


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, dict[str, Mark]])


def _secrets(options: Mapping[str, str]) -> Secrets:
    return msgspec.json.decode(options["secret"], type=Secrets)
