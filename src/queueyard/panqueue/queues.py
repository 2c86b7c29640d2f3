"""A queue as an application declares it: its id, what its payloads and results are, and how its jobs are treated.

    emails = Queue("emails", Email, retries=3)

The same object is given to the client that adds jobs and to the worker that runs them, so that both agree.
"""

from __future__ import annotations

from datetime import UTC, datetime
import os
import random
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Unpack, overload

import msgspec

from queueyard.panqueue.errors import BadQueue, KeyRequired
from queueyard.panqueue.pacing import STRICT_LEVEL_US, QueueRules, Rate, rate_faults
from queueyard.panqueue.payloads import Codec
from queueyard.panqueue.placing import Dedup, placing_faults, with_placing
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

if TYPE_CHECKING:
    from queueyard.panqueue.executors.crew import Executor

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
    #: the id of the queue that failed jobs are copied to; None: none
    dead_letters: str | None
    #: whether jobs start by their priority instead of by when they were added; in global mode
    priorities: bool
    #: how long a job waits until it counts as one level more urgent, milliseconds; None: strictly by priority
    ageing_ms: int | None
    #: how many jobs of the queue may start in which time
    rate: Rate | None
    #: how many jobs of each key may start in which time, in keyed and dynamic mode
    key_rate: Rate | None
    #: None: no limit
    max_payload_bytes: int | None
    #: the server counts ids (1, 2, ...) and hashes hold no zeros, which saves about half of the memory
    short_ids: bool
    #: where its handlers run; None: in the worker itself
    executor: Executor | None


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
        self.rules = _rules_of(settings)
        self.dead_letters = settings.get("dead_letters")
        self.short_ids = settings.get("short_ids", False)
        self.executor = settings.get("executor")
        self.payloads: Codec[P] = Codec(payload, max_bytes=settings.get("max_payload_bytes", MAX_PAYLOAD_BYTES))
        self.results: Codec[R] = Codec(result, name="result")
        _check(self.id, self.options, self.key_concurrency, self.mode)
        _check_dead_letters(self.id, self.dead_letters, self.keep_failed)
        _check_rules(self.id, self.rules, self.mode)

    def __repr__(self) -> str:
        return f"<Queue {self.id}>"


class JobChanges(TypedDict, total=False):
    """What can be said differently for a single job; None says nothing."""

    retries: int | None
    max_stalls: int | None
    backoff: BackoffRule | None
    timeout_ms: int | None
    #: not before so many milliseconds have passed
    delay_ms: int | None
    #: not before this moment; one without a zone is UTC
    run_at: datetime | None
    #: from -100 to 100, the higher the sooner; for queues with priorities
    priority: int | None
    #: a job that has not started after so long fails, milliseconds
    expires_ms: int | None
    dedup: Dedup | None
    #: W3C trace context; given by clients that trace
    trace: str | None
    #: further fields of the job's hash
    fields: tuple[tuple[str, str], ...] | None


_PLACING = frozenset({"delay_ms", "run_at", "priority", "expires_ms", "dedup", "fields"})


def with_options(base: JobOptions, **changes: Unpack[JobChanges]) -> JobOptions:
    """The options with those that were given replaced; the same object if none were."""
    given = {name: value for name, value in changes.items() if value is not None}
    if not given:
        return base
    placed: dict[str, Any] = {name: given.pop(name) for name in _PLACING & given.keys()}
    if "run_at" in placed:
        placed["run_at_ms"] = _ms_of(placed.pop("run_at"))
    placing = with_placing(base.placing, placed)
    options = msgspec.structs.replace(base, **given, placing=placing)
    _check("", options, None, None)
    if placing is not None and (faults := placing_faults(placing)):
        raise BadQueue("; ".join(faults), hint="See: panqueue enqueue --help")
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


def _rules_of(settings: QueueSettings) -> QueueRules:
    ageing_ms = settings.get("ageing_ms")
    level_us = STRICT_LEVEL_US if ageing_ms is None else ageing_ms * 1_000
    is_ranked = settings.get("priorities", ageing_ms is not None)
    return QueueRules(level_us if is_ranked else None, settings.get("rate"), settings.get("key_rate"))


def _check_rules(queue_id: str, rules: QueueRules, mode: Mode | None) -> None:
    faults = [*rate_faults("rate", rules.rate), *rate_faults("key_rate", rules.key_rate)]
    keyed = mode in {Mode.KEYED, Mode.DYNAMIC}
    if rules.level_us is not None and keyed:
        faults.append("priorities are for queues in global mode: the keys of a keyed queue take turns")
    if rules.level_us is not None and not 1_000 <= rules.level_us <= STRICT_LEVEL_US:
        faults.append("ageing_ms must be from 1 to a year")
    if rules.key_rate is not None and not keyed:
        faults.append("key_rate needs mode='keyed' or mode='dynamic'")
    if faults:
        raise BadQueue(f"queue {queue_id}: " + "; ".join(faults), hint="See docs/systems/panqueue-pacing.md")


def _check_dead_letters(queue_id: str, dead_letters: str | None, keep_failed: Keep | None) -> None:
    if dead_letters is None:
        return
    check_queue_id(dead_letters)
    if dead_letters == queue_id:
        raise BadQueue(f"queue {queue_id} cannot be its own dead letter queue", hint="Give another queue id.")
    if keep_failed is None:
        raise BadQueue(
            f"queue {queue_id} keeps no failed jobs, so none can be copied to {dead_letters}",
            hint="Leave keep_failed out, or give it a bound: Keep(count=1000)",
        )


def _ms_of(moment: datetime) -> int:
    known = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(known.timestamp() * 1_000)


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
