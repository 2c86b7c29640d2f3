"""Who may ask, and what a browser may do with the answer. Knows nothing of pages.

Reading is free on this machine and needs the token beyond it. Changing needs the token everywhere, and must come from
a page of our own. A request under a name that is not ours is refused, so that a web page whose name was made to point
here gets nothing.
"""

from __future__ import annotations

from hashlib import sha256
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "queueyard-dashboard"
#: pages that somebody without the token must see to give it
_OPEN = ("/login", "/static/")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, a browser says `Origin: null` even to ourselves.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """What the guard compares with."""

    #: None: nobody can prove anything, so nothing can be changed
    token: str | None = None
    #: names that it may be called beside those of loopback, in lower case
    names: frozenset[str] = frozenset()
    #: whether reading needs the token too
    is_beyond: bool = False

    def fits(self, token: str) -> bool:
        return self.token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    @property
    def session(self) -> str:
        """What a browser keeps instead of the token; a new token makes it worthless."""
        return hmac.new((self.token or "").encode(), b"queueyard dashboard", sha256).hexdigest()

    def knows(self, headers: Headers) -> bool:
        """Whether the request carries the token, or the cookie that was given for it."""
        if self.token is None:
            return False
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.fits(token.strip())
        return hmac.compare_digest(_cookie(headers), self.session.encode())


class Guard:
    """Stands before the whole application."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_ours = scope["path"].startswith("/static/")
                headers.setdefault("cache-control", "no-cache" if is_ours else "no-store")
            await send(message)

        app = self._refusal(scope["method"], scope["path"], Headers(scope=scope)) or self._app
        await app(scope, receive, with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> ASGIApp | None:
        if not self._is_our_name(headers.get("host", "")):
            return PlainTextResponse("This dashboard does not go by that name.\n", 421)
        if method not in {"GET", "HEAD"} and not _is_same_origin(headers):
            return PlainTextResponse("That did not come from a page of this dashboard.\n", 403)
        if self._keys.is_beyond and not path.startswith(_OPEN) and not self._keys.knows(headers):
            wants_page = "text/html" in headers.get("accept", "")
            return RedirectResponse("/login", 303) if wants_page else PlainTextResponse("Give the token first.\n", 401)
        return None

    def _is_our_name(self, host: str) -> bool:
        name = host.lower().rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        return name.lower() in _LOOPBACK_NAMES | self._keys.names


def _is_same_origin(headers: Headers) -> bool:
    """A browser always says where a change comes from; a program with the token in a header need not."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return False
    origin = headers.get("origin")
    if origin is None:
        return "authorization" in headers
    return origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _cookie(headers: Headers) -> bytes:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        found = None
    return found.value.encode("utf-8", "replace") if found else b""
