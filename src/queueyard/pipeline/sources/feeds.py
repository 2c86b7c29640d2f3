"""The change feed and the audit stream of an ops server over HTTP: `format("queueyard_feeds")`.

Batch: option `ranges` (a JSON list of sequences.Range). Streaming: option `feeds` (a JSON list of Feed), and the
offsets are sequences.Marks. Option `token` is the bearer token, which stands in no table and no note; Spark blackens
options of that name wherever it shows them.

A place is the address of a server. The spaces to read stand behind a `#`, separated by commas, and are `default` where
there are none: `http://127.0.0.1:3001#docs,notes`. Redirections are not followed, and proxies are not asked: the token
goes to the server that was named, and never in clear text beyond this machine.
"""

from __future__ import annotations

from http.client import HTTPException
import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadMaxRows

from queueyard.ops.records import DEFAULT_SPACE, SPACE_HEADER
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources.arrow import record_batch
from queueyard.pipeline.sources.reading import LookingReader, PlannedReader, partitions_of
from queueyard.pipeline.sources.sequences import Mark, Marks, Range, Seen, between, plan, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

#: the environment variable that the client takes its token from
TOKEN_VARIABLE = "JOLLI_TOKEN"  # noqa: S105  a name, no token
_PATHS = {"changes": "/v1/sync/feed", "audit": "/v1/sync/audit"}
_STREAMS = {"changes": "ops.changes", "audit": "ops.audit"}
#: the server gives no more at once
_PAGE_ENTRIES = 5_000
_ENTRIES_PER_TASK = 50_000
_MOST_ENTRIES_PER_MICRO_BATCH = 500_000
_LONGEST_PAGE_BYTES = 256 << 20
_TIMEOUT_S = 60.0


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One feed of one space."""

    place: str
    space: str
    kind: str


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


class _Page(msgspec.Struct, frozen=True):
    """A page whose entries stay the text that they are."""

    entries: list[msgspec.Raw]
    last: int
    head: int


_PAGE = msgspec.json.Decoder(_Page)
_NUMBERED = msgspec.json.Decoder(_Numbered)


class FeedSource(DataSource):
    """Entries of feeds."""

    @classmethod
    def name(cls) -> str:
        return "queueyard_feeds"

    def schema(self) -> StructType:
        return RECORD

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FeedReader(
            _parts(msgspec.json.decode(self.options["ranges"], type=list[Range])), self.options.get("token")
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
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


def feeds_of(address: str) -> list[Feed]:
    """Both feeds of every space that the address of a server names. SourceFailed if it is no such address."""
    parts = urlsplit(address)
    bad = parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"} or parts.query
    if bad or parts.username or parts.password:
        raise SourceFailed(
            f"not the address of an ops server: {parts.scheme}://{parts.netloc.rpartition('@')[2]}",
            hint=f"Write http://127.0.0.1:3001#space, without a login; the token goes into {TOKEN_VARIABLE}.",
        )
    spaces = [name.strip() for name in parts.fragment.split(",") if name.strip()] or [DEFAULT_SPACE]
    place = f"{parts.scheme}://{parts.netloc}"
    return [Feed(place=place, space=space, kind=kind) for space in dict.fromkeys(spaces) for kind in _PATHS]


def look(feeds: Iterable[Feed], token: str | None) -> list[Seen]:
    """Each feed as it stands. SourceFailed for a server that refuses or does not answer."""
    return [
        Seen(
            place=feed.place,
            space=feed.space,
            kind=feed.kind,
            head=_page(feed.place, feed.space, feed.kind, token, after=0, limit=1).head,
        )
        for feed in feeds
    ]


def read_range(piece: Range, token: str | None) -> Iterator[pa.RecordBatch]:
    """The entries of a range, page by page. SourceFailed if some of them are not there any more."""
    after = piece.after
    while after < piece.upto:
        limit = min(_PAGE_ENTRIES, piece.upto - after)
        page = _page(piece.place, piece.space, piece.kind, token, after=after, limit=limit)
        if not page.entries:
            raise SourceFailed(
                f"{piece.place} has no entry {after + 1} of {piece.space}/{piece.kind} any more",
                hint="Type: queueyard pipeline run",
            )
        yield _record_batch(piece, page.entries)
        after = page.last


def _record_batch(piece: Range, entries: list[msgspec.Raw]) -> pa.RecordBatch:
    return record_batch(
        stream=_STREAMS[piece.kind],
        place=piece.place,
        file=f"{piece.space}/{piece.kind}",
        generation=piece.generation,
        positions=[_NUMBERED.decode(entry).seq for entry in entries],
        raw=[bytes(entry).decode() for entry in entries],
    )


class _NoRedirections(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirection is the answer, and no answer that we can use."""


def _page(place: str, space: str, kind: str, token: str | None, *, after: int, limit: int) -> _Page:
    _refuse_clear_text(place, token)
    headers = {"Accept": "application/json", SPACE_HEADER: space}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    asked = Request(f"{place}{_PATHS[kind]}?after={after}&limit={limit}", headers=headers)  # noqa: S310  http or https
    try:
        with build_opener(ProxyHandler({}), _NoRedirections()).open(asked, timeout=_TIMEOUT_S) as answer:
            return _PAGE.decode(answer.read(_LONGEST_PAGE_BYTES))
    except HTTPError as refusal:
        with refusal:
            raise _refused(place, space, refusal) from None
    except (HTTPException, OSError) as fault:
        reason = getattr(fault, "reason", fault)
        raise SourceFailed(
            f"no answer from {place}: {reason}", hint=f"Try: jolli-ops status --remote --server {place}"
        ) from None
    except msgspec.MsgspecError as fault:
        raise SourceFailed(
            f"{place} answers, but not as an ops server: {fault}", hint=f"Look at it: curl {place}/healthz"
        ) from fault


def _refused(place: str, space: str, refusal: HTTPError) -> SourceFailed:
    hints = {
        401: f"Set the token: export {TOKEN_VARIABLE}=...    or make one: jolli-ops token create",
        403: "Make a token that may read this space: jolli-ops token create",
        404: f"Name a space that there is: queueyard add ops {place}#space",
    }
    hint = hints.get(refusal.code, f"Try: jolli-ops status --remote --server {place}")
    return SourceFailed(f"{place} refuses to show the space {space!r}: {refusal.code} {refusal.reason}", hint=hint)


def _refuse_clear_text(place: str, token: str | None) -> None:
    parts = urlsplit(place)
    if token and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise SourceFailed(f"the token would go to {place} in clear text", hint="Use https://.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _parts(ranges: Iterable[Range]) -> list[Range]:
    return [part for one in ranges for part in split(one, most_entries=_ENTRIES_PER_TASK)]


def _marks(offset: dict[str, Any]) -> Marks:
    return msgspec.convert(offset, dict[str, dict[str, Mark]])
