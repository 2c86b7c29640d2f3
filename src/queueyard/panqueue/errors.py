"""What panqueue may refuse, all exit 1.

QueueyardError
└── PanqueueError
    ├── ServerUnreachable    refused, timed out or gone; nothing is known about the last call
    ├── ServerRefused        the server answered with an error
    │   ├── AccessDenied     wrong password, or a user who may not do that
    │   ├── ServerFull       it is out of memory and takes no more jobs
    │   └── ForeignData      somebody else's data stands in the place of a queue's
    ├── BadAddress           a URL that cannot be understood
    ├── NoServer             no URL was given, and there is no embedded server here
    ├── BadQueue             a queue id or concurrency key that cannot be used
    ├── BadSchedule          a cron line, interval or time zone that cannot be used
    ├── BadFlow              a flow that goes round in a circle, or cannot be told apart
    ├── UnknownSchedule      no such schedule
    ├── NotSerializable      a payload or result that JSON cannot hold; `path` says where
    ├── PayloadTooLarge      longer than the queue allows
    ├── BadPayload           a stored payload that is not what the queue expects
    ├── ModeMismatch         the queue is in another mode, or its keys have another limit
    ├── KeyRequired          keyed mode without a key, or a key where there are none
    ├── LimitConflict        the common limit was declared twice under one version
    ├── JobExists            the id is taken
    ├── Duplicate            another job holds the deduplication key; clients give that job instead
    ├── UnknownJob           no such job
    ├── JobActive            a worker has it
    ├── JobOver              it has ended already
    ├── ResultGone           it is finished, but nothing was kept of it
    ├── JobFailed            it failed for good; `reason` says why
    ├── TimedOut             it did not finish in time
    ├── Closed               the client or worker was closed
    ├── LeaseLost            told to a handler: its job may by now be somebody else's
    ├── TryAgain             raised by a handler: not now, and without spending a retry
    └── Unrecoverable        raised by a handler: do not try again
"""

from __future__ import annotations

from typing import Any

from queueyard.kernel.errors import QueueyardError


class PanqueueError(QueueyardError):
    """The family, for those who want to catch all of it."""


class ServerUnreachable(PanqueueError):
    pass


class ServerRefused(PanqueueError):
    pass


class AccessDenied(ServerRefused):
    pass


class ServerFull(ServerRefused):
    pass


class ForeignData(ServerRefused):
    pass


class BadAddress(PanqueueError):
    pass


class NoServer(PanqueueError):
    pass


class BadQueue(PanqueueError):
    pass


class BadSchedule(PanqueueError):
    pass


class BadFlow(PanqueueError):
    pass


class UnknownSchedule(PanqueueError):
    pass


class NotSerializable(PanqueueError):
    """JSON cannot hold the value; `path` leads to the part that is to blame."""

    def __init__(self, message: str, *, path: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.path = path

    def facts(self) -> dict[str, Any]:
        return {"path": self.path}


class PayloadTooLarge(PanqueueError):
    pass


class BadPayload(PanqueueError):
    pass


class ModeMismatch(PanqueueError):
    pass


class KeyRequired(PanqueueError):
    pass


class LimitConflict(PanqueueError):
    pass


class JobExists(PanqueueError):
    pass


class Duplicate(PanqueueError):
    """The job was not added, because `job_id` holds its deduplication key."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} holds the deduplication key", hint="Wait for it, or use another key.")
        self.job_id = job_id

    def facts(self) -> dict[str, Any]:
        return {"job": self.job_id}


class UnknownJob(PanqueueError):
    pass


class JobActive(PanqueueError):
    pass


class JobOver(PanqueueError):
    pass


class ResultGone(PanqueueError):
    pass


class JobFailed(PanqueueError):
    """The job ended without a result; `reason` is what its last attempt said."""

    def __init__(self, message: str, *, job_id: str, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.job_id = job_id
        self.reason = reason

    def facts(self) -> dict[str, Any]:
        return {"job": self.job_id, "reason": self.reason}


class TimedOut(PanqueueError):
    pass


class Closed(PanqueueError):
    pass


class LeaseLost(PanqueueError):
    pass


class TryAgain(PanqueueError):
    """Raise it in a handler, and the job waits that long without spending a retry.

    With `everybody`, no other job of a queue with a rate limit starts before, either: for an API that says "too many".
    """

    def __init__(self, in_ms: int, *, everybody: bool = False, why: str = "try again") -> None:
        super().__init__(why)
        self.in_ms = max(0, int(in_ms))
        self.everybody = everybody


class Unrecoverable(PanqueueError):
    """Raise it in a handler, and the job fails for good whatever its retries."""
