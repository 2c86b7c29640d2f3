"""Settings. Of the client: flags, the environment (`JOLLI_...`), `.jolli/ops.toml` of the folder, `~/.jolli/ops.toml`.
Of the server: flags, the environment (`JOLLI_SERVE_...`), `serve.toml` in its data folder.

The token is no setting: it comes from `JOLLI_TOKEN` or from a file, and stands in no file of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.clock import parse_duration
from queueyard.kernel.errors import BadSettings, QueueyardError, explaining
from queueyard.kernel.settings import Layer, Settled, environment_layer, file_layer, settle
from queueyard.ops.records import DEFAULT_SPACE
from queueyard.ops.rules import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_OPS_PER_BATCH,
    FEWEST_OPS_PER_BATCH,
    MOST_OPS_PER_BATCH,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_PORT = 3001
CONFIG_NAME = "ops.toml"
_ENCODINGS = ("none", "gzip", "zstd")


class OpsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set, with its default."""

    #: scheme, host and port
    server: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    space: str = DEFAULT_SPACE
    #: how many ops go into one batch, 25 to 200
    batch_ops: int = DEFAULT_OPS_PER_BATCH
    #: how many bytes a batch has at most, unless one op alone has more
    batch_bytes: int = DEFAULT_BATCH_BYTES
    #: a larger file is not sent, bytes
    max_file_bytes: int = 4 << 20
    #: how long a batch is tried again before the rest is left for later: 30s, 5m
    retry_for: str = "1m"
    #: how long one answer may take, seconds
    timeout_s: float = 60.0
    #: how long a command waits for another one that plans or sends in the same scope, seconds
    lock_timeout_s: float = 10.0
    #: none, gzip or zstd
    compress: str = "none"
    #: move sent batches to completed/ instead of deleting them
    keep_completed: bool = False
    #: what a scan takes; empty: everything that is text
    include: tuple[str, ...] = ()
    #: what a scan leaves out, besides .jolliignore
    exclude: tuple[str, ...] = ()
    #: certificates to trust beside those of the system, a PEM file
    ca_file: str | None = None
    #: a token may go over the network without TLS
    allow_clear_text: bool = False
    #: a file whose first line is the token
    token_file: str | None = None

    def __post_init__(self) -> None:
        faults = [fault for broken, fault in self._rules() if broken]
        if faults:
            raise ValueError("\n  - ".join(faults))

    @property
    def retry_for_s(self) -> float:
        return parse_duration(self.retry_for).total_seconds()

    def _rules(self) -> list[tuple[bool, str]]:
        return [
            (
                not FEWEST_OPS_PER_BATCH <= self.batch_ops <= MOST_OPS_PER_BATCH,
                f"batch_ops: {FEWEST_OPS_PER_BATCH} to {MOST_OPS_PER_BATCH}, not {self.batch_ops}",
            ),
            (self.batch_bytes < 1024, f"batch_bytes: at least 1024, not {self.batch_bytes}"),
            (self.timeout_s <= 0, f"timeout_s: more than zero, not {self.timeout_s:g}"),
            (self.compress not in _ENCODINGS, f"compress: one of {', '.join(_ENCODINGS)}, not {self.compress}"),
            (not _is_duration(self.retry_for), f"retry_for: a time like 30s or 5m, not {self.retry_for}"),
        ]


SETTING_NAMES = tuple(OpsSettings.__struct_fields__)


def load(
    home: Path, workspace: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]
) -> Settled[OpsSettings]:
    """The settings in force. BadSettings lists every fault at once."""
    layers = [Layer(name="flag", values=flags), environment_layer(OpsSettings, "JOLLI", environment)]
    if workspace is not None:
        layers.append(file_layer(workspace / ".jolli" / CONFIG_NAME))
    layers.append(file_layer(home / CONFIG_NAME))
    return settle(OpsSettings, layers)


def load_token(settings: OpsSettings, environment: Mapping[str, str]) -> str | None:
    """The token, or None. BadSettings if a file was named for it and has none."""
    if environment.get("JOLLI_TOKEN"):
        return environment["JOLLI_TOKEN"].strip()
    if settings.token_file is None:
        return None
    from pathlib import Path  # noqa: PLC0415

    path = Path(settings.token_file).expanduser()
    with explaining("read", path):
        lines = path.read_text(encoding="utf-8", errors="replace").split()
    if len(lines) != 1:
        raise BadSettings(f"{path} holds no token", hint="Its first and only line is the token.")
    return lines[0]


def _is_duration(text: str) -> bool:
    try:
        return parse_duration(text).total_seconds() >= 0
    except QueueyardError:
        return False


SERVE_CONFIG_NAME = "serve.toml"
LEDGER_NAME = "ledger.sqlite3"


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be set for the server, with its default."""

    #: the folder with the database
    data: str = "jolli-data"
    host: str = "127.0.0.1"
    #: 0: any that is free
    port: int = DEFAULT_PORT
    #: postgresql://user@host/name instead of the SQLite in `data`; the password from PGPASSWORD or ~/.pgpass
    database: str | None = None
    #: ask for a token on loopback too
    require_token: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    #: of a request as it is sent
    max_body_bytes: int = 10 << 20
    #: of a request after decompression
    max_decompressed_bytes: int = 40 << 20
    max_content_bytes: int = 8 << 20
    max_ops: int = 500
    max_path_bytes: int = 1024
    #: how long a body may take to arrive
    body_timeout_s: float = 60.0
    #: requests a second that one token may make, with bursts of twice as many; 0: as many as it likes
    rate_per_s: int = 200
    #: batches that may wait for the writer; more are told to come back
    max_waiting: int = 256
    #: bytes of all requests that are under way
    max_waiting_bytes: int = 128 << 20
    #: how long an answer can be asked for again: 30d
    keep_answers: str = "30d"
    #: how long running requests get to finish when the server is asked to stop
    grace_s: float = 30.0

    def __post_init__(self) -> None:
        faults = [fault for broken, fault in self._rules() if broken]
        if faults:
            raise ValueError("\n  - ".join(faults))

    @property
    def keep_answers_s(self) -> float:
        return parse_duration(self.keep_answers).total_seconds()

    def _rules(self) -> list[tuple[bool, str]]:
        positive = [name for name in type(self).__struct_fields__ if name.startswith("max_")] + ["body_timeout_s"]
        rules = [(getattr(self, name) <= 0, f"{name}: more than zero") for name in positive]
        rules += [
            (not 0 <= self.port <= 65_535, f"port: 0 to 65535, not {self.port}"),
            (self.rate_per_s < 0, "rate_per_s: zero or more"),
            (bool(self.tls_cert) != bool(self.tls_key), "tls_cert and tls_key belong together"),
            (not _is_duration(self.keep_answers), f"keep_answers: a time like 30d, not {self.keep_answers}"),
        ]
        return rules


def load_serve(environment: Mapping[str, str], flags: Mapping[str, Any]) -> Settled[ServeSettings]:
    """The server's settings in force. BadSettings lists every fault at once."""
    from pathlib import Path  # noqa: PLC0415

    above = [Layer(name="flag", values=flags), environment_layer(ServeSettings, "JOLLI_SERVE", environment)]
    named = next((layer.values["data"] for layer in above if layer.values.get("data")), ServeSettings().data)
    return settle(ServeSettings, [*above, file_layer(Path(str(named)) / SERVE_CONFIG_NAME)])
