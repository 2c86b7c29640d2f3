"""What ops may refuse.

    QueueyardError
    ├── BadServerPath        a path that no server of ours takes
    ├── InvalidOps           ops from a file that make no sense
    ├── NoWorkspace          the folder to push from is not there
    ├── TooManyDeletes       a push would delete much more than people usually mean
    ├── CorruptBatch         a batch file is not what its manifest says
    ├── UnknownItem          no request, dead letter, conflict, space or token like that
    ├── TransportFailed      exit 75  the server cannot be reached, or did not answer in time: try again later
    ├── PushStopped          exit 75  the server is there but does not take the batch now: the rest stays queued
    ├── Refused              exit 1   the server refuses us, not a batch: token, space, permission
    ├── ServerLostProgress   the server knows less of a request than it once answered
    ├── InsecureServer       a token would go over the network in clear text
    ├── NotLoopback          the server would listen beyond this machine without any token
    ├── LedgerFailed         the server's database refused
    └── MissingExtra         a library is not installed

Exit code 75 is the one that mail and cron know as "temporary failure".
"""

from __future__ import annotations

from typing import Any

from queueyard.kernel.errors import QueueyardError

TEMPORARY_FAILURE = 75


class BadServerPath(QueueyardError):
    """`code` is what the server answers for such a path."""

    def __init__(self, message: str, *, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class InvalidOps(QueueyardError):
    pass


class NoWorkspace(QueueyardError):
    pass


class TooManyDeletes(QueueyardError):
    pass


class CorruptBatch(QueueyardError):
    pass


class UnknownItem(QueueyardError):
    pass


class TransportFailed(QueueyardError):
    exit_code = TEMPORARY_FAILURE


class PushStopped(QueueyardError):
    """Something is left in the queue; `facts` says how much."""

    exit_code = TEMPORARY_FAILURE

    def __init__(
        self, message: str, *, pending_batches: int, pending_ops: int, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.pending_batches = pending_batches
        self.pending_ops = pending_ops
        self.code = code

    def facts(self) -> dict[str, Any]:
        return {"pending_batches": self.pending_batches, "pending_ops": self.pending_ops, "code": self.code}


class Refused(QueueyardError):
    """The server refuses the caller; nothing was spent and everything stays queued."""

    def __init__(self, message: str, *, status: int, code: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code

    def facts(self) -> dict[str, Any]:
        return {"status": self.status, "code": self.code}


class ServerLostProgress(QueueyardError):
    pass


class InsecureServer(QueueyardError):
    pass


class NotLoopback(QueueyardError):
    pass


class LedgerFailed(QueueyardError):
    pass


class MissingExtra(QueueyardError):
    pass
