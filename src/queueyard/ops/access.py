"""Who may do what on the server: tokens, their scopes, how often they may ask, and who needs none.

A token is `jo_<id>_<secret>`; only the SHA-256 of the secret is kept, which is enough for 256 random bits. It is
compared in constant time, and an unknown id costs as much as a wrong secret. A server that listens on this machine
only needs no token, unless it is told to; one that listens beyond asks everybody.
"""

from __future__ import annotations

from hashlib import sha256
import hmac
import os
import threading
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import Clock, from_rfc3339, to_rfc3339
from queueyard.ops.errors import UnknownItem
from queueyard.ops.ledger import Ledger, SpaceName
from queueyard.ops.problems import Problem
from queueyard.ops.records import DEFAULT_SPACE, DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

SCOPES = ("read", "push", "admin")
EVERY_SPACE = "*"
_PREFIX = "jo"
_NOBODY = bytes(32)


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, as the server knows it: without its secret."""

    id: str
    #: what stands in the feed as the user
    name: str
    tenant: str
    #: read, push, admin; admin may do everything
    scopes: list[str]
    #: slugs, or `*` for all spaces of the tenant
    spaces: list[str]
    #: None: as the server is set
    rate_per_s: int | None = None
    #: RFC 3339
    created_at: str
    expires_at: str | None = None
    revoked_at: str | None = None


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asking."""

    tenant: str
    scopes: frozenset[str]
    spaces: frozenset[str]
    #: None: somebody on this machine
    token_id: str | None = None
    user_id: str | None = None
    rate_per_s: int | None = None

    def space(self, slug: str | None, scope: str) -> SpaceName:
        """The space that is meant. Problem 403 if the caller may not do that there."""
        wanted = slug or DEFAULT_SPACE
        if not {scope, "admin"} & self.scopes:
            raise Problem("scope_missing", f"the token has no scope {scope!r}")
        if EVERY_SPACE not in self.spaces and wanted not in self.spaces:
            raise Problem("scope_missing", f"the token is not for space {wanted!r}")
        return SpaceName(self.tenant, wanted)


SOMEBODY_HERE = Caller(tenant=DEFAULT_TENANT, scopes=frozenset(SCOPES), spaces=frozenset({EVERY_SPACE}))


def create_token(
    ledger: Ledger,
    *,
    name: str,
    scopes: Sequence[str],
    spaces: Sequence[str],
    tenant: str = DEFAULT_TENANT,
    rate_per_s: int | None = None,
    lives: timedelta | None = None,
    clock: Clock,
) -> tuple[Token, str]:
    """A new token, and the text of it, which is told once and never again."""
    identifier, secret = os.urandom(6).hex(), os.urandom(32).hex()
    now = clock.now()
    token = Token(
        id=identifier,
        name=name,
        tenant=tenant,
        scopes=list(scopes),
        spaces=list(spaces),
        rate_per_s=rate_per_s,
        created_at=to_rfc3339(now),
        expires_at=None if lives is None else to_rfc3339(now + lives),
    )
    with ledger.line.writing():
        ledger.line.rows(
            "INSERT INTO token (id, name, digest, tenant, scopes, spaces, rate_per_s, created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                identifier,
                name,
                _digest(secret),
                tenant,
                " ".join(scopes),
                " ".join(spaces),
                rate_per_s,
                token.created_at,
                token.expires_at,
            ),
        )
    return token, f"{_PREFIX}_{identifier}_{secret}"


def tokens(ledger: Ledger) -> list[Token]:
    """All tokens, also revoked ones, oldest first."""
    return [_token(row[:-1]) for row in ledger.line.rows(f"{_SELECT} ORDER BY created_at, id")]


def revoke_token(ledger: Ledger, identifier: str, *, clock: Clock) -> Token:
    """From now on nobody gets in with it. UnknownItem if there is none."""
    with ledger.line.writing():
        found = ledger.line.rows(f"{_SELECT} WHERE id = ?", (identifier,))
        if not found:
            raise UnknownItem(f"no token {identifier!r}", hint="List them: jolli-ops token list")
        now = to_rfc3339(clock.now())
        ledger.line.rows("UPDATE token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, identifier))
        [row] = ledger.line.rows(f"{_SELECT} WHERE id = ?", (identifier,))
    return _token(row[:-1])


def has_tokens(ledger: Ledger) -> bool:
    return bool(ledger.line.rows("SELECT 1 FROM token WHERE revoked_at IS NULL LIMIT 1"))


def caller_of(ledger: Ledger, presented: str, *, clock: Clock) -> Caller:
    """Who holds this token. Problem 401 if nobody does, or no longer."""
    prefix, _, rest = presented.partition("_")
    identifier, _, secret = rest.partition("_")
    rows = ledger.line.rows(f"{_SELECT} WHERE id = ?", (identifier,)) if prefix == _PREFIX else []
    digest = bytes(rows[0][-1]) if rows else _NOBODY
    if not hmac.compare_digest(_digest(secret), digest):
        raise Problem("token_invalid")
    token = _token(rows[0][:-1])
    now = clock.now()
    if token.revoked_at or (token.expires_at and from_rfc3339(token.expires_at) <= now):
        raise Problem("token_invalid")
    return Caller(
        tenant=token.tenant,
        scopes=frozenset(token.scopes),
        spaces=frozenset(token.spaces),
        token_id=token.id,
        user_id=token.name,
        rate_per_s=token.rate_per_s,
    )


class RateLimit:
    """How often a token may ask: so many a second, twice as many at once. Counted per process."""

    def __init__(self, rate_per_s: int, clock: Clock) -> None:
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._guard = threading.Lock()
        #: token -> (how much it has left, when that was counted)
        self._left: dict[str, tuple[float, float]] = {}

    def count(self, caller: Caller) -> None:
        """One request more. Problem 429 if that is one too many."""
        rate = self._rate_per_s if caller.rate_per_s is None else caller.rate_per_s
        if caller.token_id is None or not rate:
            return
        now = self._clock.monotonic()
        with self._guard:
            left, counted_at = self._left.get(caller.token_id, (2.0 * rate, now))
            left = min(2.0 * rate, left + (now - counted_at) * rate)
            self._left[caller.token_id] = (left - 1 if left >= 1 else left, now)
        if left < 1:
            raise Problem("rate_limited", f"at most {rate} requests a second", retry_after_s=1)


_SELECT = "SELECT id, name, tenant, scopes, spaces, rate_per_s, created_at, expires_at, revoked_at, digest FROM token"


def _token(row: tuple[object, ...]) -> Token:
    identifier, name, tenant, scopes, spaces, rate, created_at, expires_at, revoked_at = row
    return msgspec.convert(
        {
            "id": identifier,
            "name": name,
            "tenant": tenant,
            "scopes": str(scopes).split(),
            "spaces": str(spaces).split(),
            "rate_per_s": rate,
            "created_at": created_at,
            "expires_at": expires_at,
            "revoked_at": revoked_at,
        },
        Token,
    )


def _digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
