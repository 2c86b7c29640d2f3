"""Where the dashboard listens, what it allows, and its token. The token never stands on a command line."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.errors import BadSettings, explaining
from queueyard.kernel.settings import Layer, Settled, environment_layer, settle

if TYPE_CHECKING:
    from collections.abc import Mapping

TOKEN_VARIABLE = "QUEUEYARD_DASHBOARD_TOKEN"  # noqa: S105  a name, no token
SHORTEST_TOKEN = 16


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set, with its default."""

    host: str = "127.0.0.1"
    #: 0: any that is free
    port: int = 8600
    #: let people retry, pause, resume and cancel
    allow_actions: bool = False
    #: a file whose only line is the token
    token_file: str | None = None
    #: the name under which it is reached, where that is neither loopback nor `host`
    name: str | None = None
    #: seconds between two looks at the yard
    refresh_s: float = 2.0

    def __post_init__(self) -> None:
        rules = [
            (not 0 <= self.port <= 65_535, f"port: 0 to 65535, not {self.port}"),
            (self.refresh_s < 0.1, "refresh_s: a tenth of a second or more"),
        ]
        faults = [fault for broken, fault in rules if broken]
        if faults:
            raise ValueError("\n  - ".join(faults))

    @property
    def is_beyond(self) -> bool:
        """Whether others than this machine can reach it, by itself or through a proxy that goes by a name."""
        if self.name is not None:
            return True
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"


def load(environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settled[DashboardSettings]:
    """The settings in force. BadSettings lists every fault at once."""
    above = environment_layer(DashboardSettings, "QUEUEYARD_DASHBOARD", environment)
    return settle(DashboardSettings, [Layer(name="flag", values=flags), above])


def load_token(settings: DashboardSettings, environment: Mapping[str, str]) -> str | None:
    """The token, or None. BadSettings if it is too short to be one."""
    token = (environment.get(TOKEN_VARIABLE) or "").strip()
    if settings.token_file:
        path = Path(settings.token_file).expanduser()
        with explaining("read", path):
            token = path.read_text(encoding="utf-8", errors="replace").strip()
    elif not token:
        return None
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise BadSettings(
            f"a token is at least {SHORTEST_TOKEN} printable characters",
            hint="Make one: python3 -c 'import secrets; print(secrets.token_urlsafe())' > token",
        )
    return token
