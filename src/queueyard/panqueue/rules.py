"""The decisions of panqueue without anything around them: no Redis, no clock, no randomness of its own.

What has to be decided atomically is decided in `lua/`; this file holds what a worker or client decides before it
calls, and the readiness rule of keyed mode in plain words, so that it can be tested by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.backoff import Backoff
from queueyard.panqueue.errors import BadQueue
from queueyard.panqueue.records import BackoffRule, JobState, Keep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LONGEST_NAME_BYTES = 512
_LONGEST_DELAY_MS = 365 * 86_400_000
_LONGEST_REASON = 2_000
# A script must be able to hand all of them to one command, and must not keep the server from others for long.
MOST_CLAIMED_PER_CALL = 1_000


# --- names -----------------------------------------------------------------------------------------------------------


def check_queue_id(queue_id: str) -> str:
    """The id itself. BadQueue if it cannot stand in a hash tag: braces would break the tag, and thereby the cluster."""
    if not queue_id or "{" in queue_id or "}" in queue_id or not queue_id.isprintable() or _is_long(queue_id):
        raise BadQueue(
            f"not a queue id: {queue_id!r}", hint="Use letters, digits and - _ . : without braces, at most 512 bytes."
        )
    return queue_id


def check_key(key: str) -> str:
    """The concurrency key itself. BadQueue if it is empty or too long."""
    if not key or _is_long(key):
        raise BadQueue(f"not a concurrency key: {key[:80]!r}", hint="Use a text of 1 to 512 bytes, such as a user id.")
    return key


def _is_long(text: str) -> bool:
    return len(text.encode("utf-8", "surrogatepass")) > LONGEST_NAME_BYTES


# --- a worker's slots ------------------------------------------------------------------------------------------------


class Slots(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker's capacity is used at one moment."""

    #: jobs that may run at once
    concurrency: int
    #: claimed jobs that are not acknowledged yet, those included that the next call will finish
    held: int
    #: jobs that calls in flight may bring, less those that they finish
    asked: int
    #: how many calls may be in flight
    lanes: int


def claim_count(slots: Slots, *, finishing: int, open_for_work: bool) -> int:
    """How many jobs the next call may claim, if it finishes `finishing` of the held ones first.

    Never so many that more than `concurrency` could be held: a job is claimed only if it can start at once (spec: no
    prefetching). A call asks for its share of the slots only, so that the other lanes have something to do meanwhile,
    and for no more than one script may take.
    """
    if not open_for_work:
        return 0
    free = slots.concurrency - slots.held - slots.asked + finishing
    share = -(-slots.concurrency // slots.lanes)
    return max(0, min(free, share, MOST_CLAIMED_PER_CALL))


# --- retries ---------------------------------------------------------------------------------------------------------


def retry_delay_ms(rule: BackoffRule, failures: int, random: Callable[[], float]) -> int:
    """How long to wait after the failure number `failures` (1, 2, ...)."""
    backoff = Backoff(base_ms=rule.base_ms, cap_ms=rule.cap_ms, factor=rule.factor, jitter=rule.jitter)
    return backoff.delay_ms(failures, random)


def usable_delay_ms(asked: float | None) -> int:
    """What a custom back-off said, as milliseconds that the script takes: -1 for no retry, never beyond a year."""
    if asked is None:
        return -1
    # Not a number is no time to wait: it would never compare as due.
    return 0 if asked != asked else int(max(0.0, min(float(asked), _LONGEST_DELAY_MS)))  # noqa: PLR0124


def told_reason(fault: BaseException) -> str:
    """What is written down about a failure: its message, or its name where it has none. No traceback."""
    said = str(fault) or type(fault).__name__
    return said if len(said) <= _LONGEST_REASON else said[: _LONGEST_REASON - 1] + "…"


def reconnect_delay_s(attempt: int, random: Callable[[], float]) -> float:
    """The pause before the attempt number `attempt` (1, 2, ...) to reach the server again."""
    return (min(50 * attempt, 2_000) + 200 * random()) / 1_000


# --- retention -------------------------------------------------------------------------------------------------------


def retention_arguments(keep: Keep | None) -> tuple[str, str, str]:
    """(keep, greatest age in ms, greatest number) as the scripts take them. None keeps nothing."""
    if keep is None:
        return ("0", "", "")
    age = "" if keep.age_s is None else str(int(keep.age_s * 1_000))
    return ("1", age, "" if keep.count is None else str(keep.count))


def survivors(finished: Sequence[tuple[str, int]], keep: Keep | None, now_ms: int) -> list[str]:
    """Which of the finished jobs, given as (id, finished at), a queue still has: the rule that retention follows."""
    if keep is None:
        return []
    oldest = float("-inf") if keep.age_s is None else now_ms - int(keep.age_s * 1_000)
    young = [job_id for job_id, at in sorted(finished, key=lambda one: (one[1], one[0])) if at > oldest]
    return young if keep.count is None else young[max(0, len(young) - keep.count) :]


# --- keyed mode ------------------------------------------------------------------------------------------------------


def is_ready(*, waiting: int, active: int, limit: int) -> bool:
    """The readiness invariant: a key is in the ready set if, and only if, this holds (spec: Readiness Invariant)."""
    return waiting > 0 and active < limit


# --- batches ---------------------------------------------------------------------------------------------------------


def batches(sizes: Sequence[int], *, most: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut a row of items into ranges of at most `most` items and `most_bytes`; an item that is larger goes alone."""
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and (place - start >= most or total + size > most_bytes):
            yield start, place
            start, total = place, 0
        total += size
    if sizes:
        yield start, len(sizes)


# --- states ----------------------------------------------------------------------------------------------------------


def state_named(text: str) -> JobState:
    """The state that a person means. BadQueue names those that there are."""
    try:
        return JobState(text.lower())
    except ValueError as fault:
        raise BadQueue(f"no such state: {text!r}", hint=f"One of: {', '.join(JobState)}") from fault
