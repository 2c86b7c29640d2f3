"""What the yard tells of its places. Shapes only."""

from __future__ import annotations

import msgspec

from queueyard.kernel.events import System


class Glance(msgspec.Struct, frozen=True, kw_only=True):
    """One place at one moment, in the same words for all systems."""

    system: System
    #: the place, never with a password
    at: str
    #: unread messages, queued runs, waiting jobs, queued changes, batches that were not sent or not written yet
    waiting: int = 0
    #: active assignments, running runs, active jobs, changes that are checked
    running: int = 0
    #: runs, jobs and changes that failed, ops that were refused or that nobody could send
    failed: int = 0
    #: how long the oldest of those that wait has waited, seconds; None if none waits, or nobody can tell
    oldest_wait_s: float | None = None
    #: who serves it, in one or two words: "daemon running", "2 workers", "server up", "not reachable"
    health: str
    #: false where work waits that nobody serves, and where the place could not be looked at
    is_well: bool
    #: why it could not be looked at, and the next command; None if it could
    problem: str | None = None
