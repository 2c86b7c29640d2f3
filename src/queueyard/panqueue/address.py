"""Where the server is: a URL understood, or refused with what is wrong about it.

    redis://[user:password@]host[:port][/db]          valkey:// means the same
    rediss://...                                      over TLS; valkeys:// means the same
    unix:///path/to/socket[?db=0]
    redis+sentinel://host[:port],host[:port]/service[/db]
    redis+cluster://host[:port],host[:port]           any node of a cluster; a plain URL of a node works too

Options behind `?`: db, username, password, ssl_ca_certs, ssl_certfile, ssl_keyfile, ssl_cert_reqs (none, required),
sentinel_username, sentinel_password. Nothing here opens a connection.
"""

from __future__ import annotations

from enum import StrEnum
import os
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec.structs import replace

from queueyard.panqueue.errors import BadAddress

if TYPE_CHECKING:
    from collections.abc import Mapping
    import ssl

DEFAULT_PORT = 6379
SENTINEL_PORT = 26379
_HINT = "For example: redis://localhost:6379/0"
_HINT_TO_ESCAPE = "In a password, write / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D, @ as %40 and % as %25."
_SCHEMES = {
    "redis": (False, "direct"),
    "valkey": (False, "direct"),
    "rediss": (True, "direct"),
    "valkeys": (True, "direct"),
    "unix": (False, "direct"),
    "redis+unix": (False, "direct"),
    "redis+sentinel": (False, "sentinel"),
    "rediss+sentinel": (True, "sentinel"),
    "redis+cluster": (False, "cluster"),
    "rediss+cluster": (True, "cluster"),
}
_OPTIONS = {
    "db",
    "username",
    "password",
    "ssl_ca_certs",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_cert_reqs",
    "sentinel_username",
    "sentinel_password",
}


class Topology(StrEnum):
    """How the server that holds a queue is found."""

    DIRECT = "direct"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Node(msgspec.Struct, frozen=True):
    """One server process: a host and port, or the path of a socket."""

    host: str = ""
    port: int = 0
    path: str | None = None

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


class Login(msgspec.Struct, frozen=True):
    """Who we are to a server."""

    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Login({self.username!r}, {'***' if self.password else None})"


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A server, a set of sentinels or a cluster, and how to get in."""

    topology: Topology
    nodes: tuple[Node, ...]
    login: Login = Login()
    db: int = 0
    #: name of the master that sentinels are asked for
    service: str = ""
    sentinel_login: Login = Login()
    tls: bool = False
    tls_options: dict[str, str] = {}

    def __str__(self) -> str:
        """For people: without the password."""
        where = ",".join(map(str, self.nodes))
        kind = "" if self.topology is Topology.DIRECT else f" ({self.topology}{' ' * bool(self.service)}{self.service})"
        return f"{where}{f'/{self.db}' if self.db else ''}{' over TLS' if self.tls else ''}{kind}"

    def tls_context(self) -> ssl.SSLContext | None:
        """What a TLS connection needs; None for a plain one. BadAddress if a file of it cannot be used."""
        if not self.tls:
            return None
        import ssl  # noqa: PLC0415  most servers are reached without it

        options = self.tls_options
        try:
            context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
            if options.get("ssl_certfile"):
                context.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"))
        except OSError as fault:
            raise BadAddress(f"the TLS files of {self} cannot be used: {fault}", hint="Check their paths.") from fault
        if options.get("ssl_cert_reqs") == "none":
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def default_url(environment: Mapping[str, str] = os.environ) -> str:
    """Where a client or worker looks that was told nothing: REDIS_URL, else this machine."""
    return environment.get("REDIS_URL") or f"redis://localhost:{DEFAULT_PORT}"


def parse_address(url: str) -> Address:
    """Understand a URL. BadAddress says what is wrong, and never repeats a password."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        raise BadAddress("not a Redis URL: it has no ://", hint=_HINT)
    if scheme.lower() not in _SCHEMES:
        raise BadAddress(f"not a Redis URL: it starts with {scheme[:20]!r}", hint=_HINT)
    try:
        return _understood(url)
    except ValueError:
        # It quotes what it does not understand.
        raise BadAddress("the URL makes no sense", hint=_HINT_TO_ESCAPE) from None
    except BadAddress:
        # What is complained about may be a piece of a password: one that is not escaped ends at any of these.
        if re.search("[/?#].*@", rest, re.DOTALL):
            raise BadAddress("the URL makes no sense", hint=_HINT_TO_ESCAPE) from None
        raise


def _understood(url: str) -> Address:
    parts = urlsplit(url)
    tls, topology = _SCHEMES[parts.scheme]
    if parts.fragment:
        raise BadAddress("the URL has a # in it, which means nothing here", hint=_HINT_TO_ESCAPE)
    options = _options(parts.query)
    login, hosts = _login_and_hosts(parts.netloc, options)
    steps = [unquote(step) for step in parts.path.split("/") if step]
    base = Address(
        topology=Topology(topology),
        nodes=(),
        login=login,
        tls=tls,
        tls_options={name: value for name, value in options.items() if name.startswith("ssl_")},
        sentinel_login=Login(options.get("sentinel_username"), options.get("sentinel_password")),
    )
    if parts.scheme.endswith("unix"):
        if not parts.path:
            raise BadAddress("the URL names no socket", hint="For example: unix:///run/redis.sock")
        return replace(base, nodes=(Node(path=unquote(parts.path)),), db=_db(options.get("db", "0")))
    service = ""
    if topology == "sentinel":
        if not steps:
            raise BadAddress("the URL names no service", hint="For example: redis+sentinel://host:26379/mymaster/0")
        service = steps.pop(0)
    port = SENTINEL_PORT if topology == "sentinel" else DEFAULT_PORT
    nodes = tuple(_node(text, port) for text in hosts.split(","))
    db = _db(steps[0] if steps else options.get("db", "0"))
    if topology == "cluster" and db:
        raise BadAddress("a cluster has no databases but 0", hint="Leave the number out.")
    return replace(base, nodes=nodes, db=db, service=service)


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, strict_parsing=True)) if query else {}
    unknown = sorted(set(options) - _OPTIONS)
    if unknown:
        raise BadAddress(f"unknown options in the URL: {', '.join(unknown)}", hint=f"Known: {', '.join(_OPTIONS)}")
    return options


def _login_and_hosts(netloc: str, options: dict[str, str]) -> tuple[Login, str]:
    login, at, hosts = netloc.rpartition("@")
    user, _, password = login.partition(":")
    username = unquote(user) if at and user else options.get("username")
    secret = unquote(password) if at and password else options.get("password")
    return Login(username or None, secret or None), hosts


def _node(text: str, default_port: int) -> Node:
    bracketed = text.startswith("[")
    host, colon, port = text.rpartition(":") if ":" in text.rpartition("]")[2] else (text, "", "")
    number = int(port) if port.isdecimal() else 0 if colon else default_port
    if not 0 < number < 65536:
        # It is not repeated: where somebody forgot the host, this is the password.
        raise BadAddress("a port must be a number from 1 to 65535", hint=_HINT)
    return Node(host=(host.strip("[]") if bracketed else host) or "localhost", port=number)


def _db(text: str) -> int:
    if not text.isdecimal():
        raise BadAddress("the number of a database must be digits", hint=_HINT)
    return int(text)
