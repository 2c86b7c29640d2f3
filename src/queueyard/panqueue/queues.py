"""A queue as an application declares it: its id, what its payloads and results are, and how its jobs are treated.

    emails = Queue("emails", Email, retries=3)

The same object is given to the client that adds jobs and to the worker that runs them, so that both agree.
"""

from __future__ import annotations

import os
import random
from typing import Any, Generic, TypedDict, TypeVar, Unpack, overload

import msgspec

from queueyard.panqueue.errors import BadQueue, KeyRequired
from queueyard.panqueue.payloads import Codec
from queueyard.panqueue.records import (
    DEFAULT_MAX_STALLS,
    KEEP_COMPLETED,
    KEEP_FAILED,
    KEEP_RESULTS,
    BackoffRule,
    JobOptions,
    Keep,
    Mode,
)
from queueyard.panqueue.rules import check_key, check_queue_id

P = TypeVar("P")
R = TypeVar("R")

MAX_PAYLOAD_BYTES = 1_000_000


class QueueSettings(TypedDict, total=False):
    """What can be said about a queue besides its types; all of it may be left out."""

    #: further attempts after the first failed
    retries: int
    #: how often the worker of a job may die before the job counts as failed
    max_stalls: int
    #: None: the worker's own rule
    backoff: BackoffRule | None
    #: a handler that runs longer fails, milliseconds
    timeout_ms: int | None
    #: left out, a client takes the mode that is stored and a worker takes global
    mode: Mode | str | None
    #: how many jobs of a key run at once, in keyed and dynamic mode
    key_concurrency: int | None
    #: nothing is kept by default, unless a result type is given
    keep_completed: Keep | None
    keep_failed: Keep | None
    #: None: no limit
    max_payload_bytes: int | None
    #: the server counts ids (1, 2, ...) and hashes hold no zeros, which saves about half of the memory
    short_ids: bool


class Queue(Generic[P, R]):
    """What one queue holds. Immutable; cheap to make; talks to nobody."""

    @overload
    def __init__(self: Queue[Any, Any], queue_id: str, **settings: Unpack[QueueSettings]) -> None: ...
    @overload
    def __init__(self: Queue[P, Any], queue_id: str, payload: type[P], **settings: Unpack[QueueSettings]) -> None: ...
    @overload
    def __init__(
        self, queue_id: str, payload: type[P], result: type[R] | None, **settings: Unpack[QueueSettings]
    ) -> None: ...

    def __init__(
        self, queue_id: str, payload: Any = None, result: Any = None, **settings: Unpack[QueueSettings]
    ) -> None:
        """`payload` and `result`: msgspec structs, dataclasses, TypedDicts, or any type that JSON can hold.

        BadQueue if something of this makes no sense.
        """
        self.id = check_queue_id(queue_id)
        self.options = JobOptions(
            retries=settings.get("retries", 0),
            max_stalls=settings.get("max_stalls", DEFAULT_MAX_STALLS),
            backoff=settings.get("backoff"),
            timeout_ms=settings.get("timeout_ms"),
        )
        mode = settings.get("mode")
        self.mode = None if mode is None else _mode_named(mode)
        self.key_concurrency = settings.get("key_concurrency")
        self.keep_failed = settings.get("keep_failed", KEEP_FAILED)
        self.keep_completed = settings.get("keep_completed", KEEP_COMPLETED if result is None else KEEP_RESULTS)
        self.short_ids = settings.get("short_ids", False)
        self.payloads: Codec[P] = Codec(payload, max_bytes=settings.get("max_payload_bytes", MAX_PAYLOAD_BYTES))
        self.results: Codec[R] = Codec(result, name="result")
        _check(self.id, self.options, self.key_concurrency, self.mode)

    def __repr__(self) -> str:
        return f"<Queue {self.id}>"


class JobChanges(TypedDict, total=False):
    """What can be said differently for a single job; None says nothing."""

    retries: int | None
    max_stalls: int | None
    backoff: BackoffRule | None
    timeout_ms: int | None


def with_options(base: JobOptions, **changes: Unpack[JobChanges]) -> JobOptions:
    """The options with those that were given replaced; the same object if none were."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        return base
    options = msgspec.structs.replace(base, **given)
    _check("", options, None, None)
    return options


def _check(queue_id: str, options: JobOptions, key_concurrency: int | None, mode: Mode | None) -> None:
    about = f"queue {queue_id}: " if queue_id else ""
    for name in ("retries", "max_stalls"):
        if getattr(options, name) < 0:
            raise BadQueue(f"{about}{name} must be 0 or more", hint="0 means none.")
    if options.timeout_ms is not None and options.timeout_ms < 1:
        raise BadQueue(f"{about}timeout_ms must be 1 or more", hint="Leave it out for no time-out.")
    rule = options.backoff
    if rule is not None and (rule.base_ms < 0 or rule.cap_ms < 0 or rule.factor < 1 or not 0 <= rule.jitter <= 1):
        raise BadQueue(f"{about}not a back-off: {rule}", hint="base_ms, cap_ms >= 0; factor >= 1; jitter from 0 to 1.")
    if key_concurrency is not None and key_concurrency < 1:
        raise BadQueue(f"{about}key_concurrency must be 1 or more", hint="It is how many jobs of a key run at once.")
    if key_concurrency is not None and mode in {None, Mode.GLOBAL}:
        raise BadQueue(f"{about}key_concurrency needs mode='keyed' or mode='dynamic'", hint="Give the mode too.")


def _mode_named(mode: Mode | str) -> Mode:
    try:
        return Mode(mode)
    except ValueError as fault:
        raise BadQueue(f"no such mode: {mode!r}", hint=f"One of: {', '.join(Mode)}") from fault


def checked_key(queue_id: str, key: str | None, *, keyed: bool) -> str | None:
    """The key as the mode wants it. KeyRequired if there is none in keyed mode, or one in global mode."""
    if keyed:
        if key is None:
            raise KeyRequired(
                f"queue {queue_id} is keyed: every job needs a concurrency key", hint="Add it: add(payload, key=...)"
            )
        return check_key(key)
    if key is not None:
        raise KeyRequired(
            f"queue {queue_id} is in global mode, where jobs have no key",
            hint="Leave the key out, or start the queue's worker with mode='keyed'.",
        )
    return None


# --- ids -------------------------------------------------------------------------------------------------------------

# An id has to be unique, not secret: this is several times faster than asking the kernel for each one.
_chance = random.Random(os.urandom(32))  # noqa: S311
os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))

_VARIANT = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


def new_job_id() -> str:
    """A random UUID of version 4, as the public implementation gives its jobs."""
    digits = _chance.randbytes(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:]}"
