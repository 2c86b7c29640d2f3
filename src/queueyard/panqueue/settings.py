"""How a worker works, and where the command line finds its server: defaults as constants, faults all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.errors import BadSettings
from queueyard.kernel.settings import Layer, Settled, settle
from queueyard.panqueue.records import BackoffRule

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_CONCURRENCY = 10
DEFAULT_LEASE_MS = 30_000
DEFAULT_POLL_MS = 5_000
DEFAULT_SWEEP_MS = 10_000
DEFAULT_DRAIN_TIMEOUT_MS = 30_000
DEFAULT_CANCEL_GRACE_MS = 2_000
DEFAULT_BACKOFF = BackoffRule()
MOST_CONCURRENCY = 10_000
_SWEEP_BATCH = 100


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How one worker works."""

    #: jobs that run at once
    concurrency: int = DEFAULT_CONCURRENCY
    #: a claim without a sign of life ends after so long, milliseconds
    lease_ms: int = DEFAULT_LEASE_MS
    #: leases are renewed so often, milliseconds; None: three times per lease
    renew_ms: int | None = None
    #: the queue is looked at at least so often, milliseconds, in case a notification was missed
    poll_ms: int = DEFAULT_POLL_MS
    #: jobs of dead workers, schedules, expiry, dead letters and flows are looked after at least so often, milliseconds;
    #: 0: never by this worker
    sweep_ms: int = DEFAULT_SWEEP_MS
    #: at most so many are taken back by one call
    sweep_batch: int = _SWEEP_BATCH
    #: how long a stop waits for running jobs, milliseconds
    drain_timeout_ms: int = DEFAULT_DRAIN_TIMEOUT_MS
    #: how long a cancelled handler has to end, milliseconds
    cancel_grace_ms: int = DEFAULT_CANCEL_GRACE_MS

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be {least} or more, not {getattr(self, name)}"
            for name, least in (
                ("concurrency", 1),
                ("lease_ms", 100),
                ("poll_ms", 1),
                ("sweep_ms", 0),
                ("sweep_batch", 1),
                ("drain_timeout_ms", 0),
                ("cancel_grace_ms", 0),
            )
            if getattr(self, name) < least
        ]
        if self.concurrency > MOST_CONCURRENCY:
            faults.append(f"concurrency must be {MOST_CONCURRENCY} or less, not {self.concurrency}")
        if self.renew_ms is not None and not 10 <= self.renew_ms < self.lease_ms:
            faults.append(f"renew_ms must be 10 or more and less than lease_ms, not {self.renew_ms}")
        if faults:
            raise BadSettings("these settings are wrong:\n" + "\n".join(f"  - {one}" for one in faults))

    @property
    def renew_s(self) -> float:
        return (self.renew_ms or self.lease_ms / 3) / 1_000


class ConsoleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the command line finds its server."""

    #: URL of the server; None: the embedded one
    url: str | None = None
    #: folder of the embedded server; None: in the user's state folder
    dir: str | None = None


def load(
    environment: Mapping[str, str], *, url: str | None = None, folder: str | None = None
) -> Settled[ConsoleSettings]:
    """Flag before environment: `--url`, then REDIS_URL; `--dir`, then PANQUEUE_DIR."""
    variables = {"url": environment.get("REDIS_URL") or None, "dir": environment.get("PANQUEUE_DIR") or None}
    return settle(
        ConsoleSettings,
        [
            Layer(name="flag", values={"url": url, "dir": folder}),
            Layer(name="environment", values=variables, spelling={"url": "REDIS_URL", "dir": "PANQUEUE_DIR"}),
        ],
    )
