"""An ops server as the pipeline meets it: the heads of its feeds, and pages of their entries. Needs no Spark.

A place is the address of a server. The spaces to read stand behind a `#`, separated by commas, and are `default` where
there are none: `http://127.0.0.1:3001#docs,notes`. Redirections are not followed, and proxies are not asked: the token
goes to the server that was named, and never in clear text beyond this machine.
"""

from __future__ import annotations

from hashlib import sha256
from http.client import HTTPException
import ipaddress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import msgspec

from queueyard.ops.records import DEFAULT_SPACE, SPACE_HEADER
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.sequences import Range, Seen
from queueyard.yard.places import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: the environment variable that the client takes its token from
TOKEN_VARIABLE = "JOLLI_TOKEN"  # noqa: S105  a name, no token
_PATHS = {"changes": "/v1/sync/feed", "audit": "/v1/sync/audit"}
#: the server gives no more at once
_PAGE_ENTRIES = 5_000
_LONGEST_PAGE_BYTES = 256 << 20
_TIMEOUT_S = 60.0


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """One feed of one space."""

    place: str
    space: str
    kind: str


class _Page(msgspec.Struct, frozen=True):
    """A page whose entries stay the text that they are."""

    entries: list[msgspec.Raw]
    last: int
    head: int


_PAGE = msgspec.json.Decoder(_Page)


def feeds_of(address: str) -> list[Feed]:
    """Both feeds of every space that the address of a server names. SourceFailed if it is no such address."""
    parts = parts_of(address)
    if parts is None:
        raise _no_address("it cannot be told where its host ends")
    bad = parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"} or parts.query
    if bad or parts.username or parts.password:
        raise _no_address(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")
    spaces = [name.strip() for name in parts.fragment.split(",") if name.strip()] or [DEFAULT_SPACE]
    place = f"{parts.scheme}://{parts.netloc}"
    if not all(map(_fits_into_a_header, spaces)):
        raise SourceFailed(
            f"a space of {place} has a name that no server can be asked for",
            hint=f"Name spaces that there are: queueyard add ops {place}#space",
        )
    return [Feed(place=place, space=space, kind=kind) for space in dict.fromkeys(spaces) for kind in _PATHS]


def look(feeds: Iterable[Feed], token: str | None) -> list[Seen]:
    """Each feed as it stands. SourceFailed for a server that refuses or does not answer."""
    return [_look_at(feed, token) for feed in feeds]


def pages(piece: Range, token: str | None) -> Iterator[list[msgspec.Raw]]:
    """The entries of a range, each as the text that it is. SourceFailed if some of them are not there any more."""
    after = piece.after
    while after < piece.upto:
        limit = min(_PAGE_ENTRIES, piece.upto - after)
        page = _page(piece.place, piece.space, piece.kind, token, after=after, limit=limit)
        if not page.entries:
            raise SourceFailed(
                f"{piece.place} has no entry {after + 1} of {piece.space}/{piece.kind} any more",
                hint="Type: queueyard pipeline run",
            )
        yield page.entries
        after = page.last


def _look_at(feed: Feed, token: str | None) -> Seen:
    page = _page(feed.place, feed.space, feed.kind, token, after=0, limit=1)
    first = sha256(page.entries[0]).hexdigest()[:16] if page.entries else None
    return Seen(place=feed.place, space=feed.space, kind=feed.kind, head=page.head, first=first)


def _no_address(why: str) -> SourceFailed:
    return SourceFailed(
        f"not the address of an ops server: {why}",
        hint=f"Write http://127.0.0.1:3001#space, without a login; the token goes into {TOKEN_VARIABLE}.",
    )


class _NoRedirections(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: the redirection is the answer, and no answer that we can use."""


def _page(place: str, space: str, kind: str, token: str | None, *, after: int, limit: int) -> _Page:
    _check_token(place, token)
    headers = {"Accept": "application/json", SPACE_HEADER: space}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    asked = Request(f"{place}{_PATHS[kind]}?after={after}&limit={limit}", headers=headers)  # noqa: S310  http or https
    try:
        with build_opener(ProxyHandler({}), _NoRedirections()).open(asked, timeout=_TIMEOUT_S) as answer:
            return _PAGE.decode(answer.read(_LONGEST_PAGE_BYTES))
    except HTTPError as refusal:
        with refusal:
            raise _refused(place, space, refusal) from None
    except (HTTPException, OSError, UnicodeError) as fault:
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


def _check_token(place: str, token: str | None) -> None:
    parts = urlsplit(place)
    if token and parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise SourceFailed(f"the token would go to {place} in clear text", hint="Use https://.")
    if token and not _fits_into_a_header(token):
        raise SourceFailed(
            f"what stands in {TOKEN_VARIABLE} is no token: it has characters that none has",
            hint=f"Set it anew: export {TOKEN_VARIABLE}=...",
        )


def _fits_into_a_header(text: str) -> bool:
    return text.isprintable() and all(character <= "\xff" for character in text)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
