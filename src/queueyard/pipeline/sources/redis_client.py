"""A Redis as the pipeline meets it: which event streams it has, and pages of their entries. Needs no Spark.

`redis://`, `rediss://`, `valkey://`, `valkeys://` and `unix://`, and a cluster by `redis+cluster://` or by any of its
nodes. The URL may hold a password; a place is the URL without its login, and the only one that is ever told.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
import gc
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.entries import Range, Seen
from queueyard.yard.places import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_KEYS = "{q:*}:events"
_PAGE_ENTRIES = 10_000
_TIMEOUT_S = 30.0
_SCHEMES = {"valkey": "redis", "valkeys": "rediss", "redis+cluster": "redis", "rediss+cluster": "rediss"}
_KNOWN = {"redis", "rediss", "unix"} | _SCHEMES.keys()

#: place -> URL with its login
Secrets = dict[str, str]
#: (id, fields and values in turn); of a cluster, redis-py makes a dict of them whether one wants it or not
Entry = tuple[str, list[str] | dict[str, str]]


def place_of(url: str) -> str:
    """The URL as tables and people may see it: without user, password and files of keys. SourceFailed if it is none."""
    parts = parts_of(url)
    if parts is None:
        raise SourceFailed(
            "not the address of a Redis: where its password ends cannot be told",
            hint="Write @ / # ? [ ] in a password as %40 %2F %23 %3F %5B %5D.",
        )
    if parts.scheme not in _KNOWN or not (parts.netloc or parts.path):
        raise SourceFailed(
            f"not a Redis that can be read here: it starts with {parts.scheme[:20]!r}",
            hint="Write redis://host:6379/0, or the address of the master itself where sentinels know it.",
        )
    database = parse_qs(parts.query).get("db")
    query = f"?db={database[0]}" if database else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def look(secrets: Mapping[str, str]) -> list[Seen]:
    """Every event stream as it stands. SourceFailed for a server that cannot be asked."""
    return [seen for place, url in sorted(secrets.items()) for seen in _look_at(place, url)]


def pages(one: Range, client: Any) -> Iterator[list[Entry]]:
    """The entries of a range: each its id, and its fields and values."""
    after = one.after
    while True:
        with _without_cycles():
            page = client.xrange(one.key, min=f"({after}", max=one.upto, count=_PAGE_ENTRIES)
        if page:
            yield page
            after = page[-1][0]
        if len(page) < _PAGE_ENTRIES:
            return


@contextmanager
def _without_cycles() -> Iterator[None]:
    """A page is a hundred thousand objects and no cycle among them: looking for one takes a tenth of all the time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _look_at(place: str, url: str) -> Iterator[Seen]:
    with asking(place, url) as client:
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
def asking(place: str, url: str) -> Iterator[Any]:
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
    known = f"{_SCHEMES.get(parts.scheme, parts.scheme)}://{url.partition('://')[2]}"
    options = {
        "decode_responses": True,
        "encoding_errors": "replace",
        "socket_timeout": _TIMEOUT_S,
        "socket_connect_timeout": _TIMEOUT_S,
    }
    client = redis.Redis.from_url(known, **options)
    if parts.scheme.endswith("+cluster") or client.info("cluster").get("cluster_enabled"):
        client.close()
        return redis.RedisCluster.from_url(known, **options)
    # A dict of each entry would cost as much as all the rest of reading it.
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
